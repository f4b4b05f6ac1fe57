"""Over all nodes: a place for a request once others have left, proved before anybody is told to.

In: a state that nobody changes meanwhile, the requests of one unit (one, or a gang), whether lower ones may be asked.
Out: a `Nominated` for each, or None. What is free soon, because somebody is leaving already, is taken before anybody is
asked; so the same search finds a place behind a pod that terminates, for requests that may ask nobody.

The best place by numbers (`places`) is proved (`proof`), then the next one. A gang is tried member by member on a copy
of the state in which the earlier members have their nominations (`trial`); if one finds no place, none is nominated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from bus.ledger.state import LedgerState, NodeState, RequestState
from contracts.decisions import Nominated
from contracts.priorities import may_preempt, priority_of
from contracts.units import RequestUid
from scheduler.core.queue.loads import Loads, NodeLoad, load_of
from scheduler.core.queue.places import Asking, Place, cost_of, no_better, promising
from scheduler.core.queue.proof import emptied, fits_after, placement_on
from scheduler.core.queue.teams import Teams, team_key
from scheduler.core.queue.trial import Trial
from scheduler.core.queue.victims import on_node
from scheduler.core.reasons import node_reason
from scheduler.core.request import Shape, shape_for

TRIES = 8
"""Places that look right by their numbers and turn out not to be, after which a request waits for something else."""


class Search:
    """Looks for places in one state.

    Args:
        state: read only.
        loads: kept for it.
        teams: kept for it.
    """

    def __init__(self, state: LedgerState, loads: Loads, teams: Teams) -> None:
        self.state = state
        self.loads = loads
        self.teams = teams
        self._possible: dict[Shape, dict[str, tuple[object, object, int, bool]]] = {}

    def nominate(
        self, unit: Sequence[RequestState], nodes: Iterable[str], *, asking: bool = True
    ) -> list[Nominated] | None:
        """Places for all of the unit.

        Args:
            unit: requests that are nominated together.
            nodes: to look at.
            asking: lower priorities may be asked to leave, by those whose class allows it.
        """
        self.loads.sync()
        names = list(nodes)
        if len(unit) == 1:
            found = self._one(self.state, unit[0], self.loads.of(names), asking=asking)
            return [found] if found is not None else None
        return self._gang(unit, names, asking=asking)

    def _gang(self, unit: Sequence[RequestState], names: list[str], *, asking: bool) -> list[Nominated] | None:
        trial = Trial(self.state)
        found: list[Nominated] = []
        for member in sorted(unit, key=_hardest_first):
            loads = (self._load(trial, name) for name in names if name in self.state.nodes)
            record = self._one(trial.state, trial.state.requests[member.uid], loads, asking=asking)
            if record is None:
                return None
            trial.fold(record)
            found.append(record)
        return found

    def _load(self, trial: Trial, name: str) -> NodeLoad:
        if name in trial.changed:
            return load_of(trial.state, trial.state.nodes[name])
        return next(self.loads.of((name,)))

    def _one(
        self, state: LedgerState, request: RequestState, loads: Iterable[NodeLoad], *, asking: bool
    ) -> Nominated | None:
        shape = shape_for(request)
        priority = priority_of(request.request) if asking and may_preempt(request.request) else None
        known = sorted(loads, key=promising)
        failed: set[str] = set()
        asked = Asking(state, self.teams, priority, team_key(request))
        for _ in range(TRIES):
            place = self._best(asked, shape, known, failed)
            if place is None:
                return None
            record = _record(state, request, shape, place)
            if fits_after(state, shape, record, record.victims):
                return record
            failed.add(place.node)
        return None

    def _best(self, asking: Asking, shape: Shape, loads: Sequence[NodeLoad], failed: Collection[str]) -> Place | None:
        state = asking.state
        best: Place | None = None
        for load in loads:
            if load.name in failed or (best is not None and no_better(load, shape, best)):
                continue
            if not self.possible(shape, state.nodes[load.name]):
                continue
            choice = on_node(load, shape, asking.priority, asking.of)
            if choice is None:
                continue
            cost = cost_of(state, load, choice)
            if best is None or cost < best.cost:
                best = Place(cost, load.name, choice)
        return best

    def possible(self, shape: Shape, node: NodeState) -> bool:
        """Whether the node would take it if none of ours were there; remembered while its facts and cards are equal."""
        if not node.fresh:
            return False
        known = self._possible.setdefault(shape, {}).get(node.name)
        usable = sum(card.usable for card in node.cards.values())
        if known is not None and known[0] is node.facts and known[1] is node.inventory and known[2] == usable:
            return known[3]
        possible = node_reason(shape, emptied(node, lambda _: False), {}) is None
        self._possible[shape][node.name] = (node.facts, node.inventory, usable, possible)
        return possible


def _record(state: LedgerState, request: RequestState, shape: Shape, place: Place) -> Nominated:
    return Nominated(
        uid=request.uid,
        placement=placement_on(state.nodes[place.node], shape, place.choice.cards),
        victims=place.choice.victims,
        why="preempts" if place.choice.victims else "ending",
    )


def _hardest_first(member: RequestState) -> tuple[int, int, int, int, int, RequestUid]:
    shape = shape_for(member)
    ask = (-shape.cards, -shape.share_milli, -(shape.memory_mib or 0), -shape.cpu_milli)
    return (*ask, len(member.uid), member.uid)
