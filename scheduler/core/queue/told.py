"""Where a request stands in the queue, in numbers, for people.

In: a state, a pending request. Out: its position and what that rests on; and what the queue itself holds against it:
a quota, a gang that is not complete, a place that others have not left yet. What the nodes hold against it is told by
`scheduler.core.reasons`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from bus.ledger.state import LedgerState, RequestState
from contracts.answers import Explanation, QueueView
from contracts.decisions import Reserved
from contracts.outcomes import Reason
from contracts.priorities import priority_of
from scheduler.core.queue import nominees, quota
from scheduler.core.queue.fair import Fairness, capacity_of, weight_of
from scheduler.core.queue.order import Age, age, aged, level, waited_ms
from scheduler.core.queue.teams import Teams, team_key

HOLDERS_SHOWN = 8

NEXT_IN_TURN = (Reason(code="queued", text="it would fit; it is tried with the next change", unit=""),)
"""Nothing is against it at this moment, and the queue has more to do (`unfinished`): it came after the last turn, the
commit was full, or other members of its gang are in this commit. At rest nobody is told this."""


def reasons(state: LedgerState, request: RequestState) -> tuple[Reason, ...]:
    """What the queue holds against it; the decisive one first."""
    found = [nominees.reason(state, request)]
    if request.nomination is None:
        found.append(_quota(state, request))
    return tuple(one for one in found if one is not None)


def _quota(state: LedgerState, request: RequestState) -> Reason | None:
    key = team_key(request)
    unit = [request] if key is None else [other for other in state.pending.values() if team_key(other) == key]
    over = quota.held_back(state, unit)
    return quota.reason(over) if over is not None else None


def beyond(state: LedgerState, request: RequestState, found: Sequence[Reserved]) -> tuple[Reason, ...]:
    """What holds back a unit that would have its places: memory beyond a quota, which depends on the cards."""
    over = quota.beyond(state, request.accepted.namespace, [each.placement for each in found]) if found else None
    return (quota.reason(over),) if over is not None else ()


def in_queue(state: LedgerState, request: RequestState, told: Explanation) -> Explanation:
    """The answer to "why does it wait?" with what the queue knows, before what the nodes say."""
    own = reasons(state, request)
    nodes = tuple(one for one in told.reasons if request.nomination is None)
    closest = next((one for one in nodes if one.node), None)
    return replace(told, reasons=(*own, *nodes), queue=standing(state, request, closest))


def standing(state: LedgerState, request: RequestState, closest: Reason | None = None) -> QueueView:
    """Its place in the order at this moment, and who is in its way.

    Args:
        state: read only.
        request: a pending one.
        closest: the reason of the node that came closest: its tenants are in the way of a request that has no place in
            sight.
    """
    fairness, namespace = Fairness(state, capacity_of(state)), request.accepted.namespace
    wanted = request.nomination
    ahead, units = _ahead(state, request, fairness)
    return QueueView(
        position=ahead + 1,
        pending=units,
        priority=priority_of(request.request),
        aged=aged(request, state.clock_ms),
        waited_s=waited_ms(request, state.clock_ms) // 1000,
        share_ppm=fairness.ppm(namespace),
        weight=weight_of(state.quotas, namespace),
        nominated=wanted.placement.node if wanted is not None else "",
        waits_for=tuple(nominees.waits_for(state, request) if wanted is not None else _holders(state, closest))[
            :HOLDERS_SHOWN
        ],
    )


def _ahead(state: LedgerState, request: RequestState, fairness: Fairness) -> tuple[int, int]:
    """How many units go before it now, and how many there are."""
    teams = Teams(state)
    mine, own = _rank(state, request, teams), team_key(request) or request.uid
    ahead: set[object] = set()
    units: set[object] = set()
    for other in state.pending.values():
        unit = team_key(other) or other.uid
        units.add(unit)
        if unit != own and _before(_rank(state, other, teams), mine, other, request, fairness):
            ahead.add(unit)
    return len(ahead), len(units)


Rank = tuple[int, bool, Age]


def _rank(state: LedgerState, request: RequestState, teams: Teams) -> Rank:
    key = team_key(request)
    begun = key is not None and teams.lacking(key) <= 0
    return (-level(request, state.clock_ms), not begun, age(request))


def _before(one: Rank, other: Rank, first: RequestState, second: RequestState, fairness: Fairness) -> bool:
    if one[:2] != other[:2]:
        return one[:2] < other[:2]
    ours, theirs = first.accepted.namespace, second.accepted.namespace
    if fairness.before(ours, theirs):
        return True
    return not fairness.before(theirs, ours) and one[2] < other[2]


def _holders(state: LedgerState, closest: Reason | None) -> list[str]:
    node = state.nodes.get(closest.node) if closest is not None else None
    if closest is None or node is None:
        return []
    card = node.cards.get(closest.card)
    residents = card.residents if card is not None else node.residents
    return sorted(state.requests[uid].key for uid in residents)
