"""One round: those who are awake, one after the other in queue order.

In: the awake lanes and gangs, the ledger's clock, the shares of namespaces. Out: units, best first; a unit is one
request, or a gang with all its waiting members. After each placement the shares are compared anew.

    1. higher level first (`order`)
    2. a gang that has begun and lacks members, before everything else of its level: it holds what it cannot use yet
    3. the namespace with the least share of what is due to it (`fair`)
    4. the earlier submission, then the earlier acceptance

A namespace has one heap of the first requests of its lanes; a pick compares the tops of the heaps, so it costs the
number of namespaces and not of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

import msgspec

from bus.ledger.state import LedgerState, RequestState
from contracts.priorities import CLASS_STEP
from contracts.units import RequestUid
from scheduler.core.queue.fair import Fairness
from scheduler.core.queue.order import HOUR_MS, Age, age, level
from scheduler.core.queue.teams import TeamKey, Teams
from scheduler.core.queue.waiting import Kind, Lane

Rank = tuple[int, bool]
"""Level, negated, and whether it is *no* begun gang: smallest first."""
Entry = tuple[Rank, Age, "Unit"]

NEVER = 1 << 62
"""A clock that is not reached."""


class Unit(msgspec.Struct, eq=False):
    """What is tried together: the first of a lane, or a gang."""

    uids: tuple[RequestUid, ...]
    lane: Lane | None = None
    team: TeamKey | None = None

    @property
    def kind(self) -> Kind | None:
        """Of a single request."""
        return self.lane.kind if self.lane is not None else None

    def __lt__(self, other: Unit) -> bool:
        """Never asked: ages differ. The heap wants to know that it could."""
        return self.uids < other.uids


class Round:
    """The order of one round.

    Args:
        state: read only here.
    """

    def __init__(self, state: LedgerState, fairness: Fairness, teams: Teams) -> None:
        self.state = state
        self.fairness = fairness
        self.teams = teams
        self._heaps: dict[str, list[Entry]] = {}

    def fill(self, lanes: Iterable[Lane], gangs: Iterable[TeamKey]) -> None:
        """Those who are awake."""
        now_ms, heaps = self.state.clock_ms, self._heaps
        for lane in lanes:
            entry = lane.entry
            if entry is None or not lane.entry_from_ms <= now_ms < lane.entry_until_ms:
                entry = self._lane_entry(lane)
            heap = heaps.get(lane.kind.namespace)
            if heap is None:
                heaps[lane.kind.namespace] = [entry]
            else:
                heap.append(entry)
        for key in gangs:
            self._put(self._gang_entry(key), key[0])
        for heap in self._heaps.values():
            heapify(heap)

    def _put(self, entry: Entry, namespace: str) -> None:
        self._heaps.setdefault(namespace, []).append(entry)

    def _lane_entry(self, lane: Lane) -> Entry:
        """Kept with the lane for an hour: of two thousand lanes that wake, one or two have changed."""
        first = lane.ages[0]
        submitted_ms, now_ms = first[0], self.state.clock_ms
        hours = (now_ms - submitted_ms) // HOUR_MS if 0 < submitted_ms < now_ms else 0  # as `order.aged`, 3 us cheaper
        entry = ((-lane.priority - CLASS_STEP * hours, True), first, Unit((lane.uids[0],), lane=lane))
        lane.entry, lane.entry_from_ms = entry, submitted_ms + hours * HOUR_MS if hours else 0
        lane.entry_until_ms = submitted_ms + (hours + 1) * HOUR_MS if submitted_ms else NEVER
        return entry

    def _gang_entry(self, key: TeamKey) -> Entry:
        members = self.teams.waiting(key)
        begun = self.teams.lacking(key) <= 0
        rank = min(self._rank(member, begun=begun) for member in members)
        return (rank, min(map(age, members)), Unit(tuple(m.uid for m in members), team=key))

    def _rank(self, request: RequestState, *, begun: bool) -> Rank:
        return (-level(request, self.state.clock_ms), not begun)

    def next(
        self, passed: Callable[[Lane], bool] = lambda _: False, over: Callable[[], bool] = lambda: False
    ) -> Unit | None:
        """The best unit, taken out; None at the end of the round.

        Args:
            passed: of lanes that are not to be tried any more; asked of each that comes first.
            over: nobody is to be tried any more.
        """
        for namespace in list(self._heaps):
            heap = self._heaps[namespace]
            while heap and not over() and (lane := heap[0][2].lane) is not None and passed(lane):
                heappop(heap)
            if not heap:
                del self._heaps[namespace]
        best = min((heap[0][0] for heap in self._heaps.values()), default=None)
        if best is None or over():
            return None
        equal = [namespace for namespace, heap in self._heaps.items() if heap[0][0] == best]
        if len(equal) > 1:
            equal = self.fairness.least(equal)
        namespace = min(equal, key=lambda name: (self._heaps[name][0][1], name))
        heap = self._heaps[namespace]
        unit = heappop(heap)[2]
        if not heap:
            del self._heaps[namespace]
        return unit

    def again(self, lane: Lane) -> None:
        """The first of a lane has its place: the next one takes its turn."""
        if lane.uids:
            heappush(self._heaps.setdefault(lane.kind.namespace, []), self._lane_entry(lane))
