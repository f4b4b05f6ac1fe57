"""What slices serve, as told or as measured, and what becomes of it in a decision by rate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.horizontal import decide
from autoscaler.core.measuring import Meter, begin, looked, reported, without
from autoscaler.core.profiles import capacity_of, capacity_on, cheapest, learned, measured_milli, most_efficient, usable
from autoscaler.core.replicas import Counts
from autoscaler.sensing import Sensing
from bus.ledger.state import LedgerState
from bus.protocol import QueueState
from contracts.functions import WorkerReport
from contracts.requests import GpuAsk, PodTemplate
from contracts.workloads import Function, Profile, Scaling
from tests.unit.autoscaler.function_world import inputs

ON = ("V100", 250)


def row(share: int, rate: int, latency: int | None = None, model: str = "V100") -> Profile:
    return Profile(model=model, share_milli=share, rate_milli=rate, latency_ms=latency)


SMALL, LARGE, TINY = row(250, 30_000, 60), row(500, 50_000, 35), row(100, 2_000, 200)
ROWS = (TINY, SMALL, LARGE)


def test_the_most_calls_per_thousandth_win() -> None:
    """30 per 250 against 50 per 500 and 2 per 100; of equals the smaller."""
    assert most_efficient(ROWS) == SMALL
    assert most_efficient((row(500, 60_000), SMALL)) == SMALL
    assert most_efficient(()) is None


def test_a_latency_keeps_slow_slices_out() -> None:
    """Under 40 ms only the large one; a row without a latency keeps no promise."""
    assert usable(ROWS, "V100", 40) == (LARGE,)
    assert usable((*ROWS, row(1000, 90_000)), "V100", 69) == (SMALL, LARGE)


def test_one_card_model_says_nothing_about_another() -> None:
    """S136: no row, no answer; the exact slice or nothing, and of several slices the one that does least."""
    assert usable(ROWS, "A100") == ()
    assert capacity_of(ROWS, "A100", 250) is None
    assert capacity_of(ROWS, "V100", 251) is None
    assert capacity_on(ROWS, [ON, ("V100", 500)]) == 30_000
    assert capacity_on(ROWS, [ON, ("A100", 250)]) is None
    assert capacity_on(ROWS, []) is None


CHEAPEST: list[tuple[str, dict[str, Any], GpuAsk, tuple[int, tuple[str, ...]]]] = [
    ("as it asks", {"profiles": ROWS}, GpuAsk(share_milli=700), (700, ())),
    ("the cheapest of the one model", {"profiles": ROWS, "slices": "cheapest"}, GpuAsk(), (250, ("V100",))),
    ("quick enough", {"profiles": ROWS, "slices": "cheapest", "latency_ms": 40}, GpuAsk(), (500, ("V100",))),
    ("none is quick enough", {"profiles": ROWS, "slices": "cheapest", "latency_ms": 1}, GpuAsk(), (1000, ())),
    (
        "the model that is asked for",
        {"profiles": (*ROWS, row(100, 90_000, model="A100")), "slices": "cheapest"},
        GpuAsk(models=("A100",)),
        (100, ("A100",)),
    ),
    (
        "of several models none is meant",
        {"profiles": (*ROWS, row(100, 90_000, model="A100")), "slices": "cheapest"},
        GpuAsk(share_milli=300),
        (300, ()),
    ),
]


@pytest.mark.parametrize(("claim", "scaling", "gpu", "asked"), CHEAPEST, ids=[case[0] for case in CHEAPEST])
def test_the_share_of_a_new_replica(
    claim: str, scaling: dict[str, Any], gpu: GpuAsk, asked: tuple[int, tuple[str, ...]]
) -> None:
    """Share and models; all else of the function's ask stays."""
    wanted = Function(name="f", pod=PodTemplate(image="i"), gpu=gpu, scaling=Scaling(metric="rate", **scaling))

    assert (cheapest(wanted).share_milli, cheapest(wanted).models) == asked


def test_a_new_measurement_replaces_the_old_one_of_its_slice() -> None:
    """Of that slice of that model only."""
    faster = row(250, 33_000)

    assert learned(ROWS, faster) == (TINY, LARGE, faster)
    assert learned(ROWS, row(250, 1, model="A100"))[:3] == ROWS


def test_a_rate_needs_a_hundred_calls() -> None:
    """250 calls in 10 s at full load are 25 a second."""
    assert measured_milli(250, 10_000) == 25_000
    assert measured_milli(99, 10_000) is None
    assert measured_milli(250, 0) is None


class Counted:
    """Reports of one replica, a second apart, each 30 calls further; looks before each."""

    def __init__(self) -> None:
        self.meter, self.now_ms, self.done = looked(Meter(), 1, 0), 1000, 0

    def second(self, *, in_flight: int = 4, waiting: int | None = 5, worker: str = "w", seasoned: bool = True) -> None:
        self.meter = looked(self.meter, waiting, self.now_ms + 500)
        self.now_ms, self.done = self.now_ms + 1000, self.done + 30
        report = WorkerReport(worker=worker, replica="f-0", phase="ready", in_flight=in_flight, limit=4, done=self.done)
        self.meter = reported(self.meter, report, ON, now_ms=self.now_ms, seasoned=seasoned)


def test_a_replica_at_full_load_is_measured() -> None:
    """The first report only begins; then 4 times 30 calls in 4 s are more than a hundred."""
    counted = Counted()
    for _ in range(4):
        counted.second()
    assert counted.meter.profiles == ()
    counted.second()
    assert counted.meter.profiles == (row(250, 30_000),)
    assert counted.meter.tallies == {}


NOT_FULL: list[dict[str, Any]] = [{"in_flight": 3}, {"waiting": 0}, {"waiting": None}, {"seasoned": False}]


@pytest.mark.parametrize("second", NOT_FULL, ids=str)
def test_what_is_not_at_full_load_says_nothing(second: dict[str, Any]) -> None:
    """A free hand, nobody waiting, not known whether anybody waits, a replica that is warming up."""
    counted = Counted()
    for _ in range(20):
        counted.second(**second)

    assert (counted.meter.profiles, counted.meter.tallies) == ((), {})


def test_another_process_of_a_replica_begins_anew() -> None:
    """Its count of answers is another one."""
    counted = Counted()
    for n in range(20):
        counted.second(worker=f"w{n}")

    assert (counted.meter.profiles, counted.meter.tallies) == ((), {})
    assert without(counted.meter, frozenset({"f-0"})).last == {}


def test_rows_of_before_stand_in_for_those_that_are_given() -> None:
    """What was measured is newer than what was told."""
    assert begin(ROWS, (row(250, 20_000),)).profiles == (TINY, LARGE, row(250, 20_000))


def test_calls_that_wait_are_load_on_top_of_those_that_come() -> None:
    """30 came in a second; 60 wait, which is one a second for the long window of 60 s. A queue made anew is no load."""
    wanted = Function(name="f", pod=PodTemplate(image="i"), scaling=Scaling(metric="rate"))
    sensing = Sensing(LedgerState, lambda _: None)
    queues = (QueueState(waiting=40, outstanding=0), QueueState(waiting=60, outstanding=9, delivered=10))
    for second, queue in enumerate((*queues, None, QueueState(waiting=0, outstanding=0))):
        sensing.look(wanted, queue, {}, Counts(), second * 1000)

    assert [(sample.at_ms, sample.load_milli) for sample in sensing.samples.items] == [(1000, 31_000)]


STRETCHED = [(100, 4), (150, 3), (200, 2), (300, 2)]


@pytest.mark.parametrize(("percent", "target"), STRETCHED)
def test_stretched_replicas_carry_more(percent: int, target: int) -> None:
    """2.4 calls on 3 replicas: one more at what they were sold, none at half as much again, one fewer at twice that."""
    assert decide(inputs(2400, stretch_percent=percent)).target == target


@given(st.integers(0, 20_000), st.integers(100, 1000))
def test_stretching_never_asks_for_more_replicas(load: int, percent: int) -> None:
    """Whatever the load: a stretched fleet is never larger than one that is not."""
    assert decide(inputs(load, stretch_percent=percent)).target <= decide(inputs(load)).target
