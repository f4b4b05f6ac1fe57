"""Those who have a place in sight, at the beginning of a turn: given it, or sent back to the queue.

In: a desk with nominated requests. Out: their decisions, or the ends of their nominations; `nominees` tells which. The
members of a gang that has not begun get all of their places or none, and wait for them only while they are enough for
it to begin.
"""

from __future__ import annotations

from bus.ledger.holds import complete
from bus.ledger.state import RequestState
from contracts.decisions import Reserved
from contracts.units import RequestUid
from scheduler.core.queue import nominees
from scheduler.core.queue.desk import Desk
from scheduler.core.queue.teams import TeamKey, team_key
from scheduler.core.queue.trial import Trial


def settle(desk: Desk) -> None:
    """Places that are free are taken; those that never will be are given up."""
    for unit in _units(desk):
        if desk.full():
            return
        found = _fulfilled(desk, unit)
        if (why := _in_vain(desk, unit, found)) != "":
            for request in unit:
                desk.end(request, why)
            continue
        for record in found:
            desk.place(desk.state.pending[record.uid], record)
        key = team_key(unit[0])
        if found and key is not None:
            desk.gangs_awake[key] = None  # members that came later join now, before everybody else of their level


def _units(desk: Desk) -> list[list[RequestState]]:
    units: dict[TeamKey | RequestUid, list[RequestState]] = {}
    for request in desk.state.nominated.values():
        key = team_key(request)
        together = key is not None and desk.teams.lacking(key) > 0
        units.setdefault(key if key is not None and together else request.uid, []).append(request)
    return [sorted(unit, key=lambda r: (len(r.uid), r.uid)) for unit in units.values()]


def _in_vain(desk: Desk, unit: list[RequestState], found: list[Reserved]) -> str:
    """Why none of the unit is to wait any longer; empty when it is."""
    if (key := team_key(unit[0])) is not None and len(unit) < (lacking := desk.teams.lacking(key)):
        return f"gang {key[1]} needs {lacking} members to begin and {len(unit)} have places in sight"
    reasons = (why for request in unit if (why := nominees.in_vain(desk.state, request)))
    if (first := next(reasons, "")) or found or not all(map(complete, unit)):
        return first
    places = {r.nomination.placement.node for r in unit if r.nomination is not None}
    idle = [nominees.nobody_leaves(desk.state, desk.state.nodes[name]) for name in sorted(places)]
    return "its places are free, and not all of them can be taken" if all(idle) else ""


def _fulfilled(desk: Desk, unit: list[RequestState]) -> list[Reserved]:
    """The decisions of all of the unit, each with the earlier ones in place; or none."""
    if not all(map(complete, unit)):
        return []
    trial, found = Trial(desk.state), list[Reserved]()
    for request in unit:
        record = nominees.fulfilment(trial.state, trial.state.requests[request.uid], desk.policy)
        if record is None:
            return []
        if len(unit) > 1:
            trial.fold(record)
        found.append(record)
    return found
