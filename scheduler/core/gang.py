"""A gang: all members are placed, or none is, and the state is as it was either way.

In: the state, the members that have arrived, the default policy, the rankings kept for this state. Out: one `Placed`
for each member, in the order in which they must be folded, or one `Unplaced` for the first member that found no room.

The trial is a scratch state: it shares every node with the real one until a member lands there; that node is copied,
the member's record is folded into the copy, and the rankings see the copy. What the fold would refuse, the trial
refuses. At the end the rankings see the real nodes again; the caller folds the records, in one commit.

Order of members: most cards first, then largest share, memory, CPU, host memory, then acceptance (uid): what is hard to
place goes while there is room. It is a greedy search: a gang may be refused that a search over all orders would place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy

from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState, NodeState, RequestState
from contracts.outcomes import Reason
from contracts.units import RequestUid
from scheduler.core.decide import Placed, Unplaced, place
from scheduler.core.policies import DEFAULT_POLICY, Policy, policy_for
from scheduler.core.ranking import Rankings
from scheduler.core.reasons import reasons_against
from scheduler.core.request import shape_of
from scheduler.core.view import view_of


def place_gang(
    state: LedgerState,
    members: Sequence[RequestState],
    policy: Policy = DEFAULT_POLICY,
    rankings: Rankings | None = None,
) -> list[Placed] | Unplaced:
    """Places for all members together, in folding order; or why not.

    Raises:
        UnknownPolicy: a member names a policy that is not in the table.
    """
    rankings = rankings or Rankings()
    rankings.sync(state)
    placed: list[Placed] = []
    with _trial(state, members, rankings) as scratch:
        for member in sorted(members, key=_hardest_first):
            shape = shape_of(member.request)
            found = place(member.uid, shape, policy_for(shape, policy), rankings)
            if found is None:
                reasons = reasons_against(shape, scratch.nodes, scratch.requests)
                return Unplaced(uid=member.uid, reasons=(_how_far(member, placed, members), *reasons))
            _fold(scratch, state, found, rankings)
            placed.append(found)
    return placed


@contextmanager
def _trial(state: LedgerState, members: Sequence[RequestState], rankings: Rankings) -> Iterator[LedgerState]:
    """A scratch state; the rankings follow it inside, and the real one afterwards."""
    scratch = LedgerState(pool=state.pool, epoch=state.epoch, sequence=state.sequence)
    scratch.nodes, scratch.requests = dict(state.nodes), dict(state.requests)
    for member in members:
        scratch.requests[member.uid] = scratch.pending[member.uid] = copy(member)
    try:
        yield scratch
    finally:
        for name in dict.fromkeys(scratch.touched[0:]):
            rankings.put(view_of(state.nodes[name], state.requests))


def _fold(scratch: LedgerState, state: LedgerState, placed: Placed, rankings: Rankings) -> None:
    name = placed.placement.node
    if scratch.nodes[name] is state.nodes[name]:
        scratch.nodes[name] = _copied(state.nodes[name])
    apply_record(scratch, placed.record(), state.sequence + 1)
    rankings.put(view_of(scratch.nodes[name], scratch.requests))


def _copied(node: NodeState) -> NodeState:
    """Independent as far as a placement changes it."""
    new = copy(node)
    new.residents, new.cards = dict(node.residents), {}
    for uuid, card in node.cards.items():
        new.cards[uuid] = copy(card)
        new.cards[uuid].residents = dict(card.residents)
    return new


def _hardest_first(member: RequestState) -> tuple[int, int, int, int, int, int, RequestUid]:
    shape = shape_of(member.request)
    return (
        -shape.cards,
        -shape.share_milli,
        -(shape.memory_mib or 0),
        -shape.cpu_milli,
        -shape.host_memory_mib,
        len(member.uid),
        member.uid,
    )


def gang_reasons(
    state: LedgerState,
    request: RequestState,
    policy: Policy = DEFAULT_POLICY,
    rankings: Rankings | None = None,
) -> tuple[Reason, ...]:
    """Why a pending member of a gang waits although it would fit alone; nothing for a request without a gang."""
    gang = request.request.gang
    if gang is None:
        return ()
    key = (request.accepted.namespace, gang.name)
    members = [other for other in state.pending.values() if gang_key(other) == key]
    if len(members) < gang.size:
        text = f"gang {gang.name}: {len(members)} of {gang.size} members have arrived"
        return (Reason(code="gang", text=text, needed=gang.size, free=len(members), unit="members"),)
    decision = place_gang(state, members, policy, rankings)
    return decision.reasons if isinstance(decision, Unplaced) else ()


def gang_key(request: RequestState) -> tuple[str, str] | None:
    """Namespace and name of its gang."""
    gang = request.request.gang
    return (request.accepted.namespace, gang.name) if gang else None


def _how_far(member: RequestState, placed: list[Placed], members: Sequence[RequestState]) -> Reason:
    gang = member.request.gang.name if member.request.gang else member.request.name
    text = f"gang {gang}: {len(placed)} of {len(members)} members fit together, {member.request.name} does not"
    return Reason(code="gang", text=text, needed=len(members), free=len(placed), unit="members")
