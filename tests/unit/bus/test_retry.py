"""Retries on virtual time: bounded by tries and seconds, jittered, cancellable, and with the last reason told."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.protocol import BusError, BusUnavailable, SequenceConflict, StreamFull
from bus.runtime.retry import GaveUp, reason_of, retrying

pytestmark = pytest.mark.looptime


class Flaky:
    """Fails a number of times, then works; remembers when it was called."""

    def __init__(self, failures: int, error: Exception | None = None, takes_s: float = 0.0) -> None:
        self.left = failures
        self.error = error or BusUnavailable("nobody there")
        self.takes_s = takes_s
        self.at: list[float] = []

    async def __call__(self, *args, **kwargs):
        self.at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_s)
        if self.left > 0:
            self.left -= 1
            raise self.error
        return args, kwargs


async def test_a_call_that_works_is_made_once():
    """No pause, no log, and its arguments and result pass through."""
    call = Flaky(0)

    assert await retrying("x", attempts=3)(call, 1, b=2) == ((1,), {"b": 2})
    assert call.at == [0.0]


async def test_it_is_tried_until_it_works():
    """Three failures, then the result."""
    call = Flaky(3)

    await retrying("x", attempts=4)(call)

    assert len(call.at) == 4


async def test_attempts_bound_the_tries_and_gave_up_tells_all():
    """After the last try comes GaveUp with the count, the time, and the last error as its cause."""
    call = Flaky(99)

    with pytest.raises(
        GaveUp, match=r"store it: gave up after 3 tries in .* s: BusUnavailable: nobody there"
    ) as caught:
        await retrying("store it", attempts=3)(call)

    assert 3 == len(call.at) == caught.value.attempts
    assert call.error is caught.value.last is caught.value.__cause__


async def test_deadline_bounds_the_time_on_the_clock_of_the_loop():
    """An hour of retries ends at the hour: the last pause is cut to fit, and no try begins after it."""
    call = Flaky(10**9)

    with pytest.raises(GaveUp) as caught:
        await retrying("x", deadline_s=3600.0, base_s=10, max_s=60, rng=random.Random(1))(call)

    assert pytest.approx(caught.value.elapsed_s) == 3600.0
    assert pytest.approx(call.at[-1]) == 3600.0
    assert caught.value.attempts > 60


async def test_a_slow_call_is_not_cut_but_not_repeated_after_the_deadline():
    """The bound says when no further try begins; each call has its own timeout."""
    call = Flaky(99, takes_s=7.0)

    with pytest.raises(GaveUp) as caught:
        await retrying("x", deadline_s=10.0, base_s=0.5, max_s=0.5)(call)

    assert caught.value.attempts == 2
    assert 14.0 <= caught.value.elapsed_s <= 15.0


async def test_one_try_when_there_is_no_time():
    """A deadline of zero still tries once."""
    call = Flaky(99)

    with pytest.raises(GaveUp, match="after 1 try"):
        await retrying("x", deadline_s=0.0)(call)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_pauses_are_jittered_exponential_and_capped(seed):
    """Pause n lies in 0..min(max, base * 2^(n-1)), whatever the seed, far beyond where powers overflow."""
    pauses = [
        retrying("x", attempts=1, base_s=0.1, max_s=5.0, rng=random.Random(seed))._pause_s(n)
        for n in (1, 2, 6, 7, 9999)
    ]

    assert all(0 <= pause <= top for pause, top in zip(pauses, (0.1, 0.2, 3.2, 5.0, 5.0), strict=True))


async def test_two_clients_do_not_come_back_together():
    """Different draws give different times: a broken server is not hit by all at once."""
    first, second = Flaky(5), Flaky(5)

    await retrying("x", attempts=9, rng=random.Random(1))(first)
    began = asyncio.get_running_loop().time()
    await retrying("x", attempts=9, rng=random.Random(2))(second)

    apart = [abs(one - (other - began)) for one, other in zip(first.at, second.at, strict=True)]
    assert max(apart) > 0.01


@pytest.mark.parametrize("error", [SequenceConflict("s", 1, 2), StreamFull("full"), BusError("b"), ValueError("ours")])
async def test_other_errors_pass_through_at_once(error):
    """Only the world's faults are worth another try."""
    call = Flaky(99, error)

    with pytest.raises(type(error)) as caught:
        await retrying("x", attempts=5)(call)

    assert error is caught.value
    assert len(call.at) == 1


async def test_what_is_retried_is_chosen_by_the_caller():
    """A tuple of error types."""
    call = Flaky(2, StreamFull("full"))

    await retrying("x", on=(BusUnavailable, StreamFull), attempts=3)(call)

    assert len(call.at) == 3


@pytest.mark.parametrize("takes_s", [0.0, 100.0], ids=["in a pause", "in a call"])
async def test_cancellation_ends_it_at_once(takes_s):
    """Neither the pause nor the call is finished, and no further try is made."""
    call = Flaky(99, takes_s=takes_s)
    task = asyncio.create_task(retrying("x", attempts=99, base_s=1000, max_s=1000, rng=random.Random(3))(call))
    await asyncio.sleep(0.5)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert asyncio.get_running_loop().time() == 0.5
    assert len(call.at) == 1


async def test_each_failure_is_logged_with_its_reason(caplog):
    """What, which try, how long the pause, and why."""
    with caplog.at_level(logging.WARNING):
        await retrying("store the commit", attempts=3)(Flaky(2))

    (first, second) = caplog.records
    assert first.getMessage() == "store the commit failed, trying again"
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.reason == "BusUnavailable: nobody there"
    assert first.pause_s >= 0


def test_unbounded_is_refused():
    """Nothing is retried for ever."""
    with pytest.raises(ValueError, match="attempts or deadline_s"):
        retrying("x")


def test_reason_of_an_error_without_text_is_its_name():
    """TimeoutError() prints as an empty string."""
    assert reason_of(TimeoutError()) == "TimeoutError"
