"""Over all nodes: a place for a request once others have left, proved before anybody is told to.

In: a state that nobody changes meanwhile, the requests of one unit (one, or a gang), whether lower ones may be asked.
Out: a `Nominated` for each, or None. What is free soon, because somebody is leaving already, is taken before anybody is
asked; so the same search finds a place behind a pod that terminates, for requests that may ask nobody.

The order of places, smallest first:

    1. the fewest who must leave
    2. the lowest of the highest priorities among them
    3. the latest decision: of the one among them that has run longest
    4. the least work lost: thousandths of cards x milliseconds since they began
    5. the latest acceptances (commit and index, which the uids end in); then the tie rank and name of the node

Proof: the place found by numbers is asked of the rules of feasibility themselves, on a copy of the node without those
who leave and with no other cards than the chosen ones. A gang is tried member by member on a copy of the state in which
the earlier members have their nominations; if one finds no place, none is nominated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy

import msgspec

from bus.ledger.fold import apply_record
from bus.ledger.snapshot import copy_node
from bus.ledger.state import CardState, LedgerState, NodeState, RequestState
from contracts.decisions import CardSlice, Nominated, Placement, Reserved
from contracts.priorities import may_preempt, priority_of
from contracts.units import CardUuid, NodeName, RequestUid
from scheduler.core.queue.loads import Asked, Loads, NodeLoad, lingers, load_of
from scheduler.core.queue.order import acceptance
from scheduler.core.queue.teams import Teams
from scheduler.core.queue.victims import Choice, on_node
from scheduler.core.reasons import node_reason
from scheduler.core.request import Shape, memory_on, shape_for

Cost = tuple[int, int, int, int, tuple[tuple[int, int], ...], str, str]
NEVER = -(1 << 62)
NOBODY_STAYS: Asked = (1 << 62, 0, (0, 0))
NOBODY = RequestUid("")
TRIES = 8
"""Places that look right by their numbers and turn out not to be, after which a request waits for something else."""


class Place(msgspec.Struct, frozen=True):
    """Where, and who leaves."""

    cost: Cost
    node: str
    choice: Choice


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
        known = sorted(loads, key=_promising)
        failed: set[str] = set()
        for _ in range(TRIES):
            place = self._best(state, shape, priority, known, failed)
            if place is None:
                return None
            record = _record(state, request, shape, place)
            if fits_after(state, shape, record, record.victims):
                return record
            failed.add(place.node)
        return None

    def _best(
        self, state: LedgerState, shape: Shape, priority: int | None, loads: list[NodeLoad], failed: set[str]
    ) -> Place | None:
        companions = Asking(state, self.teams, priority)
        best: Place | None = None
        for load in loads:
            if load.name in failed or (best is not None and _no_better(load, shape, best)):
                continue
            if not self.possible(shape, state.nodes[load.name]):
                continue
            choice = on_node(load, shape, priority, companions.of)
            if choice is None:
                continue
            cost = _cost(state, load, choice)
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


class Asking:
    """Who may be asked to leave, with whom."""

    def __init__(self, state: LedgerState, teams: Teams, priority: int | None) -> None:
        self.state = state
        self.teams = teams
        self.priority = NEVER if priority is None else priority

    def of(self, uid: RequestUid) -> tuple[RequestUid, ...] | None:
        """All who leave with it; None when one of them may not be asked."""
        victim = self.state.requests[uid]
        if victim.request.gang is None:
            return (uid,)
        together = self.teams.companions(victim)
        others = (self.state.requests[each] for each in together)
        if any(other.leaving or priority_of(other.request) >= self.priority for other in others):
            return None
        return together


def _promising(load: NodeLoad) -> tuple[bool, Asked]:
    """Nodes in the order in which they may hold the best place: most others need no second look then."""
    return (not load.going, load.first or NOBODY_STAYS)


def _no_better(load: NodeLoad, shape: Shape, best: Place) -> bool:
    """Whether the node cannot have a better place than the best so far.

    A card that has not enough room needs one victim, or two when even its largest tenant would not do; and no set of
    victims can be better than the first who would be asked here.
    """
    if load.first is None:
        return False
    roomy = sum(card.milli >= shape.share_milli for card in load.cards)
    each = 2 if load.single_milli < shape.share_milli else 1
    fewest = max(0, shape.cards - roomy) * each
    return fewest > 0 and (fewest, load.first[0], load.first[1]) > best.cost[:3]


def _cost(state: LedgerState, load: NodeLoad, choice: Choice) -> Cost:
    leaving = [state.requests[uid] for uid in choice.victims]
    return (
        len(leaving),
        max((priority_of(r.request) for r in leaving), default=NEVER),
        -min((r.decided_at for r in leaving), default=0),
        sum(lost_work(r, state.clock_ms) for r in leaving),
        tuple(sorted((-commit, -index) for commit, index in map(acceptance, choice.victims))),
        load.tie,
        load.name,
    )


def lost_work(request: RequestState, now_ms: int) -> int:
    """Thousandths of cards x milliseconds since it began; 0 when its beginning is not known."""
    pieces = request.placement.slices if request.placement is not None else ()
    began = request.started_ms
    return sum(piece.share_milli for piece in pieces) * (max(0, now_ms - began) if began else 0)


def _record(state: LedgerState, request: RequestState, shape: Shape, place: Place) -> Nominated:
    return Nominated(
        uid=request.uid,
        placement=placement_on(state.nodes[place.node], shape, place.choice.cards),
        victims=place.choice.victims,
        why="preempts" if place.choice.victims else "ending",
    )


def placement_on(node: NodeState, shape: Shape, cards: Iterable[str]) -> Placement:
    """The placement of a shape on these cards of a node."""
    chosen = [node.cards[uuid] for uuid in cards]
    return Placement(
        node=NodeName(node.name),
        slices=tuple(
            CardSlice(
                card=CardUuid(card.card.uuid),
                share_milli=shape.share_milli,
                memory_mib=memory_on(card.capacity_mib, shape, known=card.card.memory_total_mib is not None),
            )
            for card in chosen
        ),
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.host_memory_mib,
    )


# --- proof -----------------------------------------------------------------------------------------------------------


def fits_after(state: LedgerState, shape: Shape, record: Nominated, gone: Iterable[RequestUid]) -> bool:
    """Whether the rules take it on exactly these cards when these, and whoever leaves anyway, are gone."""
    node = state.nodes[record.placement.node]
    leaving = (uid for uid in node.residents if (r := state.requests[uid]).leaving and not lingers(r, state.clock_ms))
    going = {*leaving, *gone}
    bare = emptied(node, lambda uid: uid not in going)
    seat_nominated(state, node, bare)
    only_cards(bare, record.placement)
    return node_reason(shape, bare, state.requests) is None


def only_cards(node: NodeState, placement: Placement) -> None:
    """Leave the node no other cards than those of the placement."""
    chosen = {piece.card for piece in placement.slices}
    node.cards = {uuid: card for uuid, card in node.cards.items() if not chosen or uuid in chosen}


def emptied(node: NodeState, stays: Callable[[RequestUid], bool]) -> NodeState:
    """A copy of the node with those residents who stay, and nothing held for anybody."""
    bare = copy(node)
    bare.residents, bare.holds, bare.used_cpu_milli, bare.used_memory_mib = {}, {}, 0, 0
    bare.cards = {uuid: _bare_card(card) for uuid, card in node.cards.items()}
    for uid, placement in node.residents.items():
        if stays(uid):
            _seat(bare, uid, placement)
    return bare


def _bare_card(card: CardState) -> CardState:
    bare = copy(card)
    bare.used_milli, bare.used_mib, bare.residents = 0, 0, {}
    return bare


def _seat(node: NodeState, uid: RequestUid, placement: Placement) -> None:
    node.residents[uid] = placement
    node.used_cpu_milli += placement.cpu_milli
    node.used_memory_mib += placement.memory_mib
    for piece in placement.slices:
        card = node.cards[piece.card]
        card.residents[uid] = piece
        card.used_milli += piece.share_milli
        card.used_mib += piece.memory_mib


def seat_nominated(state: LedgerState, node: NodeState, bare: NodeState, but: RequestUid = NOBODY) -> None:
    """On a copy of a node, let all who are nominated there have their places, but one."""
    for uid in node.holds:
        other = state.nominated[uid].nomination
        if other is not None and uid != but:
            _seat(bare, uid, other.placement)


# --- a trial ---------------------------------------------------------------------------------------------------------


class Trial:
    """A state that shares everything with the real one but what nominations and their fulfilment change."""

    def __init__(self, state: LedgerState) -> None:
        self.state = copy(state)
        self.state.nodes, self.state.requests = dict(state.nodes), dict(state.requests)
        self.state.pending, self.state.nominated = dict(state.pending), dict(state.nominated)
        self.state.began, self.state.quotas = list(state.began), {}  # quotas are compared for the whole unit
        self.state.usage = {namespace: copy(use) for namespace, use in state.usage.items()}
        self.state.touched = copy(state.touched)
        self.state.touched.names = []
        self.changed: set[str] = set()

    def fold(self, record: Nominated | Reserved) -> None:
        """The record, on copies of what it changes."""
        state, name = self.state, record.placement.node
        victims = record.victims if isinstance(record, Nominated) else ()
        for uid in (record.uid, *victims):
            state.requests[uid] = copy(state.requests[uid])
            for waiting in (state.pending, state.nominated):
                if uid in waiting:
                    waiting[uid] = state.requests[uid]
        self._own(name)
        for uid in victims:
            placement = state.requests[uid].placement
            if placement is not None:
                self._own(placement.node)
        apply_record(state, record, state.sequence + 1)

    def _own(self, name: str) -> None:
        if name not in self.changed:
            self.state.nodes[name] = copy_node(self.state.nodes[name])
            self.changed.add(name)
            for uid in self.state.nodes[name].holds:
                held = self.state.nominated[uid] = copy(self.state.nominated[uid])
                self.state.requests[uid] = self.state.pending[uid] = held


def _hardest_first(member: RequestState) -> tuple[int, int, int, int, int, RequestUid]:
    shape = shape_for(member)
    ask = (-shape.cards, -shape.share_milli, -(shape.memory_mib or 0), -shape.cpu_milli)
    return (*ask, len(member.uid), member.uid)
