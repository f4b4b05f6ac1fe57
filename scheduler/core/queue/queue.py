"""The queue at work: events in, decisions out, through one `write`.

In: requests that enter and leave, nodes that improved, namespaces that may hold more. Out: records, each folded by
whoever owns the state before `write` returns, so that the next decision sees it.

One turn:
    1. nominated requests get their place, or go back to the queue (`nominees`)
    2. events wake those whom they can help (`waiting`), and these are tried in order (`rounds`)
    3. who may ask others to leave looks for victims (`nominate`); who could follow somebody that is leaving is
       nominated behind it; the first in the queue may have a place kept free (`drain`), and those who will have ended
       by then may use it meanwhile

What is kept here is an index over the state: a queue that is begun anew from the same state decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Nominated, NominationEnded, Record, Reserved
from contracts.messages import Value
from contracts.priorities import may_preempt, priority_of
from contracts.units import RequestUid
from scheduler.core.placer import Placer
from scheduler.core.queue import drain, nominees, quota
from scheduler.core.queue.fair import Capacity, Fairness, capacity_of
from scheduler.core.queue.loads import Loads
from scheduler.core.queue.nominate import Search, Trial, emptied, seat_nominated
from scheduler.core.queue.rounds import Round, Unit
from scheduler.core.queue.teams import TeamKey, Teams, team_key
from scheduler.core.queue.waiting import Kind, Lane, Waiting, kind_of
from scheduler.core.reasons import node_reason
from scheduler.core.request import Shape, shape_for

Same = tuple[Kind, int] | tuple[RequestUid, ...]
"""Units of which the next one fares like the last: of one kind and priority; or a gang with just these members."""

LOOKED_AT = 32
"""Units, in queue order, that are offered what others leave behind, or a place that is kept for a later time."""


class QueueRules(Value, frozen=True, kw_only=True):
    """What an operator may choose."""

    preemption: bool = True
    """Requests of a class that may ask others to leave do so."""
    requeue: bool = True
    """Who had to leave waits again; else that was its end."""


class Queue:
    """The queue of one state.

    Args:
        state: changed by `write` only.
        placer: reads the same state.
        write: folds a record and keeps it for the commit.
        full: whether the commit has no room for more.
        rules: what an operator chose.
        policy: name of the default placement policy.
    """

    def __init__(
        self,
        state: LedgerState,
        placer: Placer,
        write: Callable[[Record], None],
        full: Callable[[], bool],
        *,
        rules: QueueRules,
        policy: str,
    ) -> None:
        self.state = state
        self.placer = placer
        self.rules = rules
        self.policy = policy
        self.teams = Teams(state)
        self.waiting = Waiting()
        self.search = Search(state, Loads(state), self.teams)
        self._write, self._full = write, full
        self._capacity: Capacity | None = None
        self._improved: dict[str, None] = dict.fromkeys(state.nodes)
        self._left_behind: dict[str, None] = {
            r.placement.node: None for r in state.requests.values() if r.placement is not None and r.leaving
        }
        self._gangs_awake: dict[TeamKey, None] = {}
        self._order: Round | None = None
        self._by_card: dict[Kind, None] = {}
        """Kinds that a quota holds because of the card that was chosen for them."""
        self._by_card_at = 0
        self._joined: dict[TeamKey, None] = {}
        self._later: dict[TeamKey, None] = {}
        """Gangs some of whose members are placed in this commit, and others may be in the next: a commit places members
        of one gang together or not at all, so that who decides again knows which were decided together."""
        self._gangs_by_quota: dict[str, dict[TeamKey, None]] = {}
        self._promised = {u: r for u, r in state.requests.items() if r.placement and r.request.expected_s}
        """Placed requests that have told how long they expect to run."""
        self._kept_in_vain: dict[Same, int] = {}
        """The first in the queue, for whom no place could be kept: the position in `touched` at that time."""
        self._stuck: dict[Shape, None] = {}
        """Shapes that found no room in this round."""
        self._contested = False
        """Whether residents kept others away by their labels when the blocked ones were last woken."""
        self._searched: dict[bool, dict[Same, int]] = {True: {}, False: {}}
        """Searches in vain, for victims (True) and for places that are left: the position in `touched` at that time."""
        for request in state.pending.values():
            self.entered(request)

    # --- events ----------------------------------------------------------------------------------------------------

    def entered(self, request: RequestState) -> None:
        """A request waits: a new one, or one that had to leave its place."""
        self.teams.note(request)
        key = team_key(request)
        if key is None:
            self.waiting.add(request)
        else:
            self._gangs_awake[key] = None

    def left(self, request: RequestState) -> None:
        """A waiting request is withdrawn; it is still as it was."""
        if team_key(request) is None:
            self.waiting.remove(request)

    def gone(self, request: RequestState) -> None:
        """It was withdrawn, or released: its gang and its namespace are not what they were."""
        self.teams.note(request)
        key = team_key(request)
        if key in self.teams.queued and key is not None:
            self._gangs_awake[key] = None  # fewer may be needed without it
        self._promised.pop(request.uid, None)
        self.namespace_changed(request.accepted.namespace)

    def improved(self, node: str) -> None:
        """Something is free there that was not, or a rule is no longer against it."""
        self._improved[node] = None

    def cards_changed(self) -> None:
        """There are more or fewer of them."""
        self._capacity = None

    def leaving(self, node: str) -> None:
        """Somebody there has been told to go."""
        self._left_behind[node] = None

    def namespace_changed(self, namespace: str) -> None:
        """It holds less, or its quota is another."""
        self.waiting.namespace_changed(namespace)
        self._gangs_by_quota.pop(namespace, None)
        if self.state.quotas:
            self._gangs_awake.update((key, None) for key in self.teams.queued if key[0] == namespace)

    @property
    def unfinished(self) -> bool:
        """Something could be placed without any further input."""
        return bool(self._to_do or self._later)

    @property
    def _to_do(self) -> bool:
        return bool(self._improved or self.waiting.awake or self._gangs_awake)

    # --- one turn --------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Decide what can be decided now, or until the commit is full."""
        self._gangs_awake.update(self._later)
        self._joined, self._later = {}, {}
        self._ask_cards_again()
        self._settle()
        while self._to_do and not self._full():
            self._wake()
            self._round()
        if not self._full():
            self._look_ahead()

    def _ask_cards_again(self) -> None:
        """Memory that follows the share is within a quota on one card and not on another: any change may help."""
        if self._by_card and self._by_card_at != len(self.state.touched):
            kinds, self._by_card = self._by_card, {}
            for kind in kinds:
                self.waiting.wake(kind)
        self._by_card_at = len(self.state.touched)

    def _wake(self) -> None:
        names, self._improved = list(self._improved), {}
        if not names:
            return
        contested = self.placer.contested
        anyway, self._contested = contested or self._contested, contested
        self.waiting.improved(lambda shape: anyway or self.placer.fits_any(shape, names))
        for key in self.teams.queued:
            shapes = dict.fromkeys(map(shape_for, self.teams.waiting(key)))
            if anyway or any(self.placer.fits_any(shape, names) for shape in shapes):
                self._gangs_awake[key] = None

    def _fairness(self) -> Fairness:
        if self._capacity is None:
            self._capacity = capacity_of(self.state)
        return Fairness(self.state, self._capacity)

    def _ordered(self, lanes: Iterator[Lane], gangs: Iterator[TeamKey]) -> Round:
        order = Round(self.state, self._fairness(), self.teams)
        order.fill(lanes, gangs)
        return order

    def _round(self) -> None:
        gangs = [key for key in self._gangs_awake if self._complete(key)]
        self._gangs_awake = dict.fromkeys(gangs)
        self._stuck = {}
        order = self._order = self._ordered(self.waiting.lanes(), iter(gangs))
        while not self._full() and (unit := order.next(self._passed)) is not None:
            if unit.team is not None:
                self._try_gang(unit.team)
            elif unit.lane is not None and self._try(unit.lane):
                order.again(unit.lane)

    def _passed(self, lane: Lane) -> bool:
        """Its shape found no room a moment ago."""
        if lane.kind.shape not in self._stuck:
            return False
        self.waiting.block(lane.kind)
        return True

    def _complete(self, key: TeamKey) -> bool:
        """Enough members have arrived to begin."""
        members = self.teams.waiting(key)
        return bool(members) and len(members) >= self.teams.lacking(key)

    # --- one request -----------------------------------------------------------------------------------------------

    def _try(self, lane: Lane) -> bool:
        """Place the first of a lane; False when its kind has to wait."""
        request = self.state.pending[lane.uids[0]]
        if request.nomination is None and quota.held_back(self.state, (request,)) is not None:
            self.waiting.hold(lane.kind)
            return False
        found = self.placer.place(request)
        if found is not None and request.nomination is not None:
            self._end(request, "it fits without waiting")
            found = self.placer.place(request)
        if found is None:
            if not self.placer.contested:
                self._stuck[lane.kind.shape] = None
            self.waiting.block(lane.kind)
            return False
        if quota.beyond(self.state, request.accepted.namespace, (found.placement,)) is not None:
            self.waiting.hold(lane.kind)
            self._by_card[lane.kind] = None
            return False
        self._place(request, found)
        return True

    def _place(self, request: RequestState, found: Reserved) -> None:
        if team_key(request) is None:
            self.waiting.remove(request)
        self._write(found)
        self.teams.note(request)
        if request.request.expected_s is not None:
            self._promised[request.uid] = request
        if self._order is not None:
            self._order.fairness.forget(request.accepted.namespace)
        if request.request.locality.affinity is not None or self.waiting.looking:
            self._improved[found.placement.node] = None  # others may be waiting for just this neighbour

    def _try_gang(self, key: TeamKey) -> None:
        self._gangs_awake.pop(key, None)
        if key in self._joined:
            self._later[key] = None
            return
        members = self.teams.waiting(key)
        if any(member.nomination is not None for member in members):
            return
        found = self._most_of(members, max(1, self.teams.lacking(key)))
        if found is None and quota.held_back(self.state, members) is not None:
            self._gangs_by_quota.setdefault(key[0], {})[key] = None
        if found:
            self._joined[key] = None
        for each in found or ():
            self._place(self.state.pending[each.uid], each)

    def _most_of(self, members: list[RequestState], needed: int) -> list[Reserved] | None:
        """Places for as many as fit together, the first accepted ones, and at least `needed`."""
        found = self._together(members)
        low, high = needed, len(members) - 1
        while low <= high and (found is None or len(found) < len(members)):
            middle = (low + high) // 2
            fewer = self._together(members[:middle])
            if fewer is None:
                high = middle - 1
            else:
                found, low = fewer, middle + 1
        return found

    def _together(self, members: list[RequestState]) -> list[Reserved] | None:
        """Places for exactly these, within their quota."""
        if quota.held_back(self.state, members) is not None:
            return None
        found = self.placer.place_gang(members)
        over = found and quota.beyond(self.state, members[0].accepted.namespace, [each.placement for each in found])
        return None if over else found

    def would_get(self, request: RequestState) -> list[Reserved]:
        """What it, or its gang, would get if nothing but the nodes were asked; for explanations."""
        key = team_key(request)
        if key is not None:
            return self.placer.place_gang(self.teams.waiting(key)) or []
        found = self.placer.place(request)
        return [found] if found is not None else []

    # --- nominated -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Places that are free are taken; those that never will be are given up. A gang takes all of its or none."""
        for unit in self._nominated_units():
            if self._full():
                return
            reasons = [why for request in unit if (why := nominees.in_vain(self.state, request))]
            if reasons:
                for request in unit:
                    self._end(request, reasons[0])
            else:
                for record in self._fulfilled(unit):
                    self._place(self.state.pending[record.uid], record)

    def _fulfilled(self, unit: list[RequestState]) -> list[Reserved]:
        """The decisions of all of the unit, each with the earlier ones in place; or none."""
        trial, found = Trial(self.state), list[Reserved]()
        for request in unit:
            record = nominees.fulfilment(trial.state, trial.state.requests[request.uid], self.policy)
            if record is None:
                return []
            if len(unit) > 1:
                trial.fold(record)
            found.append(record)
        return found

    def _nominated_units(self) -> list[list[RequestState]]:
        units: dict[TeamKey | RequestUid, list[RequestState]] = {}
        for request in self.state.nominated.values():
            units.setdefault(team_key(request) or request.uid, []).append(request)
        return [sorted(unit, key=lambda r: (len(r.uid), r.uid)) for unit in units.values()]

    def _end(self, request: RequestState, reason: str) -> None:
        node = request.nomination.placement.node if request.nomination is not None else ""
        self._write(NominationEnded(uid=request.uid, reason=reason[:1000]))
        self._improved[node] = None
        self._again(request)
        self.namespace_changed(request.accepted.namespace)

    def _again(self, request: RequestState) -> None:
        key = team_key(request)
        if key is not None:
            self._gangs_awake[key] = None
        else:
            self.waiting.wake(kind_of(request))
        for known in self._searched.values():
            if key is not None:
                known.clear()
            else:
                known.pop(_same_again((request,)), None)

    def _nominate(self, found: list[Nominated]) -> None:
        for record in found:
            self._write(record)
            for uid in record.victims:
                victim = self.state.requests[uid]
                self.teams.note(victim)
                if victim.placement is not None:
                    self._left_behind[victim.placement.node] = None

    # --- looking ahead ---------------------------------------------------------------------------------------------

    def _look_ahead(self) -> None:
        if not self.waiting.blocked and not self._blocked_gangs():
            return
        if self.rules.preemption:
            self._ask_others()
        self._follow()
        self._keep_for_the_first()

    def _blocked_gangs(self) -> list[TeamKey]:
        return [
            key
            for key in self.teams.queued
            if key not in self._gangs_awake and key not in self._gangs_by_quota.get(key[0], {}) and self._complete(key)
        ]

    def _blocked_units(self, wanted: Callable[[RequestState], bool]) -> Iterator[tuple[RequestState, ...]]:
        """Blocked units in queue order, without those that have a place in sight."""
        lanes = (lane for lane in self.waiting.blocked_lanes() if wanted(self.state.pending[lane.uids[0]]))
        gangs = (key for key in self._blocked_gangs() if all(wanted(m) for m in self.teams.waiting(key)))
        order = self._ordered(lanes, gangs)
        while (unit := order.next()) is not None:
            yield from self._without_place(unit)

    def _without_place(self, unit: Unit) -> Iterator[tuple[RequestState, ...]]:
        if unit.lane is not None:
            free = (r for uid in unit.lane.uids if (r := self.state.pending[uid]).nomination is None)
            first = next(free, None)
            if first is not None and self._nominable(first):
                yield (first,)
        elif unit.team is not None:
            members = tuple(self.teams.waiting(unit.team))
            if all(m.nomination is None and self._nominable(m) for m in members) and self.teams.lacking(unit.team) > 0:
                yield members

    def _nominable(self, request: RequestState) -> bool:
        """Rules about neighbours are not asked of a place that is not free yet: such requests wait for room."""
        if self.placer.contested:
            return False
        terms = shape_for(request).terms
        return terms is None or not terms.binding

    def _ask_others(self) -> None:
        """Who may ask others to leave looks for victims, where something changed since it last looked."""
        found = True
        while found and not self._full():
            found = False
            for unit in self._blocked_units(lambda request: may_preempt(request.request)):
                if self._full() or self._over(unit):
                    continue
                records = self._search(unit)
                if records is not None and self._within(unit, records):
                    self._nominate(records)
                    found = True

    def _over(self, unit: tuple[RequestState, ...]) -> bool:
        return quota.held_back(self.state, unit) is not None

    def _within(self, unit: tuple[RequestState, ...], records: list[Nominated]) -> bool:
        placements = [record.placement for record in records]
        return quota.beyond(self.state, unit[0].accepted.namespace, placements) is None

    def _search(self, unit: tuple[RequestState, ...], *, asking: bool = True) -> list[Nominated] | None:
        """Places where something changed since the last search in vain for such a unit."""
        known, key = self._searched[asking], _same_again(unit)
        changed = self._changed_since(known.get(key))
        if not asking:
            changed = [name for name in changed if name in self._left_behind]
        if changed and len(unit) > 1:
            changed = list(self.state.nodes)  # one node more may be what all of a gang needs
        records = self.search.nominate(unit, changed, asking=asking) if changed else None
        if records is None:
            known[key] = len(self.state.touched)
        else:
            known.pop(key, None)
        return records

    def _changed_since(self, position: int | None) -> list[str]:
        if position is None:
            return list(self.state.nodes)
        try:
            return [name for name in dict.fromkeys(self.state.touched[position:]) if name in self.state.nodes]
        except IndexError:
            return list(self.state.nodes)

    def _follow(self) -> None:
        """What somebody leaves behind is kept for the first in the queue that fits there."""
        self._left_behind = {name: None for name in self._left_behind if self._somebody_leaves(name)}
        if not self._left_behind:
            return
        for unit in islice(self._blocked_units(lambda _: True), LOOKED_AT):
            if self._full() or self._over(unit):
                continue
            records = self._search(unit, asking=False)
            if records is not None and self._within(unit, records):
                self._nominate(records)

    def _somebody_leaves(self, name: str) -> bool:
        node = self.state.nodes.get(name)
        return node is not None and any(self.state.requests[uid].leaving for uid in node.residents)

    # --- the first -------------------------------------------------------------------------------------------------

    def _keep_for_the_first(self) -> None:
        """A place that drains for the first in the queue, or the use of it until its time."""
        draining = [r for r in self.state.nominated.values() if r.nomination and r.nomination.why == "drains"]
        if draining:
            self._lend(draining)
            return
        if not self._promised and not self._somebody_is_due():
            return
        first = next((unit for unit in self._blocked_units(lambda _: True) if not self._over(unit)), None)
        if first is None or self._full():
            return
        key, position = _same_again(first), len(self.state.touched)
        if not drain.due(first, self.state.clock_ms):
            nodes = {r.placement.node: None for r in self._promised.values() if r.placement is not None}
            records = drain.keep(self.search, first, nodes) if nodes else None
        elif self._kept_in_vain.get(key) == position:
            return
        else:
            records = drain.keep(self.search, first)
            self._kept_in_vain = {} if records is not None else {key: position}
        if records is not None and self._within(first, records):
            self._nominate(records)

    def _somebody_is_due(self) -> bool:
        """Of the oldest of each lane, and the gangs: cheaper than their order."""
        before_ms = self.state.clock_ms - drain.DRAIN_AFTER_MS
        if any(0 < lane.ages[0][0] <= before_ms for lane in self.waiting.blocked_lanes()):
            return True
        return any(drain.due(self.teams.waiting(key), self.state.clock_ms) for key in self._blocked_gangs())

    def _lend(self, draining: list[RequestState]) -> None:
        """Whoever will have ended before the time of the first may use its place until then."""
        if len(draining) != 1 or not self.state.clock_ms:
            return
        first, wanted = draining[0], draining[0].nomination
        if wanted is None or wanted.expected_ms is None:
            return
        for unit in islice(self._blocked_units(lambda r: r.request.expected_s is not None), LOOKED_AT):
            expected_s = unit[0].request.expected_s
            if self._full() or len(unit) > 1 or expected_s is None or self._over(unit):
                continue
            in_time = self.state.clock_ms + 1000 * expected_s <= wanted.expected_ms
            if in_time and self._fits_meanwhile(unit[0], first, wanted):
                self._use_meanwhile(unit[0], first, wanted)

    def _fits_meanwhile(self, request: RequestState, first: RequestState, wanted: Nominated) -> bool:
        node = self.state.nodes[wanted.placement.node]
        bare = emptied(node, lambda _: True)
        seat_nominated(self.state, node, bare, but=first.uid)
        return node_reason(shape_for(request), bare, self.state.requests) is None

    def _use_meanwhile(self, request: RequestState, first: RequestState, wanted: Nominated) -> None:
        self._write(NominationEnded(uid=first.uid, reason=f"{request.key} uses the place until its time"))
        found = self.placer.place(request)
        if found is not None and quota.beyond(self.state, request.accepted.namespace, (found.placement,)) is None:
            self._place(request, found)
        self._write(wanted)


def _same_again(unit: Sequence[RequestState]) -> Same:
    if team_key(unit[0]) is not None:
        return tuple(request.uid for request in unit)
    return (kind_of(unit[0]), priority_of(unit[0].request))
