"""Knowing the present ledger: true by evidence, false by the clock alone. On virtual time and the bus in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from bus.ledger.state import LedgerState
from bus.memory import InMemoryBus, MemoryServer
from contracts.subjects import LEDGER
from reconciler.freshness import Freshness

pytestmark = pytest.mark.looptime


@contextlib.asynccontextmanager
async def watched(sequence: int = 0) -> AsyncIterator[tuple[Freshness, LedgerState, InMemoryBus]]:
    server = MemoryServer()
    server.create_streams()
    bus = InMemoryBus(server, "r")
    state = LedgerState(sequence=sequence)
    freshness = Freshness(bus, state)
    task = asyncio.create_task(freshness.run(), name="freshness")
    try:
        yield freshness, state, bus
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_an_empty_log_is_known_at_once() -> None:
    """There is nothing to have missed."""
    async with watched() as (freshness, _, _bus):
        assert not freshness.fresh
        await asyncio.sleep(0.1)
        assert freshness.fresh


async def test_a_commit_that_is_not_folded_makes_it_stale() -> None:
    """Until it is folded, however long that takes; then it is fresh again."""
    async with watched() as (freshness, state, bus):
        await asyncio.sleep(0.1)
        await bus.store(LEDGER.subject(pool="default"), b"x")
        await asyncio.sleep(10)
        assert not freshness.fresh

        state.sequence = 1
        freshness.folded()
        await asyncio.sleep(0.6)  # what was confirmed was asked long ago; the next question comes soon
        assert freshness.fresh


async def test_the_log_of_another_pool_does_not_matter() -> None:
    """The stream is shared; only our pool's last commit counts."""
    async with watched() as (freshness, _, bus):
        await bus.store(LEDGER.subject(pool="other"), b"x")
        await asyncio.sleep(10)

        assert freshness.fresh


async def test_without_an_answer_it_ends_by_the_clock() -> None:
    """A bus that is away for three seconds means that somebody may have decided without us knowing."""
    async with watched() as (freshness, _, bus):
        await asyncio.sleep(0.1)
        bus.drop()
        await asyncio.sleep(2.0)
        assert freshness.fresh
        await asyncio.sleep(1.5)
        assert not freshness.fresh

        bus.restore()
        await asyncio.sleep(3)
        assert freshness.fresh
