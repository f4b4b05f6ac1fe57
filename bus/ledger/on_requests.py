"""What records about requests do: into the queue, onto cards, and out again. Pure.

Sums are kept, not computed: a placement adds to its node and cards what its release takes away again.
Accepted and Reserved are the hot pair: each is folded twice, by its author ahead of the log and from the log.
"""

from __future__ import annotations

from itertools import islice

from bus.ledger import holds
from bus.ledger.learning import began, ended, learn, tell_time
from bus.ledger.on_nodes import drop_card, forget_if_gone, node_of, orphan
from bus.ledger.on_queue import fulfilled, requeued
from bus.ledger.rules import InvariantBroken, check_cpu_growth, check_distinct, check_growth, check_quota, check_room
from bus.ledger.state import (
    RECENT_LIMIT,
    RECENT_SLACK,
    LedgerState,
    NodeState,
    Phase,
    RequestState,
)
from contracts.decisions import (
    Accepted,
    Adopted,
    CardSlice,
    Observed,
    Placement,
    Refused,
    Released,
    Reserved,
    Resized,
    Withdrawn,
)
from contracts.units import RequestUid, request_key


def accepted(state: LedgerState, record: Accepted, at: int) -> None:
    """A request enters the queue, once and under a name that nobody has."""
    uid, key = record.uid, request_key(record.namespace, record.request.name)
    if key in state.by_key or uid in state.requests or uid in state.recent:
        raise InvariantBroken(f"{uid} ({key}) is accepted again at {at}; {state.by_key.get(key, uid)} has been")
    request = RequestState(uid=uid, accepted=record, accepted_at=at)
    state.requests[uid] = state.pending[uid] = request
    state.by_key[key] = uid
    state.totals.accepted += 1
    if record.submitted_ms:
        tell_time(state, record.submitted_ms)
    learn(state, record.request)


def refused(state: LedgerState, record: Refused, at: int) -> None:
    """A message that nothing comes of, and that was not handled before. The position that moves past it is all."""
    if record.request_sequence <= state.requests_through:
        where = f"{record.namespace}/{record.name}, message {record.request_sequence}"
        raise InvariantBroken(f"{where}, is refused at {at}; all up to {state.requests_through} are handled")


def _live(state: LedgerState, uid: RequestUid, what: str, at: int) -> RequestState:
    request = state.requests.get(uid)
    if request is None:
        raise InvariantBroken(f"{what} at {at} for {uid}, which is not a live request")
    return request


def _holding(state: LedgerState, uid: RequestUid, what: str, at: int) -> tuple[RequestState, Placement]:
    request = _live(state, uid, what, at)
    if request.placement is None:
        raise InvariantBroken(f"{what} at {at} for {uid}, which holds nothing")
    return request, request.placement


def withdrawn(state: LedgerState, record: Withdrawn, at: int) -> None:
    """Out of the queue at once; what is placed stays counted until it is seen to be gone."""
    request = _live(state, record.uid, "withdrawal", at)
    request.withdrawn, request.detail = True, record.reason
    if request.placement is None:
        holds.end(state, request)
        request.ending = "withdrawn"
        _finish(state, request, "withdrawn")
    elif not request.leaving_ms:
        request.leaving_ms = state.clock_ms
        state.touched.append(request.placement.node)


def reserved(state: LedgerState, record: Reserved, at: int) -> None:
    """The one decision of a request, on a node that has the room."""
    request, placement = _undecided(state, record.uid, at), record.placement
    node = state.nodes.get(placement.node)
    if node is None:
        raise InvariantBroken(f"{record.uid} is placed at {at} on {placement.node}, which is not known")
    fulfilled(state, request, placement, at)
    check_quota(state, request.accepted.namespace, placement, at)
    check_room(node, placement, at)
    _place(state, node, request, placement, at)
    request.rationale = record.rationale


def _undecided(state: LedgerState, uid: RequestUid, at: int) -> RequestState:
    request = _live(state, uid, "placement", at)
    if request.placement is not None:
        raise InvariantBroken(f"{uid} is decided again at {at}; it was at {request.decided_at}")
    return request


def _place(state: LedgerState, node: NodeState, request: RequestState, placement: Placement, at: int) -> None:
    uid = request.uid
    node.residents[uid] = placement
    node.used_cpu_milli += placement.cpu_milli
    node.used_memory_mib += placement.memory_mib
    for piece in placement.slices:
        card = node.cards[piece.card]
        card.residents[uid] = piece
        card.used_milli += piece.share_milli
        card.used_mib += piece.memory_mib
    request.placement, request.phase, request.decided_at = placement, "placed", at
    holds.charge(state, request.accepted.namespace, placement)
    del state.pending[uid]
    state.touched.append(node.name, (uid, placement, 1))
    began(state, request)


def adopted(state: LedgerState, record: Adopted, at: int) -> None:
    """Found running: counted whatever the inventory says, on a card of its own if the node no longer lists it."""
    request, placement = _undecided(state, record.uid, at), record.placement
    check_distinct(placement, at)
    node = node_of(state, placement.node)
    for piece in placement.slices:
        if piece.card not in node.cards:
            node.cards[piece.card] = orphan(node.name, piece.card)
            state.touched.append(node.name)
    _place(state, node, request, placement, at)
    request.pod = record.pod
    request.phase = "running" if record.running else "bound"


def resized(state: LedgerState, record: Resized, at: int) -> None:
    """Every slice of a placed request gets the same new size, on the cards it has; its CPU too, if the record says."""
    request, old = _holding(state, record.uid, "resize", at)
    if not old.slices:
        raise InvariantBroken(f"resize at {at} for {record.uid}, which holds no card")
    node = state.nodes[old.node]
    cpu_milli = old.cpu_milli if record.cpu_milli is None else record.cpu_milli
    check_cpu_growth(node, old.cpu_milli, cpu_milli, request.uid, at)
    pieces = tuple(
        CardSlice(card=piece.card, share_milli=record.share_milli, memory_mib=record.memory_mib) for piece in old.slices
    )
    for before, after in zip(old.slices, pieces, strict=True):
        card = node.cards[after.card]
        check_growth(card, before, after, request.uid, at)
        card.used_milli += after.share_milli - before.share_milli
        card.used_mib += after.memory_mib - before.memory_mib
        card.residents[request.uid] = after
    node.used_cpu_milli += cpu_milli - old.cpu_milli
    request.placement = Placement(node=old.node, slices=pieces, cpu_milli=cpu_milli, memory_mib=old.memory_mib)
    request.before_resize, request.put_back = None if record.reason else old, record.reason
    node.residents[request.uid] = request.placement
    _charge_anew(state, request, old, at)
    holds.serve(state, node)
    state.touched.append(node.name)


def _charge_anew(state: LedgerState, request: RequestState, old: Placement, at: int) -> None:
    """The new size instead of the old one; only who grows must be within the quota."""
    new, namespace = request.placement or old, request.accepted.namespace
    pairs = list(zip(new.slices, old.slices, strict=True))
    holds.charge(state, namespace, old, -1)
    if any(one.share_milli > was.share_milli or one.memory_mib > was.memory_mib for one, was in pairs):
        check_quota(state, namespace, new, at)
    holds.charge(state, namespace, new)


def observed(state: LedgerState, record: Observed, at: int) -> None:
    """How far its pod has come."""
    request, _ = _holding(state, record.uid, record.phase, at)
    request.phase = record.phase
    request.pod = record.pod or request.pod
    if not request.withdrawn:  # then it says why that was
        request.detail = record.detail


def released(state: LedgerState, record: Released, at: int) -> None:
    """The slice is free: its end was seen."""
    request, placement = _holding(state, record.uid, "release", at)
    if record.requeue and (request.withdrawn or not request.evicted_for):
        raise InvariantBroken(f"{record.uid} is queued again at {at}; nobody asked it to leave")
    node = state.nodes[placement.node]
    del node.residents[request.uid]
    node.used_cpu_milli -= placement.cpu_milli
    node.used_memory_mib -= placement.memory_mib
    for piece in placement.slices:
        _free(state, node, request.uid, piece)
    holds.charge(state, request.accepted.namespace, placement, -1)
    ended(state, request)
    if record.requeue:
        requeued(state, request)
    else:
        request.ending, request.detail = record.evidence, record.detail or request.detail
        _finish(state, request, "ended")
    holds.serve(state, node)
    state.touched.append(node.name, None if node.holds else (request.uid, placement, -1))
    forget_if_gone(state, node)


def _free(state: LedgerState, node: NodeState, uid: RequestUid, piece: CardSlice) -> None:
    card = node.cards[piece.card]
    del card.residents[uid]
    card.used_milli -= piece.share_milli
    card.used_mib -= piece.memory_mib
    if not card.present and not card.residents:
        drop_card(state, node, piece.card)
        state.touched.append(node.name)


def _finish(state: LedgerState, request: RequestState, phase: Phase) -> None:
    uid, key = request.uid, request.key
    request.phase = phase
    del state.requests[uid]
    state.pending.pop(uid, None)
    del state.by_key[key]
    if phase == "withdrawn":
        state.totals.withdrawn += 1
    else:
        state.totals.ended += 1
    state.recent[uid] = request
    state.recent_by_key[key] = uid
    if len(state.recent) >= RECENT_LIMIT + RECENT_SLACK:
        _forget_oldest(state)


def _forget_oldest(state: LedgerState) -> None:
    for uid in list(islice(state.recent, RECENT_SLACK)):
        key = state.recent.pop(uid).key
        if state.recent_by_key[key] == uid:
            del state.recent_by_key[key]
