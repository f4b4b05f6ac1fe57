"""Load from reports, and its averages over windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.readings import Counter, Report, observe, rate_milli, waiting_rate_milli
from autoscaler.core.windows import Average, Sample, Samples, add, average, fills, silent_ms

S = 1000


def told(*readings: tuple[int, int | None], keep_s: int = 60) -> Samples:
    """(second, calls or None) as samples."""
    samples = Samples()
    for at_s, calls in readings:
        load = None if calls is None else calls * S
        samples = add(samples, Sample(at_ms=at_s * S, load_milli=load), keep_s * S)
    return samples


WINDOWS = [
    ("weighted by time", [(0, 10), (4, 20)], 6, 6, Average(load_milli=13_334, covered_ms=6000)),
    ("a sample speaks for six seconds", [(0, 10)], 60, 60, Average(load_milli=10_000, covered_ms=6000)),
    ("then it is not known", [(0, 10)], 60, 6, Average(load_milli=None, covered_ms=0)),
    ("a failed reading makes no gap at once", [(0, 10), (2, None)], 5, 6, Average(load_milli=10_000, covered_ms=5000)),
    ("failures in a row do", [(0, 10), (2, None), (7, None)], 9, 6, Average(load_milli=10_000, covered_ms=3000)),
    ("none at all", [], 6, 6, Average(load_milli=None, covered_ms=0)),
    ("the first, at once", [(5, 7)], 5, 6, Average(load_milli=7000, covered_ms=0)),
    ("a failed first", [(5, None)], 5, 6, Average(load_milli=None, covered_ms=0)),
    ("zero is known", [(0, 0), (2, 0)], 4, 6, Average(load_milli=0, covered_ms=4000)),
    ("one old call is not none", [(0, 1), (1, 0), (6, 0)], 6, 6, Average(load_milli=167, covered_ms=6000)),
]


@pytest.mark.parametrize(("name", "readings", "now", "window", "expected"), WINDOWS, ids=[w[0] for w in WINDOWS])
def test_averages_of_windows(
    name: str, readings: list[tuple[int, int | None]], now: int, window: int, expected: Average
) -> None:
    """Gaps are left out, never counted as zero."""
    assert average(told(*readings), now * S, window * S) == expected


def test_a_window_is_full_when_four_fifths_of_it_are_known() -> None:
    """Forty-seven seconds of sixty are too few, forty-eight are enough."""
    almost = told(*((t, 1) for t in range(48)))

    assert not fills(average(almost, 47 * S, 60 * S), 60 * S)
    assert fills(average(almost, 48 * S, 60 * S), 60 * S)


def test_a_source_that_fails_every_other_time_still_fills_the_window() -> None:
    """Readings each 2 s, half of them lost: four seconds between two, and a sample speaks for six."""
    samples = told(*((t, 5 if t % 4 else None) for t in range(0, 62, 2)))

    assert fills(average(samples, 60 * S, 60 * S), 60 * S)
    assert average(samples, 60 * S, 60 * S).load_milli == 5 * S


def test_old_samples_are_forgotten_and_late_ones_dropped() -> None:
    """The memory is bounded, and time only goes forward."""
    samples = told(*((t, 1) for t in range(1000)))

    assert len(samples.items) == 66
    assert add(samples, Sample(at_ms=10 * S, load_milli=5), 60 * S) == samples


def test_silence_counts_from_the_last_success_or_the_first_try() -> None:
    """Failures do not end it."""
    assert silent_ms(told((1, 5), (2, None), (9, None)), 10 * S) == 9 * S
    assert silent_ms(told((3, None)), 10 * S) == 7 * S
    assert silent_ms(Samples(), 10 * S) == 0


@given(
    st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 10**6)), min_size=1, max_size=30), st.integers(1, 90_000)
)
def test_an_average_lies_between_its_samples(steps: list[tuple[int, int]], window_ms: int) -> None:
    """And never covers more than the window."""
    samples, now_ms = Samples(), 0
    for step_ms, load in steps:
        now_ms += step_ms
        samples = add(samples, Sample(at_ms=now_ms, load_milli=load), 10**9)

    found = average(samples, now_ms, window_ms)

    assert found.covered_ms <= window_ms
    assert found.load_milli is not None
    assert min(load for _, load in steps) <= found.load_milli <= max(load for _, load in steps)


def report(in_flight: int, *, age_s: int = 100, old_s: int = 0) -> Report:
    """A worker that is hot since `age_s`, and said so `old_s` ago; now is 1000 s."""
    return Report(replica="r", at_ms=(1000 - old_s) * S, in_flight=in_flight, hot_since_ms=(1000 - age_s) * S)


def seen(*reports: Report, ready: int, waiting: int | None = 0, outstanding: int | None = None) -> int | None:
    return observe(
        reports,
        now_ms=1000 * S,
        hot_ready=ready,
        waiting=waiting,
        outstanding=outstanding,
        concurrency=10,
        warmup_ms=30 * S,
    )


WORKED = (report(2), report(2), report(9, age_s=5))


def test_a_warming_replica_counts_as_a_seasoned_one() -> None:
    """S137. Worked: 2 + 2 + min(9, 2) + 2 for the silent one + 3 waiting; and from what the bus has delivered."""
    assert seen(*WORKED, ready=4, waiting=3) == 11 * S
    assert seen(*WORKED, ready=4, waiting=3, outstanding=14) == 10 * S


def test_while_all_are_warming_they_are_believed() -> None:
    """There is nobody to compare them with."""
    assert seen(report(9, age_s=1), report(3, age_s=1), ready=2) == 12 * S


def test_one_broken_worker_does_not_stop_the_others() -> None:
    """S124: a silent one of three counts as the two that speak, also when its last word is old."""
    assert seen(report(4), report(4), ready=3) == 12 * S
    assert seen(report(4), report(4), report(9, old_s=6), ready=3) == 12 * S


def test_without_the_bus_nothing_is_known() -> None:
    """S130: also with reports: what waits is a part of the load."""
    assert seen(report(4), ready=1, waiting=None, outstanding=3) is None


def test_lost_reports_are_not_zero_load() -> None:
    """S125: the bus knows what it has delivered; without that, silence is silence."""
    assert seen(ready=2, outstanding=7) == 7 * S
    assert seen(ready=2) is None


def test_at_zero_the_queue_is_the_load() -> None:
    """S156: no replica, no report, and three calls wait."""
    assert seen(ready=0, waiting=3) == 3 * S


def test_workers_that_lie_are_bounded() -> None:
    """No more than it may work on, no less than nothing, and nothing against the count of the bus."""
    assert seen(report(10**9), ready=1) == 10 * S
    assert seen(report(-5), ready=1) == 0
    assert seen(report(10), report(10), ready=2, outstanding=1) == 1 * S
    assert seen(report(0), ready=1, outstanding=6) == 6 * S


def test_rates_come_from_counters_and_a_new_counter_is_not_a_rate() -> None:
    """Ten arrivals in four seconds; a counter that went back, or stood in time, says nothing."""
    before = Counter(at_ms=0, total=100)

    assert rate_milli(before, Counter(at_ms=4000, total=110)) == 2500
    assert rate_milli(before, Counter(at_ms=4000, total=3)) is None
    assert rate_milli(before, Counter(at_ms=0, total=110)) is None
    assert waiting_rate_milli(12, 6000) == 2000
