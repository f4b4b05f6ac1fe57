"""Counters to use and averages: the published vectors, and the repairs of what its readers must not see."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.windows import Averaged, Mark, averaged, increment, use

S = 10**9


def mark(at_s: float, busy_s: float) -> Mark:
    return Mark(at_ns=round(at_s * S), busy_ns=round(busy_s * S))


@pytest.mark.parametrize(
    ("before", "after", "milli"),
    [
        (mark(0, 0), mark(2, 1), 500),
        (mark(10, 3), mark(12, 8), 2500),
        (mark(1, 1), mark(2, 1), 0),
        (mark(0, 0), mark(1, 0.0005), 1),
        (mark(0, 0), mark(1, 0.000499), 0),
        (None, mark(1, 4), None),
        (mark(1, 4), None, None),
        (mark(1, 4), mark(2, 3), None),
        (mark(2, 4), mark(2, 5), None),
        (mark(3, 4), mark(2, 5), None),
    ],
    ids=[
        "half a core", "two and a half", "idle", "half up", "below half", "first sample", "unreadable", "counter reset",
        "no time between", "time goes back",
    ],
)  # fmt: skip
def test_use_between_two_marks(before: Mark | None, after: Mark | None, milli: int | None) -> None:
    """Claim: (a - a₀) × 1000 / (t - t₀), by hand; otherwise unknown, never negative and never 2^64."""
    assert use(before, after) == milli


@pytest.mark.parametrize(
    ("uses", "averages"),
    [
        ([800], [800]),
        ([800, 0], [800, 700]),
        ([0, 800, 800], [0, 100, 188]),
        ([None, 400, None, 480], [None, 400, 400, 410]),
        ([1000] * 3, [1000] * 3),
    ],
    ids=["the first is the mean", "seven eighths stay", "rises slowly", "holes say nothing", "steady"],
)
def test_the_running_mean(uses: list[int | None], averages: list[int | None]) -> None:
    """Claim: (7 × average + use) / 8, from the first use on; a period without use leaves the mean alone."""
    state, seen = Averaged(), []
    for used in uses:
        state = averaged(state, used)
        seen.append(state.average_milli)

    assert seen == averages
    assert state.used_milli == uses[-1]


def test_an_idle_mean_reaches_zero() -> None:
    """Claim: the digits below a thousandth are carried, so 7/8 of a small number does not stick."""
    state = averaged(Averaged(), 3)
    for _ in range(30):
        state = averaged(state, 0)

    assert state.average_milli == 0


@pytest.mark.parametrize(
    ("counter", "window", "rise"),
    [
        ([0, 10, 20, 35], 2, 12),
        ([0, 10, 20, 35], 10, 11),
        ([0, 10, 20, 35], 3, 11),
        ([0, 10, 20, 35], 1, 15),
        ([5], 2, 0),
        ([], 2, 0),
        ([0, 10, 20, 35], 0, 0),
        ([0, 10, 3, 9], 3, 8),
        ([9, 3], 1, 0),
    ],
    ids=["two", "more than there are", "all", "one", "single", "empty", "no window", "reset inside", "only a reset"],
)
def test_the_mean_increment(counter: list[int], window: int, rise: int) -> None:
    """Claim: KuScale's three vectors, its two crashes answered by 0, and a reset that is left out of the mean."""
    assert increment(counter, window) == rise


marks = st.builds(Mark, at_ns=st.integers(0, 2**63), busy_ns=st.integers(0, 2**64))


@settings(deadline=None)  # a busy machine is no failure
@given(marks, marks, st.lists(st.one_of(st.none(), st.integers(0, 10**7)), max_size=20))
def test_use_is_never_negative_and_a_mean_lies_among_its_uses(a: Mark, b: Mark, uses: list[int | None]) -> None:
    """Claim: for any two marks None or at least 0; for any uses between the least and the most of them."""
    found = use(a, b)
    state = Averaged()
    for used in uses:
        state = averaged(state, used)
    known = [used for used in uses if used is not None]

    assert found is None or found >= 0
    assert state.average_milli is None if not known else min(known) - 1 <= (state.average_milli or 0) <= max(known)
