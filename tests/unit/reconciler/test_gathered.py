"""News of many nodes at once: others get their turn in between, and what may not be said now is said later."""

from __future__ import annotations

import asyncio

import pytest

from reconciler.publishing import TOLD_AT_ONCE, Gathered

pytestmark = pytest.mark.looptime

NAMES = [f"n{number:04}" for number in range(20 * TOLD_AT_ONCE)]


async def test_a_whole_cluster_of_news_leaves_turns_to_others() -> None:
    """Else a lease is not renewed meanwhile, the right to speak is lost, and everything begins anew, for ever."""
    told: list[str] = []
    turns = 0
    begun, done = asyncio.Event(), asyncio.Event()

    def tell(name: str) -> None:
        told.append(name)
        begun.set()
        if len(told) == len(NAMES):
            done.set()

    async def other() -> None:
        nonlocal turns
        await begun.wait()
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    gathered = Gathered(0.01, lambda: True)
    task = asyncio.create_task(gathered.run(tell), name="gathered")
    gathered.add(NAMES)
    await other()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert told == NAMES
    assert turns >= len(NAMES) // TOLD_AT_ONCE - 2


async def test_what_may_not_be_said_any_more_waits() -> None:
    """It stops within one portion, and forgets nothing."""
    told: list[str] = []
    most = 3 * TOLD_AT_ONCE
    gathered = Gathered(0.01, lambda: len(told) < most)
    task = asyncio.create_task(gathered.run(told.append), name="gathered")
    gathered.add(NAMES)
    await asyncio.sleep(1.0)
    assert len(told) == most

    most = 10**9
    gathered.add(["n0000"])
    await asyncio.sleep(1.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert sorted(set(told)) == NAMES
