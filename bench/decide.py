"""Placement decisions in memory: one process, no bus, nodes with 8 cards, 20 shapes of requests.

Two tables. Policies for use on 1,000 nodes: a decision is `apply_record(Accepted)`, `decide`, `apply_record(Reserved)`,
the floor its records folded by themselves. The default policy on 5,000 nodes: the deciding alone, with all upkeep of
what is remembered between decisions, and the same with the fold; the floor is the same policy by its rules in Python,
every node scored for every decision.

Once so many requests live as fit (14 per node; 8 on 5,000 nodes, 40,000 in all) the oldest one is released for each
that comes, so that nodes get fuller and emptier, and the measuring begins; while learning it begins at once. The clock
goes on a second a request, so that lifetimes are learned. Shapes are drawn with a fixed seed. Times are CPU times of
this thread: nothing here waits, and other processes on the machine do not count, except by the caches that they share.
Rates are means over everything, refills after a learning point included.
"""

from __future__ import annotations

import gc
import random
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from bench.rows import Row, median, percentile
from bus.ledger.fold import apply_record
from contracts.decisions import Accepted, Record, Released, Reserved
from contracts.requests import PodRequest
from contracts.units import RequestUid
from scheduler.core.arrays.warm import warm_up
from scheduler.core.decide import Placed, Unplaced, decide
from scheduler.core.explain import explain
from scheduler.core.gang import place_gang
from scheduler.core.placer import Placer
from scheduler.core.policies import DEFAULT_POLICY, POLICIES, Policy, evaluate
from scheduler.core.ranking import Rankings
from scheduler.core.request import shape_of
from tests.builders.ledger import cluster, node, request

NODES = 1000
MANY = 5000
FEW = 500
CARDS = 8
DECISIONS = 20_000
LEARNING = 8192
"""Decisions in which the mix is learned eight times."""
POINT, AROUND = 32_768, 300
"""A learning point, and decisions in which all shapes have been asked for once it is in force."""
FULL = 14
"""Requests that live per node at most: about 70 % of the share."""
HALF_FULL = 8
"""40,000 on 5,000 nodes."""
GOAL = 12_000

SHAPES = (  # share, cards, milli-cores, how often
    (50, 1, 500, 5),
    (100, 1, 1000, 10),
    (150, 1, 500, 5),
    (200, 1, 1000, 10),
    (200, 1, 2000, 8),
    (250, 1, 2000, 8),
    (300, 1, 3000, 6),
    (330, 1, 2000, 5),
    (400, 1, 4000, 6),
    (500, 1, 4000, 8),
    (500, 1, 8000, 6),
    (600, 1, 4000, 3),
    (700, 1, 6000, 3),
    (800, 1, 8000, 2),
    (810, 1, 7000, 2),
    (900, 1, 8000, 1),
    (1000, 1, 8000, 4),
    (1000, 2, 16_000, 2),
    (1000, 4, 32_000, 1),
    (1000, 8, 64_000, 1),
)

SHOWN = ("packing", "seed-best-fit", "first-fit", "spreading", "fgd", "menu-value")
"""The policies for use; the published ones are for comparison only."""


def run() -> list[Row]:
    """The table."""
    warm_up()
    rows = [_used(POLICIES[name]) for name in SHOWN]
    return [*rows, *_default(), *_full()]


# --- policies for use, 1,000 nodes -----------------------------------------------------------------------------------


def _used(policy: Policy) -> Row:
    course = Course(NODES, policy, FULL)
    course.go(DECISIONS)
    took = [decided + folded for decided, folded in zip(course.decided, course.folded, strict=True)]
    slow_us = percentile(took, 99) * 1e6
    return Row(
        name=f"decided and folded, {policy.name}",
        value=len(took) / sum(took),
        unit="/s",
        floor=_folded(course.records),
        goal=f">= {GOAL:,}" if policy.name in ("packing", "seed-best-fit") else "",
        note=f"{DECISIONS:,} decisions, {NODES:,} nodes, 99 % within {slow_us:.0f} us; floor: its records folded",
    )


class Course:
    """Requests that come, are placed and end, on one cluster under one policy."""

    def __init__(self, nodes: int, policy: Policy, live_per_node: int) -> None:
        names = (f"node-{index:04d}" for index in range(nodes))
        self.state = cluster(node(name).gpus(CARDS).cpu(128_000).pods(250) for name in names).state
        self.placer = Placer(self.state, policy.name)
        self.records: list[Record] = []
        self.decided: list[float] = []
        """Seconds of each decision."""
        self.folded: list[float] = []
        """Seconds of folding its two records."""
        self._live: deque[RequestUid] = deque()
        self.most = live_per_node * nodes
        self._number = 0

    def go(self, count: int) -> None:
        """So many more requests."""
        gc.collect()
        gc.freeze()
        for asked in _drawn(self._number, count):
            self._number += 1
            accepted = Accepted(
                uid=RequestUid(f"e0000000-{self._number}-0"),
                namespace="bench",
                request=asked,
                submitted_ms=self._number * 1000,
            )
            began = time.thread_time()
            apply_record(self.state, accepted, 1)
            folded = time.thread_time()
            reserved = self.placer.place(self.state.requests[accepted.uid])
            decided = time.thread_time()
            self.records.append(accepted)
            if reserved is not None:
                self._place(reserved)
            self.decided.append(decided - folded)
            self.folded.append(folded - began + time.thread_time() - decided)
            self._release()
        gc.unfreeze()

    def _place(self, reserved: Reserved) -> None:
        apply_record(self.state, reserved, 1)
        self._live.append(reserved.uid)
        self.records.append(reserved)

    def _release(self) -> None:
        if len(self._live) > self.most:
            released = Released(uid=self._live.popleft(), evidence="ended")
            apply_record(self.state, released, 1)
            self.records.append(released)


def _drawn(first: int, count: int) -> Iterator[PodRequest]:
    shapes = [request("r").share(s).cards(c).cpu(cpu).build() for s, c, cpu, _ in SHAPES]
    chosen = random.Random(first).choices(shapes, [weight for *_, weight in SHAPES], k=count)
    return (msgspec.structs.replace(each, name=f"r{first + index}") for index, each in enumerate(chosen))


def _folded(records: list[Record]) -> float:
    """Accepted and reserved requests a second, without deciding."""
    names = (f"node-{index:04d}" for index in range(NODES))
    state, took = cluster(node(name).gpus(CARDS).cpu(128_000).pods(250) for name in names).state, 0.0
    for record in records:
        began = time.thread_time()
        apply_record(state, record, 1)
        if not isinstance(record, Released):
            took += time.thread_time() - began
    return sum(isinstance(record, Accepted) for record in records) / took


# --- the default policy, 5,000 nodes ---------------------------------------------------------------------------------


def _default() -> list[Row]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many = Course(MANY, DEFAULT_POLICY, HALF_FULL)
    many.go(LEARNING)
    learning = len(many.decided) / sum(many.decided)
    many.go(many.most - LEARNING + DECISIONS)
    settled = many.decided[-DECISIONS:]
    whole = [d + f for d, f in zip(settled, many.folded[-DECISIONS:], strict=True)]
    used_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    few = Course(FEW, DEFAULT_POLICY, HALF_FULL)
    few.go(few.most + DECISIONS)
    small = few.decided[-DECISIONS:]
    naive, name = _by_rules(many), DEFAULT_POLICY.name
    held = len(many.state.requests)
    return [
        _rate(f"decided, {name}, settled", settled, ">= 30,000", naive),
        Row(name=f"decided, {name}, while learning", value=learning, unit="/s", goal=">= 15,000", floor=naive),
        _rate(f"decided and folded, {name}", whole, "", naive),
        Row(
            name=f"growth of a decision, {FEW:,} to {MANY:,} nodes",
            value=(sum(settled) / len(settled)) / (sum(small) / len(small)),
            unit="x",
            goal="<= 1.5",
            note="mean over mean",
        ),
        Row(name="99 % of decisions within", value=percentile(settled, 99) * 1000, unit="ms", goal="<= 1"),
        Row(name="slowest decision", value=max(settled) * 1000, unit="ms", note="settled"),
        Row(
            name="slowest decision where other tables come into force",
            value=max(many.decided[POINT : POINT + AROUND]) * 1000,
            unit="ms",
            goal="<= 50",
            note=f"of {AROUND} after a learning point: prepared piece by piece, then taken, then each shape anew",
        ),
        Row(
            name="first decision of a new shape",
            value=max(_first(many, share) for share in (111, 222, 333, 444, 555)),
            unit="ms",
            goal="<= 50",
            note="slowest of five",
        ),
        Row(name="memory", value=used_mib, unit="MiB", goal="<= 1,024", note=f"{MANY:,} x {CARDS}, {held:,} placed"),
        Row(name="gang of 512 placed", value=_gang(many, 512), unit="ms", goal="<= 200", note="median of 5"),
    ]


def _rate(name: str, took: list[float], goal: str, floor: float) -> Row:
    middle, slow = percentile(took, 50) * 1e6, percentile(took, 99) * 1e6
    note = (
        f"{len(took):,} decisions, {MANY:,} nodes, p50 {middle:.0f}, p99 {slow:.0f} us; floor: every node by the rules"
    )
    return Row(name=name, value=len(took) / sum(took), unit="/s", goal=goal, floor=floor, note=note)


def _by_rules(course: Course) -> float:
    """Decisions a second when every node is scored by the rules in Python."""
    rankings = course.placer.rankings
    rankings.sync(course.state)
    mix = rankings.mix_for(DEFAULT_POLICY)
    views = list(rankings.views.values())
    shape = shape_of(request("naive").share(200).cpu(1000).build(), "bench")
    took = [_timed(lambda: [evaluate(DEFAULT_POLICY, shape, view, mix) for view in views]) for _ in range(2)]
    return 1000 / min(took)


def _first(course: Course, share: int) -> float:
    """Milliseconds of the first decision of a shape that nobody has asked for yet."""
    asked = Accepted(
        uid=RequestUid(f"e0000000-{share}-first"),
        namespace="bench",
        request=request(f"first{share}").share(share).build(),
    )
    apply_record(course.state, asked, 1)
    return _timed(lambda: course.placer.place(course.state.requests[asked.uid]))


def _gang(course: Course, size: int) -> float:
    for index in range(size):
        member = request(f"gang{index}").share(500).cpu(1000).gang("gang", 256).build()
        accepted = Accepted(uid=RequestUid(f"e0000000-{index}-gang"), namespace="bench", request=member)
        apply_record(course.state, accepted, 1)
    members = [each for each in course.state.pending.values() if each.request.gang is not None]
    return median([_timed(lambda: course.placer.place_gang(members)) for _ in range(5)])


# --- a full cluster --------------------------------------------------------------------------------------------------


def _full() -> list[Row]:
    """Answers that people and retries wait for, on a cluster where every card is half sold."""
    drawn = cluster(node(f"node-{index:04d}").gpus(CARDS) for index in range(NODES))
    state, rankings = drawn.state, Rankings()
    for index in range(NODES * CARDS):
        asked = drawn.accept(request(f"half{index}").share(500).cpu(100).policy("spreading"))
        decision = decide(state, asked, rankings=rankings)
        if isinstance(decision, Placed):
            apply_record(state, decision.record(), 1)
    whole = drawn.accept(request("whole"))
    gang = [drawn.accept(request(f"member{index}").share(500).gang("gang", 64)) for index in range(64)]
    first = _timed(lambda: _refused(decide(state, whole, rankings=rankings)))
    again = _timed(lambda: _refused(decide(state, whole, rankings=rankings)))
    return [
        Row(name="refused with reasons, the first time", value=first, unit="ms", note=f"{NODES:,} nodes looked at"),
        Row(name="refused with reasons, again", value=again, unit="ms", note="nothing changed since"),
        Row(name="explained, from nothing", value=_timed(lambda: explain(state, whole)), unit="ms", note="no cache"),
        Row(
            name="gang of 64 placed",
            value=_timed(lambda: place_gang(state, gang, rankings=rankings)),
            unit="ms",
            note="on a scratch state",
        ),
    ]


def _refused(decision: Placed | Unplaced) -> None:
    if isinstance(decision, Placed):
        raise TypeError("a whole card was found where every card is half sold")


def _timed(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    gc.collect()
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000
