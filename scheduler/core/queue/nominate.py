"""Over all nodes: a place for a request once others have left, proved before anybody is told to.

In: a state that nobody changes meanwhile, the requests of one unit (one, or a gang), whether lower ones may be asked.
Out: a `Nominated` for each, or None. What is free soon, because somebody is leaving already, is taken before anybody is
asked; so the same search finds a place behind a pod that terminates, for requests that may ask nobody.

The best place by numbers (`places`) is proved (`proof`), then the next one, until there is none: so what is found
depends on the state alone and not on where was looked before, and a replay finds it again (`renominate`). A gang is
tried member by member on a copy of the state in which the earlier members have their nominations (`trial`); if one
finds no place, none is nominated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bus.ledger.state import LedgerState, NodeState, RequestState
from contracts.decisions import Nominated
from contracts.priorities import may_preempt, priority_of
from contracts.units import RequestUid
from scheduler.core.feasibility import card_reasons, node_reasons
from scheduler.core.locality import EMPTY
from scheduler.core.queue.loads import Loads, NodeLoad, load_of
from scheduler.core.queue.places import Asking, Place, cost_of, no_better, promising
from scheduler.core.queue.proof import emptied, fits_after, placement_on
from scheduler.core.queue.teams import Teams, team_key
from scheduler.core.queue.trial import Trial
from scheduler.core.queue.victims import on_node
from scheduler.core.reasons import node_reason
from scheduler.core.request import Shape, shape_for

VERSION = 1
"""Of the rules by which places are chosen. A change that chooses otherwise gets a new one: a replay passes over
nominations of another version, as it does over decisions of another version of a policy."""


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
        self._possible: dict[Shape, dict[str, tuple[object, object, int, frozenset[str] | None]]] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        """One of each: all shapes that may take any card of a node share one set of them."""

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
        asked = Asking(state, self.teams, priority, team_key(request))
        best = self._best(asked, shape, known)
        if best is None or (record := proved(state, request, shape, best)) is not None:
            return record if best is not None else None
        others = (self.place_on(asked, shape, load) for load in known if load.name != best.node)
        rest = sorted((place for place in others if place is not None), key=lambda place: place.cost)
        return next((record for place in rest if (record := proved(state, request, shape, place))), None)

    def _best(self, asking: Asking, shape: Shape, loads: Sequence[NodeLoad]) -> Place | None:
        best: Place | None = None
        for load in loads:
            if best is not None and no_better(load, shape, best):
                continue
            place = self.place_on(asking, shape, load)
            if place is not None and (best is None or place.cost < best.cost):
                best = place
        return best

    def place_on(self, asking: Asking, shape: Shape, load: NodeLoad) -> Place | None:
        """The place that this node has for the shape, by numbers."""
        cards = self.possible(shape, asking.state.nodes[load.name])
        choice = on_node(load, cards, shape, asking.priority, asking.of) if cards is not None else None
        return None if choice is None else Place(cost_of(asking.state, load, choice), load.name, choice)

    def possible(self, shape: Shape, node: NodeState) -> frozenset[str] | None:
        """The cards that would take it if none of ours were there; None where the node would not.

        Remembered while the facts and the cards of the node are equal.
        """
        if not node.fresh:
            return None
        known = self._possible.setdefault(shape, {}).get(node.name)
        usable = sum(card.usable for card in node.cards.values())
        if known is not None and known[0] is node.facts and known[1] is node.inventory and known[2] == usable:
            return known[3]
        possible = _open_when_empty(shape, emptied(node, lambda _: False))
        if possible is not None:
            possible = self._sets.setdefault(possible, possible)
        self._possible[shape][node.name] = (node.facts, node.inventory, usable, possible)
        return possible


def _open_when_empty(shape: Shape, bare: NodeState) -> frozenset[str] | None:
    if node_reasons(shape, bare):
        return None
    cards = (card for card in bare.cards.values() if not card_reasons(shape, bare, card, EMPTY)) if shape.cards else ()
    found = frozenset(card.card.uuid for card in cards)
    together = shape.cards < 2 or node_reason(shape, bare, {}) is None  # noqa: PLR2004 - one card has no other beside it
    return found if len(found) >= shape.cards and together else None


def proved(state: LedgerState, request: RequestState, shape: Shape, place: Place) -> Nominated | None:
    """The nomination for a place, if the rules of feasibility take the request there; None when they do not."""
    record = Nominated(
        uid=request.uid,
        placement=placement_on(state.nodes[place.node], shape, place.choice.cards),
        victims=place.choice.victims,
        why="preempts" if place.choice.victims else "ending",
        version=VERSION,
    )
    return record if fits_after(state, shape, record, record.victims) else None


def _hardest_first(member: RequestState) -> tuple[int, int, int, int, int, RequestUid]:
    shape = shape_for(member)
    ask = (-shape.cards, -shape.share_milli, -(shape.memory_mib or 0), -shape.cpu_milli)
    return (*ask, len(member.uid), member.uid)
