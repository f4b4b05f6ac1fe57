"""Who waits, by what they wait for: an event wakes only those it can help, and wakes them at once.

In: requests that enter and leave the queue, and what a trial of them ended with. Out: lanes, which are requests that
are equal in all but age, oldest first; only the first of a lane is ever tried.

    blocked by room     by shape: no node can take it. Woken when a node improved on which the shape fits
    held by quota       by namespace: woken when the namespace holds less, or its quota changed
    awake               by shape: to be tried

Nobody is woken by time, and nobody backs off: between two events nothing could have changed. Kinds of one shape fall
asleep and wake together, as one dict that changes hands: a freed card wakes a hundred shapes, not two thousand kinds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

import msgspec

from bus.ledger.state import RequestState
from contracts.priorities import may_preempt, priority_of
from contracts.units import RequestUid
from scheduler.core.queue.order import Age, age
from scheduler.core.request import Shape, shape_for

K = TypeVar("K")

FEW = 1024


class Kind(msgspec.Struct, frozen=True, cache_hash=True):
    """Requests of one kind fare alike: what fits, whose quota, and whom neighbours keep away."""

    shape: Shape
    namespace: str
    labels: tuple[tuple[str, str], ...] = ()


class Lane(msgspec.Struct, eq=False):
    """Requests of one kind and priority, oldest first."""

    kind: Kind
    priority: int
    ages: list[Age] = []
    uids: list[RequestUid] = []
    asks: bool = False
    """Somebody who is or was in it may ask others to leave."""
    entry: Any = None
    """Its first in queue order, as `rounds` made it."""
    entry_from_ms: int = 0
    entry_until_ms: int = 0
    """It stands while the ledger's clock is between these two; the clock may go back."""


Lanes = dict[int, Lane]
"""Of one kind, by priority."""
Kinds = dict[Kind, Lanes]


def kind_of(request: RequestState) -> Kind:
    """The kind of a request."""
    labels = request.request.pod.labels
    return Kind(shape_for(request), request.accepted.namespace, tuple(sorted(labels.items())) if labels else ())


class Waiting:
    """Requests without a gang that wait, or wait for their first trial."""

    def __init__(self) -> None:
        self._lanes: Kinds = {}
        self._awake: dict[Shape, Kinds] = {}
        self._by_quota: dict[str, Kinds] = {}
        self.blocked: dict[Shape, Kinds] = {}
        """Kinds that no node can take, by shape."""
        self._asking: dict[Kind, None] = {}
        """Kinds of which somebody may ask others to leave."""
        self._firsts: list[tuple[int, int, Lane]] = []
        """Submission of the first of each lane, as a heap; those that are first no more go when they come up."""
        self._most_firsts = FEW
        self._told = 0
        self._looking: dict[Shape, None] = {}

    # --- in and out ------------------------------------------------------------------------------------------------

    def add(self, request: RequestState) -> None:
        """It waits. A kind that is known not to fit, or to be held by its quota, is not tried for it."""
        kind, priority = kind_of(request), priority_of(request.request)
        lanes = self._lanes.get(kind)
        if lanes is None:
            lanes = self._lanes[kind] = {}
            self._awake.setdefault(kind.shape, {})[kind] = lanes
        lane = lanes.get(priority)
        if lane is None:
            lane = lanes[priority] = Lane(kind, priority)
        if may_preempt(request.request):
            lane.asks, self._asking[kind] = True, None
        at = age(request)
        place = bisect_left(lane.ages, at)
        lane.ages.insert(place, at)
        lane.uids.insert(place, request.uid)
        if not place:
            self._another_first(lane)

    def remove(self, request: RequestState) -> None:
        """It waits no more; of one that does not wait nothing is done."""
        kind, priority = kind_of(request), priority_of(request.request)
        lane = self._lanes.get(kind, {}).get(priority)
        at = age(request)
        place = bisect_left(lane.ages, at) if lane is not None else 0
        if lane is None or place == len(lane.uids) or lane.uids[place] != request.uid:
            return
        del lane.ages[place], lane.uids[place]
        if lane.uids and not place:
            self._another_first(lane)
        if not lane.uids:
            lane.entry = None
            del self._lanes[kind][priority]
            if not self._lanes[kind]:
                self._forget(kind)

    def _another_first(self, lane: Lane) -> None:
        lane.entry = None
        self._told += 1
        if submitted_ms := lane.ages[0][0]:
            heappush(self._firsts, (submitted_ms, self._told, lane))
        if len(self._firsts) > self._most_firsts:  # nobody asks: then nothing comes up
            self._firsts = [each for each in self._firsts if _stands(*each)]
            heapify(self._firsts)
            self._most_firsts = 2 * len(self._firsts) + FEW

    def _forget(self, kind: Kind) -> None:
        del self._lanes[kind]
        self._asking.pop(kind, None)
        _drop(self._awake, kind.shape, kind)
        self._unblock(kind)
        _drop(self._by_quota, kind.namespace, kind)

    def _unblock(self, kind: Kind) -> None:
        _drop(self.blocked, kind.shape, kind)
        if kind.shape not in self.blocked:
            self._looking.pop(kind.shape, None)

    # --- what a trial ended with -----------------------------------------------------------------------------------

    def block(self, kind: Kind) -> None:
        """No node can take it now."""
        if kind in self._lanes:
            _drop(self._awake, kind.shape, kind)
            self._block(kind.shape, {kind: self._lanes[kind]})

    def _block(self, shape: Shape, kinds: Kinds) -> None:
        _join(self.blocked, shape, kinds)
        if shape.terms is not None and shape.terms.binding:
            self._looking[shape] = None

    def hold(self, kind: Kind) -> None:
        """Its namespace may not hold more of it now."""
        if kind in self._lanes:
            _drop(self._awake, kind.shape, kind)
            self._by_quota.setdefault(kind.namespace, {})[kind] = self._lanes[kind]

    # --- events ----------------------------------------------------------------------------------------------------

    def improved(self, fits: Callable[[Shape], bool]) -> list[Shape]:
        """Nodes improved: wake the kinds whose shape fits on one of them, and tell which shapes these are."""
        woken = [shape for shape in self.blocked if fits(shape)]
        for shape in woken:
            _join(self._awake, shape, self.blocked.pop(shape))
            self._looking.pop(shape, None)
        return woken

    def block_all(self) -> None:
        """Nobody who is awake finds room."""
        while self._awake:
            self._block(*self._awake.popitem())

    def namespace_changed(self, namespace: str) -> None:
        """It holds less, or may hold more."""
        for kind, lanes in self._by_quota.pop(namespace, {}).items():
            self._awake.setdefault(kind.shape, {})[kind] = lanes

    def wake(self, kind: Kind) -> None:
        """Try it again, whatever it waits for."""
        if kind in self._lanes:
            self._unblock(kind)
            _drop(self._by_quota, kind.namespace, kind)
            self._awake.setdefault(kind.shape, {})[kind] = self._lanes[kind]

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def awake(self) -> bool:
        """Somebody is to be tried."""
        return bool(self._awake)

    @property
    def looking(self) -> bool:
        """Somebody that found no room looks at neighbours: each placement may be what it waits for."""
        return bool(self._looking)

    def shapes(self) -> dict[Shape, None]:
        """Of the kinds that are awake."""
        return dict.fromkeys(self._awake)

    def lanes(self) -> Iterator[Lane]:
        """Of the kinds that are awake."""
        return _lanes_of(self._awake.values())

    def blocked_lanes(self, *, asking: bool = False) -> Iterator[Lane]:
        """Of the kinds that find no room; `asking`: those of which somebody may ask others to leave."""
        if not asking:
            return _lanes_of(self.blocked.values())
        blocked = (kind for kind in self._asking if kind in self.blocked.get(kind.shape, {}))
        return (lane for kind in blocked for lane in self._lanes[kind].values() if lane.asks)

    @property
    def oldest_ms(self) -> int | None:
        """The earliest submission that is known of all who wait."""
        firsts = self._firsts
        while firsts and not _stands(*firsts[0]):
            heappop(firsts)
        return firsts[0][0] if firsts else None


def _stands(submitted_ms: int, _told: int, lane: Lane) -> bool:
    """The first of the lane is still the one that came then."""
    return bool(lane.ages) and lane.ages[0][0] == submitted_ms


def _lanes_of(several: Iterable[Kinds]) -> Iterator[Lane]:
    return (lane for kinds in several for lanes in kinds.values() for lane in lanes.values())


def _join(index: dict[Shape, Kinds], shape: Shape, kinds: Kinds) -> None:
    """All of these at once; `kinds` belongs to the index from now on."""
    there = index.get(shape)
    if there is None:
        index[shape] = kinds
    else:
        there.update(kinds)


def _drop(index: dict[K, Kinds], key: K, kind: Kind) -> None:
    kinds = index.get(key)
    if kinds is not None:
        kinds.pop(kind, None)
        if not kinds:
            del index[key]
