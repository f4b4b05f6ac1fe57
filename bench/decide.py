"""Placement decisions in memory: one process, no bus, 1,000 nodes with 8 cards, 20 shapes of requests.

A decision here is `apply_record(Accepted)`, `decide`, `apply_record(Reserved)`. Once `LIVE` requests are placed the
oldest one is released for each that comes, so that nodes get fuller and emptier. The floor is the same records folded
by themselves, without deciding; the best that any policy could reach. Shapes are drawn with a fixed seed. Times are CPU
times of this process: nothing here waits, and other processes on the machine do not count.
"""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from bench.rows import Row, percentile
from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, Record, Released
from contracts.requests import PodRequest
from contracts.units import RequestUid
from scheduler.core.decide import Placed, Unplaced, decide
from scheduler.core.explain import explain
from scheduler.core.gang import place_gang
from scheduler.core.policies import POLICIES, Policy
from scheduler.core.ranking import Rankings
from tests.builders.ledger import cluster, node, request

NODES = 1000
CARDS = 8
DECISIONS = 20_000
LIVE = 14_000
"""About 70 % of the share."""
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

SHOWN = ("packing", "seed-best-fit", "first-fit", "spreading", "fgd")
"""The policies for use; the published ones are for comparison only."""


def run() -> list[Row]:
    """The table."""
    rows = []
    for policy in map(POLICIES.__getitem__, SHOWN):
        rate, slow_us, records = _decisions(policy)
        note = f"{DECISIONS:,} decisions, 99 % within {slow_us:.0f} us; floor: its records folded"
        rows.append(_row(policy, rate, _folded(records), note))
    return [*rows, *_full()]


def _row(policy: Policy, rate: float, floor: float, note: str) -> Row:
    goal = f">= {GOAL:,}" if policy.name in ("packing", "seed-best-fit") else ""
    return Row(name=f"decided and folded, {policy.name}", value=rate, unit="/s", floor=floor, goal=goal, note=note)


def _state() -> LedgerState:
    names = (f"node-{index:04d}" for index in range(NODES))
    return cluster(node(name).gpus(CARDS).cpu(128_000).pods(250) for name in names).state


def _accepted(count: int) -> Iterator[Accepted]:
    drawn = [request("r").share(s).cards(c).cpu(cpu).build() for s, c, cpu, _ in SHAPES]
    chosen = random.Random(1).choices(drawn, [weight for *_, weight in SHAPES], k=count)
    return (_accept(index, each) for index, each in enumerate(chosen))


def _accept(index: int, asked: PodRequest) -> Accepted:
    named = msgspec.structs.replace(asked, name=f"r{index}")
    return Accepted(uid=RequestUid(f"e0000000-{index}-0"), namespace="bench", request=named)


def _decisions(policy: Policy) -> tuple[float, float, list[Record]]:
    """Decisions a second, the 99th percentile in microseconds, and all records in order."""
    state, rankings = _state(), Rankings()
    rankings.sync(state)
    records: list[Record] = []
    live: deque[RequestUid] = deque()
    took: list[float] = []
    for accepted in list(_accepted(DECISIONS)):
        began = time.process_time()
        apply_record(state, accepted, 1)
        decision = decide(state, state.requests[accepted.uid], policy, rankings)
        if isinstance(decision, Placed):
            reserved = decision.record()
            apply_record(state, reserved, 1)
            took.append(time.process_time() - began)
            live.append(accepted.uid)
            records += [accepted, reserved]
        if len(live) > LIVE:
            released = Released(uid=live.popleft(), evidence="ended")
            apply_record(state, released, 1)
            records.append(released)
    return len(took) / sum(took), percentile(took, 99) * 1e6, records


def _folded(records: list[Record]) -> float:
    """Accepted and reserved requests a second, without deciding."""
    state, took = _state(), 0.0
    for record in records:
        began = time.process_time()
        apply_record(state, record, 1)
        if not isinstance(record, Released):
            took += time.process_time() - began
    return sum(isinstance(record, Accepted) for record in records) / took


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
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000
