"""The protocol with departures: pods come, run for their time and go, on a virtual clock. Pure.

In: a `World`, offers and faults in order of time, a horizon. Out: a `Steady`: allocation averaged over time, card time
that was lost, and the course of both. What happens in one millisecond: ends first, then nodes that come back, then
faults, then arrivals, each in the order in which it was made.

A pod that does not fit when it arrives is lost, and its whole time on cards with it; a pod whose node fails loses the
rest of its time. What the first `discard` hours bring is played and not counted: the cluster begins empty.

Everything is whole thousandths and milliseconds until the percentages at the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

import msgspec

from contracts.messages import Value
from contracts.units import RequestUid
from gpubus.simulate.offers import Fault, Offer
from gpubus.simulate.tenants import Tenant, Tenants
from gpubus.simulate.world import World

SAMPLES = 240
"""Points of the course over the whole horizon."""

Told = Callable[[int], None]

_END, _BACK = 0, 1
"""What is due; in this order within a millisecond."""


class Sample(Value, frozen=True, kw_only=True):
    """What is sold at one time."""

    at_ms: int
    sold_milli: int


class Lost(Value, frozen=True, kw_only=True):
    """Pods of one size, by cards, in the time that counts: card time asked for and lost, card-milliseconds x 1000."""

    cards: int
    offered: int
    lost: int


class Steady(Value, frozen=True, kw_only=True):
    """One run; everything of the time that counts but the samples."""

    arrived: int
    refused: int
    killed: int
    """Pods that ran on a node that failed."""
    allocated_percent: float
    """Of all cards, averaged over time."""
    lost_percent: float
    """Of the card time that was asked for."""
    lost_by_cards: tuple[Lost, ...]
    samples: tuple[Sample, ...]
    instead: dict[str, int] = {}
    """Decisions that the default policy made because this one could not, by reason."""
    tenants: tuple[Tenant, ...] = ()
    """By namespace."""


class _Running(msgspec.Struct):
    offer: Offer
    counts: bool
    """It arrived in the time that counts."""


class Departures:
    """One run.

    Args:
        world: empty; changed here.
        until_ms: the horizon.
        discard_ms: what is not counted of it.
        away_ms: how long a node that failed or drains stays away.
    """

    def __init__(self, world: World, *, until_ms: int, discard_ms: int, away_ms: int = 0) -> None:
        self._world = world
        self._until, self._discard, self._away = until_ms, discard_ms, away_ms
        self._nodes = list(world.state.nodes)
        self._running: dict[RequestUid, _Running] = {}
        self._due: list[tuple[int, int, int, str]] = []
        """When, what (`_END` or `_BACK`), number, whose."""
        self._made = 0
        self._tally = Tally(world.capacity_milli, discard_ms=discard_ms, until_ms=until_ms)

    def play(self, offers: Iterable[Offer], faults: Iterable[Fault] = (), told: Told = lambda _: None) -> Steady:
        """All of it; `told` gets the virtual milliseconds that have passed, after each arrival."""
        for each in _merged(offers, faults):
            self._advance(each.at_ms)
            if isinstance(each, Fault):
                self._fault(each)
            else:
                self._arrive(each)
                told(each.at_ms)
        self._advance(self._until)
        return self._tally.steady(dict(self._world.instead))

    def _advance(self, to_ms: int) -> None:
        """What is due until then, ends before returns."""
        due = self._due
        while due and due[0][0] <= to_ms:
            at_ms, what, _, whose = heapq.heappop(due)
            self._step(at_ms)
            if what == _END:
                self._end(RequestUid(whose))
            else:
                self._world.restore(whose)
        self._step(to_ms)

    def _later(self, at_ms: int, what: int, whose: str) -> None:
        self._made += 1
        heapq.heappush(self._due, (at_ms, what, self._made, whose))

    def _step(self, to_ms: int) -> None:
        self._tally.until(to_ms)
        self._world.at_ms = to_ms

    def _arrive(self, offer: Offer) -> None:
        counts = self._discard <= offer.at_ms < self._until
        reserved = self._world.place(self._world.arrive(offer.row))
        over = self._world.over_quota
        self._tally.arrived(offer, counts=counts, placed=reserved is not None, over_quota=over)
        if reserved is not None:
            self._running[reserved.uid] = _Running(offer, counts)
            self._later(offer.at_ms + offer.life_ms, _END, reserved.uid)

    def _end(self, uid: RequestUid) -> None:
        running = self._running.pop(uid, None)
        if running is not None:  # else its node failed
            self._world.end(uid)
            self._tally.freed(running.offer.row.demand_milli)

    def _fault(self, fault: Fault) -> None:
        name = self._nodes[fault.node]
        if not self._world.is_open(name):
            return
        if fault.kills:
            for uid in self._world.fail(name):
                running = self._running.pop(uid)
                self._tally.killed(running.offer, at_ms=fault.at_ms, counts=running.counts)
        else:
            self._world.drain(name)
        self._later(fault.at_ms + self._away, _BACK, name)


class Tally:
    """Sums over time and over pods."""

    def __init__(self, capacity_milli: int, *, discard_ms: int, until_ms: int) -> None:
        self._capacity, self._discard, self._until = capacity_milli, discard_ms, until_ms
        self._sold = self._at = self._area = 0
        self._arrived = self._refused = self._killed = 0
        self._asked: dict[int, list[int]] = {}
        self._tenants = Tenants()
        self._every = max(1, until_ms // SAMPLES)
        self._samples: list[Sample] = []

    def until(self, at_ms: int) -> None:
        """What is sold stays as it is until then."""
        begin, end = max(self._at, self._discard), min(at_ms, self._until)
        self._area += self._sold * max(0, end - begin)
        while len(self._samples) * self._every <= min(at_ms, self._until):
            self._samples.append(Sample(at_ms=len(self._samples) * self._every, sold_milli=self._sold))
        self._at = max(self._at, at_ms)

    def arrived(self, offer: Offer, *, counts: bool, placed: bool, over_quota: bool) -> None:
        """A pod arrived."""
        demand = offer.row.demand_milli
        self._sold += demand if placed else 0
        if counts:
            self._arrived += 1
            self._refused += not placed
            sums = self._asked.setdefault(offer.row.cards, [0, 0])
            sums[0] += demand * offer.life_ms
            sums[1] += 0 if placed else demand * offer.life_ms
            self._tenants.arrived(offer.row.namespace, demand * offer.life_ms, placed=placed, over_quota=over_quota)

    def freed(self, milli: int) -> None:
        """A pod ended."""
        self._sold -= milli

    def killed(self, offer: Offer, *, at_ms: int, counts: bool) -> None:
        """A pod went with its node: what it still had to run is lost."""
        demand = offer.row.demand_milli
        self._sold -= demand
        if counts:
            self._killed += 1
            rest = demand * (offer.at_ms + offer.life_ms - at_ms)
            self._asked[offer.row.cards][1] += rest
            self._tenants.lost(offer.row.namespace, rest)

    def steady(self, instead: dict[str, int]) -> Steady:
        """What it came to."""
        offered = sum(asked for asked, _ in self._asked.values())
        lost = sum(lost for _, lost in self._asked.values())
        counted = self._capacity * (self._until - self._discard)
        return Steady(
            arrived=self._arrived,
            refused=self._refused,
            killed=self._killed,
            allocated_percent=100 * self._area / counted,
            lost_percent=100 * lost / offered if offered else 0.0,
            lost_by_cards=tuple(Lost(cards=n, offered=a, lost=b) for n, (a, b) in sorted(self._asked.items())),
            samples=tuple(self._samples),
            instead=instead,
            tenants=self._tenants.told(),
        )


def _merged(offers: Iterable[Offer], faults: Iterable[Fault]) -> Iterator[Offer | Fault]:
    """In order of time; a fault before an arrival of the same millisecond."""
    return heapq.merge(faults, offers, key=lambda each: each.at_ms)
