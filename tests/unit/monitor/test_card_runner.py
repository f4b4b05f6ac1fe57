"""Blocking calls in lanes: late answers, errors, one that never comes back, and rounds around it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.cards.protocol import DriverLost, DriverSilent, Look
from monitor.cards.runner import CardThreads, Inline, Runner
from monitor.visits import Visits
from tests.servers.process import wait_until


@pytest.fixture(params=[CardThreads, Inline])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    runner = request.param()
    yield runner
    runner.stop()


@pytest.fixture
def threads() -> Iterator[CardThreads]:
    threads = CardThreads()
    yield threads
    threads.stop()


async def back(visits: Visits) -> None:
    """Wait until every call has come back."""

    async def nobody_out() -> bool:
        return not visits.out

    await wait_until(nobody_out, what="the calls come back")


async def test_results_and_errors_come_back(runner: Runner) -> None:
    """Claim: what the function returns or raises is what the caller gets."""

    def broken() -> int:
        raise DriverLost("gone")

    assert await runner.start("driver", lambda: 7) == 7
    with pytest.raises(DriverLost, match="gone"):
        await runner.start("driver", broken)
    assert await runner.start("driver", lambda: 8) == 8


async def test_each_lane_has_one_thread_that_is_not_ours(threads: CardThreads) -> None:
    """Claim: all calls of a lane are made in one thread, those of two lanes in two, none in the event loop's."""
    used = {lane: {await threads.start(lane, threading.get_ident) for _ in range(3)} for lane in ("driver", 0, 1)}

    assert [len(ids) for ids in used.values()] == [1, 1, 1]
    assert len(set.union(*used.values()) | {threading.get_ident()}) == 4


async def test_a_late_error_of_an_abandoned_call_disturbs_nobody(threads: CardThreads) -> None:
    """Claim: an error that comes back after the deadline is dropped without a complaint of the loop."""
    release, complaints = threading.Event(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def fail_late() -> None:
        release.wait()
        raise DriverLost("too late")

    visits = Visits(threads, deadline_s=0.01)
    with pytest.raises(DriverSilent):
        await visits.ask("driver", fail_late)
    release.set()
    assert await threads.start("driver", lambda: 1) == 1
    del visits
    gc.collect()  # the loop complains about an error that nobody took when its future goes
    assert complaints == []


async def test_a_call_that_hangs_costs_its_caller_the_deadline_once_and_nobody_a_second_thread(
    threads: CardThreads,
) -> None:
    """Claim: no answer within the patience, silence at the deadline and at once for the next; a late one counts."""
    release, made = threading.Event(), []
    visits = Visits(threads, deadline_s=0.3)

    def hang() -> str:
        release.wait()
        return "at last"

    assert await visits.ask("driver", hang, patience_s=0.01) is None
    with pytest.raises(DriverSilent):
        await visits.ask("driver", hang)
    before = threading.active_count()
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(DriverSilent):
        await visits.ask("driver", lambda: made.append("in vain"))
    assert loop.time() - began < 0.25
    assert visits.hanging == ("driver",)
    assert threading.active_count() == before
    release.set()
    await back(visits)

    assert await visits.ask("driver", hang) == "at last"
    assert made == []


async def test_a_seat_that_hangs_does_not_hold_up_the_others(threads: CardThreads) -> None:
    """Claim: the round brings those who answered; who is out is waited for, then silent, then there, and not asked."""
    release, asked = threading.Event(), list[int]()
    visits = Visits(threads, deadline_s=0.2)

    def look(seat: int) -> Look:
        asked.append(seat)
        if seat == 1:
            release.wait()
        return Look()

    first = await visits.round((0, 1, 2), look, patience_s=0.05)
    assert (sorted(first.looks), first.waiting, first.silent) == ([0, 2], {1}, {})
    await asyncio.sleep(0.2)
    second = await visits.round((0, 1, 2), look, patience_s=5)
    assert (sorted(second.looks), second.waiting, sorted(second.silent)) == ([0, 2], frozenset(), [1])
    assert asked.count(1) == 1
    release.set()
    await back(visits)
    third = await visits.round((0, 1, 2), look, patience_s=5)

    assert (sorted(third.looks), third.waiting, third.silent) == ([0, 1, 2], frozenset(), {})
    assert asked.count(1) == 1


HANG = """
import asyncio, threading
from monitor.cards.runner import CardThreads
from monitor.cards.protocol import DriverSilent
from monitor.visits import Visits
async def main():
    try:
        await Visits(CardThreads(), deadline_s=0.05).ask("driver", threading.Event().wait)
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
