"""Stretching slices under a function's replicas, against replicas alone: simulated seconds, real decisions.

The same calls arrive in both: a hill in an hour, with bursts of half a minute. Each replica is sold a quarter of
a card and answers 25 calls a second on it; a new one takes 30 s to start. On its card lives a neighbour that was sold
half of it and uses between a tenth and all of that. Replicas are decided by `autoscaler.core.horizontal`, limits by
`autoscaler.core.vertical_node` from the use of the second before; with replicas alone a limit is what was sold.

Calls queue for what the limits let through. A call takes its work over the replica's limit, longer the fuller it is,
and the queue before it. Each side gets the highest target utilisation that keeps 99 % of its calls within 250 ms; then
cards are counted: what is sold, and what is used beyond it, over time.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from autoscaler.core.horizontal import decide
from autoscaler.core.limits import UNLIMITED
from autoscaler.core.numbers import Memory
from autoscaler.core.record import inputs_of
from autoscaler.core.replicas import Counts
from autoscaler.core.vertical_node import NodeView, plan
from autoscaler.core.vertical_values import CardPart, Economy, PodMemory, PodView
from autoscaler.core.windows import Sample, Samples, add
from contracts.requests import PodTemplate
from contracts.workloads import Function, Scaling

SECONDS = 3600
SOLD, NEIGHBOUR, WHOLE = 250, 500, 1000
CALLS_PER_CARD = 100
START_S = 30
LATENCY_S = 0.25
WITHIN = 0.99
MOST_PERCENT = 200
"""A replica counts as what it may use, up to twice what it was sold, when the number of replicas is decided."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    target_percent: int
    card_hours: float
    within: float
    """Part of all calls."""
    replicas: float
    """Mean."""


class Replica(msgspec.Struct):
    """One of them: when it was made, what it may use and uses."""

    born_s: int
    limit: int = SOLD
    used: int = 0
    memory: dict[str, PodMemory] = {}


def best(*, stretch: bool) -> Result:
    """The cheapest run that keeps the latency."""
    runs = [simulate(percent, stretch=stretch) for percent in range(35, 60, 5)]
    return min((run for run in runs if run.within >= WITHIN), key=lambda run: run.card_hours)


def calls() -> Iterator[int]:
    """Calls of each second: a hill from 40 to 160 and back, bursts of 30 s with twice as many, made by a fixed rule."""
    seed, burst_until = 1, 0
    for second in range(SECONDS):
        seed = (seed * 1103515245 + 12345) % 2**31
        if second > burst_until + 60 and seed % 240 == 0:
            burst_until = second + 30
        hill = 40 + 120 * (SECONDS // 2 - abs(second - SECONDS // 2)) // (SECONDS // 2)
        yield hill * (2 if second < burst_until else 1) + seed % 7 - 3


def simulate(target_percent: int, *, stretch: bool) -> Result:
    """One run."""
    each = SOLD * CALLS_PER_CARD
    function = Function(
        name="f", pod=PodTemplate(image="i"), target_percent=target_percent, min_replicas=1, max_replicas=1000,
        scaling=Scaling(metric="rate", rate_milli=each, stretch_percent=MOST_PERCENT if stretch else 100),
    )  # fmt: skip
    memory, samples, fleet = Memory(), Samples(), [Replica(born_s=-START_S) for _ in range(3)]
    queue, sold_used, served, in_time, count = 0.0, 0, 0.0, 0.0, 0
    for second, arriving in enumerate(calls()):
        ready = [one for one in fleet if second - one.born_s >= START_S]
        done, latency_s = _serve(ready, queue, arriving)
        queue += arriving - done
        served += arriving
        in_time += arriving if latency_s <= LATENCY_S else 0
        sold_used += sum(max(SOLD, one.used) for one in fleet)
        count += len(fleet)
        if stretch:
            for index, one in enumerate(ready):
                _stretch(one, second, index)
        now_ms = second * 1000
        samples = add(samples, Sample(at_ms=now_ms, load_milli=arriving * 1000), 60_000)
        counts = Counts(
            hot_ready=len(ready), coming=len(fleet) - len(ready), warm_ready=0, warm_coming=0, draining=0, busy=0
        )
        inputs = inputs_of(
            function, memory, samples, counts, now_ms=now_ms, waiting=0, placeable=UNLIMITED, budget=UNLIMITED,
            stretch_percent=sum(one.limit for one in ready) * 100 // max(1, SOLD * len(ready)),
        )  # fmt: skip
        decision = decide(inputs)
        memory = decision.memory
        fleet = fleet[: decision.target] + [Replica(born_s=second) for _ in range(decision.target - len(fleet))]
    return Result(
        target_percent=target_percent,
        card_hours=sold_used / WHOLE / 3600,
        within=in_time / served,
        replicas=count / SECONDS,
    )


def _serve(ready: list[Replica], queue: float, arriving: int) -> tuple[float, float]:
    """Calls answered in this second, and how long those that came in it take."""
    limits = sum(one.limit for one in ready)
    capacity = limits * CALLS_PER_CARD / WHOLE
    done = min(queue + arriving, capacity)
    for one in ready:
        one.used = round(done * WHOLE / CALLS_PER_CARD * one.limit / limits)
    full = min(0.99, (queue + arriving) / capacity)
    work_s = len(ready) / capacity
    return done, work_s / (1 - full) ** 0.5 + max(0.0, queue + arriving - capacity) / capacity


def _stretch(one: Replica, second: int, index: int) -> None:
    """Its card: itself and its neighbour, who comes and goes in minutes."""
    asleep = (second // 300 + index) % 3
    pods = (
        PodView(uid="n", cpu_sold_milli=100, cpu_used_milli=50, cards=(_part(NEIGHBOUR, (500, 50, 250)[asleep]),)),
        PodView(uid="r", managed=True, cpu_sold_milli=100, cpu_used_milli=50, cards=(_part(SOLD, one.used),)),
    )
    found = plan(NodeView(node="n", pods=pods, cpu_capacity_milli=4000), one.memory, Economy(), now_ms=second * 1000)
    one.memory, one.limit = found.memory, found.pods[1].limits.gpu_milli or SOLD


def _part(sold: int, used: int) -> CardPart:
    return CardPart(card="c", sold_milli=sold, used_milli=used, elastic=True)
