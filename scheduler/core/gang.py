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
from scheduler.core.decide import Placed, Unplaced, able, place, why_not
from scheduler.core.policies import DEFAULT_POLICY, Policy, policy_for
from scheduler.core.ranking import Rankings
from scheduler.core.request import shape_for
from scheduler.core.terms import asker_of
from scheduler.core.together import Ground, Within, narrowed, no_ground, same_domain, within_of
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
    ordered = sorted(members, key=_hardest_first)
    within = within_of(members)
    if within is None:
        return _attempt(state, ordered, policy, rankings)
    best: Unplaced | None = None
    for ground in _grounds(state, within, ordered, policy, rankings):
        found = _attempt(state, ordered, policy, rankings, ground)
        if isinstance(found, list):
            return found
        best = found if best is None or _came(found) > _came(best) else best
    if best is not None:
        return best
    gang = ordered[0].request.gang
    shapes = [shape_for(member) for member in ordered]
    reason = no_ground(within, gang.name if gang is not None else "", shapes, rankings.views)
    return Unplaced(uid=ordered[0].uid, reasons=(reason,))


def _attempt(
    state: LedgerState,
    ordered: Sequence[RequestState],
    policy: Policy,
    rankings: Rankings,
    ground: Ground | None = None,
) -> list[Placed] | Unplaced:
    """All of them in this order, on this ground; or the one that found no room, and why."""
    placed: list[Placed] = []
    only = ground.nodes if ground is not None else None
    with _trial(state, ordered, rankings, ground) as scratch:
        for member in ordered:
            shape, asker = shape_for(member), asker_of(member)
            own = policy_for(shape, policy)
            found = place(member.uid, shape, own, rankings, asker, only=only)
            if found is None:
                reasons = why_not(scratch, shape, own, rankings, asker) if ground is None else ()
                return Unplaced(uid=member.uid, reasons=(_how_far(member, placed, ordered, ground), *reasons))
            _fold(scratch, state, found, rankings, ground)
            placed.append(found)
    return placed


def _grounds(
    state: LedgerState, within: Within, ordered: Sequence[RequestState], policy: Policy, rankings: Rankings
) -> Iterator[Ground]:
    """Where they may stand, best first; beside the members that stand already."""
    key, shapes = gang_key(ordered[0]), [shape_for(member) for member in ordered]
    first, _ = able(shapes[0], policy_for(shapes[0], policy), rankings)
    ranking = rankings.ranked(shapes[0], first)
    order = [rankings.read(place)[0] for place in ranking.order]
    seated = [
        r.placement
        for r in state.requests.values()
        if r.accepted.request.gang is not None and r.placement is not None and gang_key(r) == key
    ]
    return same_domain(within, shapes, rankings.views, order, seated)


def _came(refused: Unplaced) -> int:
    return refused.reasons[0].free or 0


@contextmanager
def _trial(
    state: LedgerState, members: Sequence[RequestState], rankings: Rankings, ground: Ground | None = None
) -> Iterator[LedgerState]:
    """A scratch state; the rankings follow it inside, and the real one afterwards."""
    scratch = LedgerState(pool=state.pool, epoch=state.epoch, sequence=state.sequence)
    scratch.nodes, scratch.requests = dict(state.nodes), dict(state.requests)
    for member in members:
        scratch.requests[member.uid] = scratch.pending[member.uid] = copy(member)
    narrow = ground.nodes if ground is not None and ground.group is not None else ()
    for name in narrow:
        _show(state, name, rankings, ground)
    try:
        yield scratch
    finally:
        for name in dict.fromkeys((*narrow, *scratch.touched[0:])):
            _show(state, name, rankings)


def _show(state: LedgerState, name: str, rankings: Rankings, ground: Ground | None = None) -> None:
    """The rankings see this node of this state, as far as the ground goes."""
    view = view_of(state.nodes[name], state.requests)
    rankings.put(view if ground is None else narrowed(view, ground))


def _fold(scratch: LedgerState, state: LedgerState, placed: Placed, rankings: Rankings, ground: Ground | None) -> None:
    name = placed.placement.node
    if scratch.nodes[name] is state.nodes[name]:
        scratch.nodes[name] = _copied(state.nodes[name])
    apply_record(scratch, placed.record(), state.sequence + 1)
    _show(scratch, name, rankings, ground)


def _copied(node: NodeState) -> NodeState:
    """Independent as far as a placement changes it."""
    new = copy(node)
    new.residents, new.cards = dict(node.residents), {}
    for uuid, card in node.cards.items():
        new.cards[uuid] = copy(card)
        new.cards[uuid].residents = dict(card.residents)
    return new


def _hardest_first(member: RequestState) -> tuple[int, int, int, int, int, int, RequestUid]:
    shape = shape_for(member)
    return (
        -shape.cards,
        -shape.share_milli,
        -(shape.memory_mib or 0),
        -shape.cpu_milli,
        -shape.host_memory_mib,
        len(member.uid),
        member.uid,
    )


def gang_key(request: RequestState) -> tuple[str, str] | None:
    """Namespace and name of its gang."""
    gang = request.request.gang
    return (request.accepted.namespace, gang.name) if gang else None


def _how_far(
    member: RequestState, placed: list[Placed], members: Sequence[RequestState], ground: Ground | None
) -> Reason:
    gang = member.request.gang.name if member.request.gang else member.request.name
    where = f" on {ground.name}, which came closest" if ground is not None else ""
    text = f"gang {gang}: {len(placed)} of {len(members)} members fit together{where}, {member.request.name} does not"
    return Reason(code="gang", text=text, needed=len(members), free=len(placed), unit="members")
