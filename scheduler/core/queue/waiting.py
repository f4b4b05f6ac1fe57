"""Who waits, by what they wait for: an event wakes only those it can help, and wakes them at once.

In: requests that enter and leave the queue, and what a trial of them ended with. Out: lanes, which are requests that
are equal in all but age, oldest first; only the first of a lane is ever tried.

    blocked by room     by shape: no node can take it. Woken when a node improved on which the shape fits
    held by quota       by namespace: woken when the namespace holds less, or its quota changed
    awake               to be tried

Nobody is woken by time, and nobody backs off: between two events nothing could have changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from bus.ledger.state import RequestState
from contracts.priorities import may_preempt, priority_of
from contracts.units import RequestUid
from scheduler.core.queue.order import Age, age
from scheduler.core.request import Shape, shape_for

K = TypeVar("K")


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


def kind_of(request: RequestState) -> Kind:
    """The kind of a request."""
    labels = request.request.pod.labels
    return Kind(shape_for(request), request.accepted.namespace, tuple(sorted(labels.items())) if labels else ())


class Waiting:
    """Requests without a gang that wait, or wait for their first trial."""

    def __init__(self) -> None:
        self._lanes: dict[Kind, dict[int, Lane]] = {}
        self._awake: dict[Kind, None] = {}
        self._by_quota: dict[str, dict[Kind, None]] = {}
        self.blocked: dict[Shape, dict[Kind, None]] = {}
        """Kinds that no node can take, by shape."""
        self._looking: dict[Shape, None] = {}

    # --- in and out ------------------------------------------------------------------------------------------------

    def add(self, request: RequestState) -> None:
        """It waits. A kind that is known not to fit, or to be held by its quota, is not tried for it."""
        kind, priority = kind_of(request), priority_of(request.request)
        lanes = self._lanes.get(kind)
        if lanes is None:
            lanes = self._lanes[kind] = {}
            self._awake[kind] = None
        lane = lanes.get(priority)
        if lane is None:
            lane = lanes[priority] = Lane(kind, priority)
        lane.asks = lane.asks or may_preempt(request.request)
        at = age(request)
        place = bisect_left(lane.ages, at)
        lane.ages.insert(place, at)
        lane.uids.insert(place, request.uid)

    def remove(self, request: RequestState) -> None:
        """It waits no more; of one that does not wait nothing is done."""
        kind, priority = kind_of(request), priority_of(request.request)
        lane = self._lanes.get(kind, {}).get(priority)
        at = age(request)
        place = bisect_left(lane.ages, at) if lane is not None else 0
        if lane is None or place == len(lane.uids) or lane.uids[place] != request.uid:
            return
        del lane.ages[place], lane.uids[place]
        if not lane.uids:
            del self._lanes[kind][priority]
            if not self._lanes[kind]:
                self._forget(kind)

    def _forget(self, kind: Kind) -> None:
        del self._lanes[kind]
        self._awake.pop(kind, None)
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
            self._awake.pop(kind, None)
            self.blocked.setdefault(kind.shape, {})[kind] = None
            if kind.shape.terms is not None and kind.shape.terms.binding:
                self._looking[kind.shape] = None

    def hold(self, kind: Kind) -> None:
        """Its namespace may not hold more of it now."""
        if kind in self._lanes:
            self._awake.pop(kind, None)
            self._by_quota.setdefault(kind.namespace, {})[kind] = None

    # --- events ----------------------------------------------------------------------------------------------------

    def improved(self, fits: Callable[[Shape], bool]) -> list[Shape]:
        """Nodes improved: wake the kinds whose shape fits on one of them, and tell which shapes these are."""
        woken = [shape for shape in self.blocked if fits(shape)]
        for shape in woken:
            self._awake.update(self.blocked.pop(shape))
            self._looking.pop(shape, None)
        return woken

    def block_all(self) -> None:
        """Nobody who is awake finds room."""
        for kind in list(self._awake):
            self.block(kind)

    def namespace_changed(self, namespace: str) -> None:
        """It holds less, or may hold more."""
        self._awake.update(self._by_quota.pop(namespace, {}))

    def wake(self, kind: Kind) -> None:
        """Try it again, whatever it waits for."""
        if kind in self._lanes:
            self._unblock(kind)
            _drop(self._by_quota, kind.namespace, kind)
            self._awake[kind] = None

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
        return dict.fromkeys(kind.shape for kind in self._awake)

    def lanes(self) -> Iterator[Lane]:
        """Of the kinds that are awake."""
        return (lane for kind in self._awake for lane in self._lanes[kind].values())

    def blocked_lanes(self) -> Iterator[Lane]:
        """Of the kinds that find no room."""
        return (lane for kinds in self.blocked.values() for kind in kinds for lane in self._lanes[kind].values())

    def all_lanes(self) -> Iterator[Lane]:
        """Of everybody."""
        return (lane for lanes in self._lanes.values() for lane in lanes.values())


def _drop(index: dict[K, dict[Kind, None]], key: K, kind: Kind) -> None:
    kinds = index.get(key)
    if kinds is not None:
        kinds.pop(kind, None)
        if not kinds:
            del index[key]
