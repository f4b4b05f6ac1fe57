"""Blocking calls with a deadline: late answers, errors, and a thread that never comes back."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.cards.protocol import DriverLost, DriverSilent
from monitor.cards.runner import CardThread, Inline, Runner


@pytest.fixture(params=[CardThread, Inline])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    runner = request.param()
    yield runner
    runner.stop()


async def test_results_and_errors_come_back(runner: Runner) -> None:
    """Claim: what the function returns or raises is what the caller gets."""

    def broken() -> int:
        raise DriverLost("gone")

    assert await runner.call(lambda: 7, deadline_s=5) == 7
    with pytest.raises(DriverLost, match="gone"):
        await runner.call(broken, deadline_s=5)
    assert await runner.call(lambda: 8, deadline_s=5) == 8


async def test_all_calls_are_made_in_one_thread_that_is_not_ours() -> None:
    """Claim: one thread for every call, and the event loop's is not it."""
    runner = CardThread()
    threads = {await runner.call(threading.get_ident, deadline_s=5) for _ in range(5)}
    runner.stop()

    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_a_call_that_hangs_costs_its_caller_the_deadline_and_nobody_a_second_thread() -> None:
    """Claim: DriverSilent at the deadline, again for the next caller with a longer silence, then answers again."""
    runner, release, made = CardThread(), threading.Event(), []
    before = threading.active_count()
    with pytest.raises(DriverSilent) as first:
        await runner.call(release.wait, deadline_s=0.05)
    with pytest.raises(DriverSilent) as second:
        await runner.call(lambda: made.append("in vain"), deadline_s=0.05)
    assert second.value.waited_s > first.value.waited_s + 0.04
    assert threading.active_count() == before
    release.set()

    assert await runner.call(lambda: "here again", deadline_s=5) == "here again"
    assert made == []
    runner.stop()


async def test_a_late_error_of_an_abandoned_call_disturbs_nobody() -> None:
    """Claim: an error that comes back after the deadline is dropped without a complaint of the loop."""
    runner, release, complaints = CardThread(), threading.Event(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def fail_late() -> None:
        release.wait()
        raise DriverLost("too late")

    with pytest.raises(DriverSilent):
        await runner.call(fail_late, deadline_s=0.01)
    release.set()
    assert await runner.call(lambda: 1, deadline_s=5) == 1
    runner.stop()
    gc.collect()  # the loop complains about an error that nobody took when its future goes
    assert complaints == []


HANG = """
import asyncio, threading
from monitor.cards.runner import CardThread
from monitor.cards.protocol import DriverSilent
async def main():
    try:
        await CardThread().call(threading.Event().wait, deadline_s=0.05)
    except DriverSilent:
        print("gave up")
asyncio.run(main())
"""


def test_a_hanging_driver_does_not_hold_up_the_end_of_the_process() -> None:
    """Claim: with a call that never returns the interpreter still ends by itself."""
    done = subprocess.run(
        [sys.executable, "-c", HANG],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )

    assert done.stdout == "gave up\n"
