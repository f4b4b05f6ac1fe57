"""What records about the queue do: quotas, nominations, and the way back into the queue. Pure.

A nomination sells nothing. It marks who must leave, takes what is free of the place, and lets `holds` collect the rest;
the decision itself is a `Reserved` like any other, possible once all of the place is held.
"""

from __future__ import annotations

from bus.ledger import holds
from bus.ledger.rules import InvariantBroken, check_distinct, check_quota, check_victims
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Nominated, NominationEnded, Placement, QuotaSet
from contracts.units import RequestUid


def quota(state: LedgerState, record: QuotaSet, _at: int) -> None:
    """The operator's word on one namespace."""
    state.quotas[record.quota.namespace] = record.quota


def nominated(state: LedgerState, record: Nominated, at: int) -> None:
    """A pending request has a place in sight; its victims are told to leave."""
    request = _pending(state, record.uid, "nomination", at)
    if request.nomination is not None:
        raise InvariantBroken(f"{record.uid} is nominated again at {at}; it was at {request.nominated_at}")
    placement = record.placement
    node = state.nodes.get(placement.node)
    if node is None or not all(piece.card in node.cards for piece in placement.slices):
        raise InvariantBroken(f"{record.uid} is nominated at {at} for a place on {placement.node} that is not there")
    check_distinct(placement, at)
    check_quota(state, request.accepted.namespace, placement, at)
    check_victims(state, node, request, record, at)
    for uid in record.victims:
        _told_to_leave(state, state.requests[uid], record.uid)
    request.nomination, request.nominated_at, request.nominated_ms = record, state.number + 1, state.clock_ms
    holds.charge(state, request.accepted.namespace, placement)
    holds.begin(state, node, request)
    holds.serve(state, node)
    state.touched.append(node.name)


def _told_to_leave(state: LedgerState, victim: RequestState, nominee: RequestUid) -> None:
    victim.evicted_for, victim.leaving_ms = nominee, state.clock_ms
    if victim.placement is not None:
        state.touched.append(victim.placement.node)
    state.evicted += 1


def nomination_ended(state: LedgerState, record: NominationEnded, at: int) -> None:
    """The place is waited for no more."""
    request = _pending(state, record.uid, "end of a nomination", at)
    if request.nomination is None:
        raise InvariantBroken(f"the nomination of {record.uid} ends at {at}; it has none")
    holds.end(state, request)


def fulfilled(state: LedgerState, request: RequestState, placement: Placement, at: int) -> None:
    """The nominated request gets its place: all of it, and not before it is free.

    Raises:
        InvariantBroken: another place, or somebody still holds a part of it.
    """
    if request.nomination is None:
        return
    if placement != request.nomination.placement:
        raise InvariantBroken(f"{request.uid} is placed at {at} elsewhere than where it is nominated")
    if not holds.complete(request):
        raise InvariantBroken(f"{request.uid} is placed at {at} where others have not left yet")
    holds.drop(state, request)


def requeued(state: LedgerState, request: RequestState) -> None:
    """It had to leave and waits again: same uid, next attempt, as if it had never been placed."""
    request.last_node = request.placement.node if request.placement else ""
    request.placement = request.rationale = None
    request.phase, request.pod, request.decided_at, request.started_ms = "pending", "", 0, 0
    if request.uid in state.began:
        state.began.remove(request.uid)
    request.evicted_for, request.leaving_ms = RequestUid(""), 0
    request.attempt += 1
    state.pending[request.uid] = request


def _pending(state: LedgerState, uid: RequestUid, what: str, at: int) -> RequestState:
    request = state.pending.get(uid)
    if request is None:
        raise InvariantBroken(f"{what} at {at} for {uid}, which does not wait")
    return request
