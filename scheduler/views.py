"""The ledger's state as people see it: requests, cards, nodes, one page at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec.structs import replace

from bus.ledger.state import CardState, LedgerState, NodeState, RequestState, Use
from contracts.answers import AskState, CardView, NodeView, QuotaView, RequestView, StateView, Summary
from contracts.decisions import CardSlice
from contracts.priorities import priority_of
from contracts.units import RequestUid

T = TypeVar("T")
NOTHING_TOLD: Mapping[RequestUid, str] = {}


def view(
    state: LedgerState, ask: AskState, *, policy: str, waiting: Mapping[RequestUid, str] = NOTHING_TOLD
) -> StateView:
    """One page of what was asked for, in a stable order; `last` goes into the next ask as `after`.

    `waiting` holds what users were last told of why a request waits.
    """
    base = StateView(ledger_sequence=state.sequence, epoch=state.epoch, policy=policy)
    if ask.what == "summary":
        return replace(base, summary=summary(state))
    if ask.what == "requests":
        requests, last, more = _page(((_request_key(r), r) for r in _requests(state, ask.namespace)), ask)
        views = tuple(request_view(r, waiting.get(r.uid, "")) for r in requests)
        return replace(base, requests=views, last=last, more=more)
    if ask.what == "cards":
        cards, last, more = _page(((_card_key(c), c) for c in state.cards()), ask)
        return replace(base, cards=tuple(card_view(state, c) for c in cards), last=last, more=more)
    if ask.what == "quotas":
        spaces, last, more = _page(((name, name) for name in _namespaces(state)), ask)
        return replace(base, quotas=tuple(quota_view(state, name) for name in spaces), last=last, more=more)
    nodes, last, more = _page(((name, state.nodes[name]) for name in sorted(state.nodes)), ask)
    return replace(base, nodes=tuple(map(node_view, nodes)), last=last, more=more)


def summary(state: LedgerState) -> Summary:
    """Every accepted request is in exactly one of pending, placed (running among them), withdrawn, ended."""
    running = sum(r.phase == "running" for r in state.requests.values())
    return Summary(
        accepted=state.totals.accepted,
        pending=len(state.pending),
        placed=state.placed_count(),
        running=running,
        withdrawn=state.totals.withdrawn,
        ended=state.totals.ended,
        over_commits=len(state.overcommits()),
        nodes=len(state.nodes),
        cards=sum(len(n.cards) for n in state.nodes.values()),
    )


def request_view(request: RequestState, waits_for: str = "") -> RequestView:
    """One request; `reason` is why it ended, or why it waits."""
    ask, placement = request.request, request.placement
    return RequestView(
        namespace=request.accepted.namespace,
        name=ask.name,
        uid=request.uid,
        phase=_phase(request),
        cards=ask.gpu.cards,
        share_milli=ask.gpu.share_milli if ask.gpu.cards else 0,
        memory_mib=ask.gpu.memory_mib,
        node=placement.node if placement else "",
        slices=tuple(map(slice_text, placement.slices)) if placement else (),
        pod=request.pod,
        priority=priority_of(ask),
        nominated=request.nomination.placement.node if request.nomination else "",
        attempt=request.attempt,
        gang=ask.gang.name if ask.gang else "",
        reason=waits_for or ": ".join(filter(None, (request.ending, request.detail))),
        submitted_ms=request.accepted.submitted_ms,
    )


def _phase(request: RequestState) -> str:
    """A placed one that has been told to go is still counted."""
    if not request.leaving or not request.live:
        return request.phase
    return "withdrawing" if request.withdrawn else "evicting"


def quota_view(state: LedgerState, namespace: str) -> QuotaView:
    """One namespace; without a mapping it may hold nothing while quotas are on."""
    quota, use = state.quotas.get(namespace), state.usage.get(namespace, Use())
    mapped = quota is not None and not quota.removed
    return QuotaView(
        namespace=namespace,
        mapped=mapped or not state.quotas,
        share_milli=quota.share_milli if quota is not None and mapped else None,
        memory_mib=quota.memory_mib if quota is not None and mapped else None,
        used_milli=use.share_milli,
        used_mib=use.memory_mib,
        weight=quota.weight if quota is not None else 1,
        max_priority=quota.max_priority if quota is not None and mapped else None,
    )


def _namespaces(state: LedgerState) -> list[str]:
    """With a quota, with something held, or with something waiting."""
    waiting = {request.accepted.namespace for request in state.pending.values()}
    return sorted({*state.quotas, *state.usage, *waiting})


def slice_text(piece: CardSlice) -> str:
    """`GPU-…=500:4000`: thousandths and MiB."""
    return f"{piece.card}={piece.share_milli}:{piece.memory_mib}"


def card_view(state: LedgerState, card: CardState) -> CardView:
    """One card with the names of its residents."""
    residents = (state.requests[uid].key for uid in card.residents if uid in state.requests)
    node = state.nodes[card.node]
    order = node.cordons.get(card.card.uuid)
    own: str = card.health if card.present else "missing"
    own = "not acquired" if own == "healthy" and card.unacquired else own
    health = own if order is None else "cordoned" if own == "healthy" else f"cordoned, {own}"
    words = (order.reason if order else "", card.reason if own != "healthy" else "")
    return CardView(
        node=card.node,
        card=card.card,
        used_milli=min(card.used_milli, 1000),
        used_mib=card.used_mib,
        sellable_mib=card.capacity_mib,
        residents=tuple(sorted(residents)),
        health=health if node.fresh or health != "healthy" else "stale",
        cordoned=order is not None,
        reason="; ".join(filter(None, words))[:1024],
        since_ms=order.at_ms if order else card.card.health_since_ms,
    )


def node_view(node: NodeState) -> NodeView:
    """One node; `reason` when it takes nothing new."""
    facts = node.facts
    return NodeView(
        node=node.name,
        health="fresh" if node.fresh else "suspect",
        ready=bool(facts and facts.ready and not facts.unschedulable),
        cards=len(node.cards),
        used_cpu_milli=node.used_cpu_milli,
        allocatable_cpu_milli=facts.allocatable_cpu_milli if facts else 0,
        used_memory_mib=node.used_memory_mib,
        allocatable_memory_mib=facts.allocatable_memory_mib if facts else 0,
        used_card_milli=sum(c.used_milli for c in node.cards.values()),
        reason=_node_reason(node),
    )


def _node_reason(node: NodeState) -> str:
    if node.facts is None:
        return "not known to Kubernetes yet"
    if not node.facts.ready:
        return "not ready in Kubernetes"
    if node.facts.unschedulable:
        return "cordoned in Kubernetes"
    return "" if node.fresh else node.reason


# --- pages ---------------------------------------------------------------------------------------------------------


def _requests(state: LedgerState, namespace: str) -> list[RequestState]:
    everything = [*state.requests.values(), *state.recent.values()]
    return sorted((r for r in everything if namespace in ("", r.accepted.namespace)), key=_request_key)


def _request_key(request: RequestState) -> str:
    """Sortable and unique: the name, then the uid (a name may have been used before)."""
    epoch, number, index = request.uid.rsplit("-", 2)
    return f"{request.key}#{epoch}-{int(number):012d}-{int(index):06d}"


def _card_key(card: CardState) -> str:
    return f"{card.node}#{card.card.index:04d}#{card.card.uuid}"


def _page(items: Iterable[tuple[str, T]], ask: AskState) -> tuple[list[T], str, bool]:
    rest: Iterator[tuple[str, T]] = ((key, item) for key, item in items if key > ask.after)
    page: list[T] = []
    last = ask.after
    for key, item in rest:
        if len(page) == ask.limit:
            return page, last, True
        page.append(item)
        last = key
    return page, last, False
