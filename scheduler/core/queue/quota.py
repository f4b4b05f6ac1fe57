"""Whether a namespace may hold more, in numbers.

In: a state, a request or what it would get. Out: nothing, or the reason that holds it back.

Before a place is looked for, only what is known for certain is compared: thousandths, and memory if it was asked for
in MiB. Memory that follows the share depends on the card, and is compared when the card is chosen; then the request
waits, although a smaller card might have been within the quota.
"""

from __future__ import annotations

from collections.abc import Iterable

from bus.ledger.rules import OverQuota, over_quota
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Placement
from contracts.outcomes import Reason, Refusal
from contracts.priorities import priority_of
from contracts.requests import PodRequest, Resize

UNITS = {"share_milli": "thousandths", "memory_mib": "MiB", "mapping": "thousandths"}


def held_back(state: LedgerState, requests: Iterable[RequestState]) -> OverQuota | None:
    """The limit that these requests of one namespace would exceed together, by what they ask for."""
    if not state.quotas:
        return None
    share = memory = 0
    namespace = ""
    for request in requests:
        namespace, gpu = request.accepted.namespace, request.request.gpu
        share += gpu.cards * gpu.share_milli
        memory += gpu.cards * (gpu.memory_mib or 0)
    return over_quota(state, namespace, share, memory)


def beyond(state: LedgerState, namespace: str, placements: Iterable[Placement]) -> OverQuota | None:
    """The same for what they would get."""
    if not state.quotas:
        return None
    pieces = [piece for placement in placements for piece in placement.slices]
    share, memory = sum(p.share_milli for p in pieces), sum(p.memory_mib for p in pieces)
    return over_quota(state, namespace, share, memory)


def growth(state: LedgerState, request: RequestState, message: Resize) -> OverQuota | None:
    """The limit that a resize would exceed; giving back is always possible."""
    pieces = request.placement.slices if request.placement else ()
    share = sum(message.share_milli - piece.share_milli for piece in pieces)
    memory = sum(message.memory_mib - piece.memory_mib for piece in pieces)
    if all(message.share_milli <= p.share_milli and message.memory_mib <= p.memory_mib for p in pieces):
        return None
    return over_quota(state, request.accepted.namespace, share, memory)


def reason(over: OverQuota) -> Reason:
    """For people: what it holds, what it may hold, what was asked."""
    if over.field == "mapping":
        text = f"namespace {over.namespace} has no quota while quotas are on, so it may hold nothing"
        return Reason(code="quota", text=text, needed=over.asked, free=0, unit="thousandths")
    unit = UNITS[over.field]
    text = (
        f"namespace {over.namespace} may hold {over.limit} {unit} of cards and holds {over.used}: "
        f"{over.asked} more are asked for"
    )
    free = max(0, over.limit - over.used)
    return Reason(code="quota", text=text, needed=over.asked, free=free, unit=unit)


def refusal(over: OverQuota) -> Refusal:
    """Of a resize."""
    field = "share_milli" if over.field == "mapping" else over.field
    told = reason(over)
    bound = f"at most {told.free} {told.unit} more for namespace {over.namespace}"
    return Refusal(field=field, value=str(over.asked), bound=bound, text=f"{field}: {told.text}")


def too_important(state: LedgerState, namespace: str, request: PodRequest) -> Refusal | None:
    """A priority above what its namespace may use."""
    quota = state.quotas.get(namespace)
    priority = priority_of(request)
    if quota is None or quota.max_priority is None or priority <= quota.max_priority:
        return None
    field = "priority" if request.priority_class is None else "priority_class"
    bound = f"at most {quota.max_priority} in namespace {namespace}"
    text = f"{field}: priority {priority} is too high; allowed: {bound}"
    return Refusal(field=field, value=request.priority_class or str(priority), bound=bound, text=text)
