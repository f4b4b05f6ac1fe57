"""What each pod may use on the cards of a node: a full snapshot from the ledger, for the monitor of that node. Pure.

In: the ledger's state, the pods as they are seen, and the last snapshot of the node. Out: the next one. Slices come
from the ledger alone; what Kubernetes made of a pod (its uid, its container, its limit) is told beside them, as far as
it is known; the port of a pod's manager is the one it has, else the next that is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from bus.ledger.state import LedgerState, RequestState
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.units import NodeName
from reconciler.plan import pod_of
from reconciler.ports import allot
from reconciler.seen import Seen

PORT = "POD_MANAGER_PORT"
"""The variable that a pod reads its port from."""

Look = Callable[[str], Seen | None]
"""`<namespace>/<pod>` -> the pod as seen."""


def node_shares(
    state: LedgerState, node: str, seen: Look = lambda _: None, before: NodeShares | None = None
) -> NodeShares:
    """Every slice that the ledger holds on `node`, by card and request; empty for a node that it does not know."""
    residents = state.nodes[node].residents if node in state.nodes else {}
    found = [state.requests[uid] for uid in residents if uid in state.requests]
    looks = {request.uid: seen(_key(request)) for request in found}
    assignments = [one for request in found for one in _assignments(request)]
    snapshot = NodeShares(
        node=NodeName(node),
        epoch=state.epoch,
        ledger_sequence=state.sequence,
        assignments=tuple(sorted(assignments, key=lambda one: (one.card, one.uid))),
        pods=tuple(sorted((_pod(request, looks[request.uid]) for request in found), key=lambda pod: pod.uid)),
    )
    told = {uid: _port(look) for uid, look in looks.items() if look and look.mark and look.mark.uid == uid}
    return with_ports(snapshot, _needy(state, node, found), before, {uid: port for uid, port in told.items() if port})


def with_ports(
    snapshot: NodeShares, needy: Iterable[str], before: NodeShares | None, told: dict[str, int]
) -> NodeShares:
    """The snapshot with a port for each of `needy`: the one it had, else the one its pod was told, else a free one."""
    old = before if before is not None and before.epoch == snapshot.epoch else None
    held = told | {one.uid: one.port for one in (old.assignments if old else ()) if one.port}
    allotted = allot(needy, held, last=old.last_port if old else 0)
    ports = allotted.ports
    assignments = tuple(
        one if one.port == ports.get(one.uid, 0) else replace(one, port=ports.get(one.uid, 0))
        for one in snapshot.assignments
    )
    return replace(snapshot, assignments=assignments, last_port=allotted.last)


def same_shares(one: NodeShares | None, other: NodeShares) -> bool:
    """Whether they say the same; that they were taken at different sequences of one epoch is no news."""
    return one is not None and (one.epoch, one.assignments, one.pods) == (other.epoch, other.assignments, other.pods)


def keep_ports(ours: NodeShares, theirs: NodeShares) -> NodeShares:
    """Ours, which is stored after theirs, with the ports that theirs gave out: somebody may have been told them."""
    needy = [one.uid for one in ours.assignments if one.port]
    return with_ports(ours, needy, theirs, {})


def _assignments(request: RequestState) -> list[ShareAssignment]:
    slices = request.placement.slices if request.placement else ()
    return [
        ShareAssignment(
            uid=request.uid,
            namespace=request.accepted.namespace,
            pod=pod_of(request),
            card=piece.card,
            share_milli=piece.share_milli,
            memory_mib=piece.memory_mib,
        )
        for piece in slices
    ]


def _pod(request: RequestState, seen: Seen | None) -> PodOnNode:
    """Of a pod that is not bound here yet nothing is known; nor of another one that has its name."""
    ours = seen is not None and seen.mark is not None and seen.mark.uid == request.uid and seen.node != ""
    if seen is None or not ours:
        return PodOnNode(uid=request.uid)
    return PodOnNode(
        uid=request.uid,
        pod_uid=seen.pod_uid,
        container_id=seen.container_id,
        cpu_limit_milli=seen.cpu_limit_milli or 0,
    )


def _port(seen: Seen) -> int:
    text = seen.isolation.get(PORT, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len("65535") else 0


def _needy(state: LedgerState, node: str, found: list[RequestState]) -> list[str]:
    """Pods on a card whose shares a token server deals out, in order of their decisions."""
    cards = state.nodes[node].cards if node in state.nodes else {}
    dealt = {uuid for uuid, card in cards.items() if card.card.isolation == "gemini"}
    needy = [r for r in found if r.placement and any(piece.card in dealt for piece in r.placement.slices)]
    return [request.uid for request in sorted(needy, key=lambda r: (r.decided_at, r.uid))]


def _key(request: RequestState) -> str:
    return f"{request.accepted.namespace}/{pod_of(request)}"
