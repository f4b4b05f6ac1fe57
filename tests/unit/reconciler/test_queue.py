"""Work by key, on virtual time: ordered within a key, parallel across, patient with failures."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from reconciler.backoff import Backoff
from reconciler.queue import WorkQueue

pytestmark = pytest.mark.looptime


def queue(**more: float) -> WorkQueue:
    made = WorkQueue(rng=random.Random(1), **more)
    made.gate.set()
    return made


@contextlib.asynccontextmanager
async def working(q: WorkQueue, work: Callable[[str], Awaitable[None]], width: int = 4) -> AsyncIterator[None]:
    task = asyncio.create_task(q.run(work, width=width), name="queue")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        q.close()


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_key_is_never_worked_on_twice_at_once() -> None:
    """What happens to it meanwhile is worked on afterwards, once, however often it happened."""
    began: list[tuple[str, float]] = []

    async def work(key: str) -> None:
        began.append((key, now()))
        await asyncio.sleep(10)

    q = queue()
    async with working(q, work):
        q.add("a")
        await asyncio.sleep(1)
        for _ in range(5):
            q.add("a")
        await asyncio.sleep(30)

    assert [key for key, _ in began] == ["a", "a"]
    assert began[1][1] - began[0][1] >= 10


async def test_keys_are_worked_on_side_by_side_up_to_the_width() -> None:
    """Six keys of ten seconds take twenty with four workers."""
    ended: list[float] = []

    async def work(key: str) -> None:
        await asyncio.sleep(10)
        ended.append(now())

    q = queue()
    began = now()
    async with working(q, work):
        for key in "abcdef":
            q.add(key)
        await asyncio.sleep(100)

    assert [round(at - began) for at in ended] == [10, 10, 10, 10, 20, 20]


async def test_a_closed_gate_holds_everything_and_loses_nothing() -> None:
    """Keys gather while this process may not act."""
    done: list[str] = []

    async def work(key: str) -> None:
        done.append(key)

    q = queue()
    q.gate.clear()
    async with working(q, work):
        q.add("a")
        q.add("b")
        await asyncio.sleep(60)
        assert done == []

        q.gate.set()
        await asyncio.sleep(1)

    assert sorted(done) == ["a", "b"]
    assert len(q) == 0


async def test_a_failing_key_comes_back_ever_later_and_others_go_on() -> None:
    """Pauses grow to the cap; success makes the next failure cheap again."""
    tries: list[float] = []
    others: list[str] = []

    async def work(key: str) -> None:
        if key != "bad":
            others.append(key)
            return
        tries.append(now())
        q.failed(key)

    q = queue(base_s=1.0, cap_s=8.0)
    async with working(q, work):
        q.add("bad")
        await asyncio.sleep(0.5)
        q.add("good")
        await asyncio.sleep(300)

    gaps = [b - a for a, b in itertools.pairwise(tries)]
    assert others == ["good"]
    assert max(gaps) <= 8.0
    assert sum(gaps[:3]) <= 1 + 2 + 4
    assert 300 / 8 <= len(tries) <= 150  # full jitter halves the mean of 8 s


async def test_news_does_not_wait_for_a_pause() -> None:
    """A key that waits for its next try is worked on at once when something happened to it."""
    tries: list[float] = []

    async def work(key: str) -> None:
        tries.append(now())

    q = queue()
    async with working(q, work):
        q.add_later("a", 1000)
        await asyncio.sleep(1)
        q.add("a")
        await asyncio.sleep(2000)

    assert len(tries) == 1


async def test_the_earlier_of_two_appointments_stands() -> None:
    """And only one of them is kept."""
    tries: list[float] = []

    async def work(key: str) -> None:
        tries.append(now())

    q = queue()
    began = now()
    async with working(q, work):
        q.add_later("a", 100)
        q.add_later("a", 50)
        q.add_later("a", 70)
        await asyncio.sleep(500)

    assert [round(at - began) for at in tries] == [50]


async def test_retry_after_is_honoured() -> None:
    """No earlier than the server said, whatever the jitter."""
    q = queue(base_s=0.1, cap_s=0.2)

    assert q.failed("a", at_least_s=30.0) == 30.0
    q.close()


def test_pauses_grow_within_bounds_and_begin_again() -> None:
    """Full jitter over a doubling ceiling; a day of failures computes no huge number."""
    pause = Backoff(base_s=0.5, cap_s=30.0, rng=random.Random(7))
    pauses = [pause() for _ in range(5000)]

    assert all(0 <= p <= 30 for p in pauses)
    assert pauses[0] <= 0.5
    assert pauses[1] <= 1.0
    assert sum(pauses[10:]) / len(pauses[10:]) == pytest.approx(15, rel=0.1)
    pause.reset()
    assert pause() <= 0.5
