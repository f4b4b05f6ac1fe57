"""From the ledger and a node's own words to what vertical scaling decides by, and from its plan to messages. Pure.

In: the folded ledger, the node's last usage, the limits that were published last. Out: a `NodeView`; for a plan the
snapshot of limits that should be published, and what is told to people.

What a pod was sold is the ledger's word alone. What it uses is the monitor's; without it, or when it is old, a use is
None. Only pods with the annotation `kuauto.token` are managed; only Gemini's cards have limits that can change while a
process runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from autoscaler.core import vertical_periods as periods
from autoscaler.core.vertical_node import NodePlan, NodeView, PodPlan
from autoscaler.core.vertical_values import CardPart, Limits, PodMemory, PodView
from bus.ledger.state import LedgerState, NodeState, RequestState
from contracts.decisions import Placement
from contracts.messages import Value
from contracts.shares import CpuLimit, NodeCpuLimits, NodeVertical, PodVertical, ShareLimit
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import ContainerUsage, NodeUsage, SliceUsage

ELASTIC = "gemini"
MOST = 1024
"""Pods of a node in one message."""


class Used(Value, frozen=True, kw_only=True):
    """One pod's use; None = not known."""

    cpu_milli: int | None = None
    cpu_average_milli: int | None = None
    cards: dict[str, SliceUsage] = {}


def view(state: LedgerState, node: NodeState, usage: NodeUsage | None) -> NodeView:
    """A node now. `usage` None = it has not spoken lately."""
    used = used_by(usage) if usage is not None else {}
    pods = tuple(
        _pod(request, placement, node, used.get(uid, Used()))
        for uid, placement in sorted(node.residents.items())[:MOST]
        if (request := state.requests.get(uid)) is not None
    )
    return NodeView(node=node.name, pods=pods, cpu_capacity_milli=_capacity(node))


def asks(state: LedgerState, node: NodeState) -> bool:
    """Whether any pod of the node is managed; quick, for every usage message of a large cluster."""
    held = (state.requests.get(uid) for uid in node.residents)
    return any(periods.TOKENS_KEY in request.request.pod.annotations for request in held if request is not None)


def used_by(usage: NodeUsage) -> dict[str, Used]:
    """Each pod's use, by uid. Of several containers the one that the request describes counts."""
    containers: dict[str, ContainerUsage] = {}
    for one in sorted(usage.containers or (), key=lambda one: (one.own is True, one.cpu_used_milli or 0)):
        if one.own is not False:
            containers[one.uid] = one
    slices: dict[str, dict[str, SliceUsage]] = {}
    for card in usage.cards:
        for piece in card.slices or ():
            slices.setdefault(piece.uid, {})[card.uuid] = piece
    return {
        uid: Used(
            cpu_milli=containers[uid].cpu_used_milli if uid in containers else None,
            cpu_average_milli=containers[uid].cpu_average_milli if uid in containers else None,
            cards=slices.get(uid, {}),
        )
        for uid in sorted(containers.keys() | slices.keys())
    }


def remembered(limits: NodeCpuLimits | None) -> dict[str, PodMemory]:
    """What an autoscaler before us told the node: it holds, and is gone on from."""
    told: dict[str, Limits] = {}
    for cpu in limits.limits if limits else ():
        told[cpu.uid] = Limits(cpu_milli=cpu.limit_milli)
    for card in limits.cards if limits else ():
        told[card.uid] = Limits(cpu_milli=told.get(card.uid, Limits()).cpu_milli, gpu_milli=card.limit_milli)
    return {uid: PodMemory(told=one, held=one) for uid, one in told.items()}


def snapshot(node: str, epoch: str, sequence: int, plan: NodePlan, cause: str = "") -> NodeCpuLimits:
    """The limits of a plan as a message."""
    cpu = [CpuLimit(uid=RequestUid(p.pod.uid), limit_milli=n) for p in plan.pods if (n := p.limits.cpu_milli)]
    cards = [
        ShareLimit(uid=RequestUid(p.pod.uid), card=CardUuid(part.card), limit_milli=p.limits.gpu_milli)
        for p in plan.pods
        if p.limits.gpu_milli is not None
        for part in p.pod.cards
    ]
    return NodeCpuLimits(
        node=NodeName(node), epoch=epoch, sequence=sequence, limits=tuple(cpu), cards=tuple(cards[:MOST]), cause=cause
    )


def differs(one: NodeCpuLimits | None, other: NodeCpuLimits) -> bool:
    """Whether the second says something else than the first, numbers of messages apart; nothing is said by silence."""
    if one is None or one.epoch != other.epoch:
        return bool(other.limits or other.cards)
    return (one.limits, one.cards) != (other.limits, other.cards)


def told(seen: NodeView, plan: NodePlan, mode: Literal["observe", "act"], last: NodeCpuLimits | None) -> NodeVertical:
    """What people are told."""
    return NodeVertical(
        node=NodeName(seen.node),
        mode=mode,
        epoch=last.epoch if last else "",
        cpu_sequence=last.sequence if last else 0,
        cpu_capacity_milli=None if seen.cpu_capacity_milli is None else max(0, seen.cpu_capacity_milli),
        pods=tuple(_told(one, acts=mode == "act") for one in plan.pods),
    )


def warnings(state: LedgerState, uids: Iterable[str]) -> Mapping[str, str]:
    """What could not be read of these pods' annotations, by uid."""
    requests = {uid: state.requests.get(RequestUid(uid)) for uid in uids}
    read = {uid: periods.tokens(r.request.pod.annotations) for uid, r in requests.items() if r is not None}
    return {uid: one.warning for uid, one in sorted(read.items()) if one is not None and one.warning}


# --- parts -----------------------------------------------------------------------------------------------------------


def _capacity(node: NodeState) -> int | None:
    """What Kubernetes lets our pods have of the node's CPUs."""
    facts = node.facts
    return None if facts is None else max(0, facts.allocatable_cpu_milli - facts.foreign_cpu_milli)


def _pod(request: RequestState, placement: Placement, node: NodeState, used: Used) -> PodView:
    asked = periods.tokens(request.request.pod.annotations)
    cards = []
    for piece in placement.slices:
        use = used.cards.get(piece.card)
        cards.append(
            CardPart(
                card=piece.card,
                sold_milli=piece.share_milli,
                used_milli=None if use is None or use.compute_percent is None else use.compute_percent * 10,
                average_milli=use.average_milli if use else None,
                elastic=piece.card in node.cards and node.cards[piece.card].card.isolation == ELASTIC,
            )
        )
    return PodView(
        uid=request.uid,
        namespace=request.accepted.namespace,
        name=request.request.name,
        managed=asked is not None and not request.leaving,
        tokens=asked.number if asked else None,
        cpu_sold_milli=placement.cpu_milli,
        cpu_used_milli=used.cpu_milli,
        cpu_average_milli=used.cpu_average_milli,
        cards=tuple(cards),
    )


def _told(one: PodPlan, *, acts: bool) -> PodVertical:
    pod, wish = one.pod, one.wish
    limits = one.limits if acts else Limits()
    return PodVertical(
        uid=RequestUid(pod.uid),
        namespace=pod.namespace,
        pod=pod.name,
        managed=pod.managed,
        rule=wish.rule,
        income_milli=wish.income_milli,
        savings_milli=wish.savings_milli,
        cpu_sold_milli=pod.cpu_sold_milli,
        cpu_used_milli=pod.cpu_used_milli,
        cpu_weight_milli=wish.weights[0],
        cpu_next_milli=one.granted.cpu_milli or 0,
        cpu_limit_milli=limits.cpu_milli,
        cards=len(pod.cards),
        gpu_sold_milli=pod.share_milli,
        gpu_used_milli=pod.gpu_used_milli,
        gpu_weight_milli=wish.weights[1],
        gpu_next_milli=one.granted.gpu_milli or 0,
        gpu_limit_milli=limits.gpu_milli,
        reason=one.reason,
    )
