"""The ledger while its server is killed and frozen: what was acknowledged stays, everybody goes on by themselves."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from bus.client import connect
from bus.ledger.append import Ledger, OutcomeUnknown, commit_after
from tests.contract.ledger_world import Writer, begun, judge, note, write
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = pytest.mark.nats

ROUNDS = 4
NOTES = 60
"""Acknowledged between two faults, by each writer."""


async def test_a_server_killed_again_and_again_loses_no_acknowledged_commit(nats_server: NatsServer) -> None:
    """Claim: kill -9 in the middle of writing costs time only; each writer's every acknowledged note is in the log."""
    async with contextlib.AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(connect(nats_server.url, name=name)) for name in ("a", "b")]
        await buses[0].ensure_streams()
        await begun(buses[0])
        writers = [Writer(bus, name) for bus, name in zip(buses, ("a", "b"), strict=True)]
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.run(ROUNDS * NOTES), name=writer.name)
            for fault in range(1, ROUNDS):
                await _acknowledged(writers, fault * NOTES)
                await nats_server.restart()
        proof = await judge(buses[0], *writers)
    assert proof.commits >= 2 * ROUNDS * NOTES


async def test_a_frozen_server_is_an_unknown_outcome_that_is_found_out(nats_server: NatsServer) -> None:
    """Claim: a commit that was sent to a frozen server is stored once, and its author learns that it is."""
    async with connect(nats_server.url, name="a") as bus:
        await bus.ensure_streams()
        ledger = await begun(bus, try_s=0.3)
        nats_server.freeze()
        writing = asyncio.create_task(write(ledger, "a", 1), name="write")
        await asyncio.sleep(1.0)
        assert not writing.done()
        nats_server.thaw()
        async with asyncio.timeout(10):
            await writing
        await write(ledger, "a", 2)
        assert (await judge(bus)).commits == 3


async def test_a_server_that_stays_away_is_an_unknown_outcome_after_the_deadline(nats_server: NatsServer) -> None:
    """Claim: append never hangs; what it did not learn, catching up tells."""
    async with connect(nats_server.url, name="a") as bus:
        await bus.ensure_streams()
        ledger = await begun(bus)
        await nats_server.kill()
        impatient = Ledger(bus, ledger.state, deadline_s=0.5)
        async with asyncio.timeout(5):
            with pytest.raises(OutcomeUnknown):
                await impatient.append(commit_after(ledger.state, [note("a", 1)], author="a"))
        await nats_server.restart()
        await wait_until(lambda: _connected(bus), what="the connection is back")
        assert await impatient.catch_up() == 0
        await write(impatient, "a", 2)
        await judge(bus)


async def _connected(bus: object) -> bool:
    return bool(getattr(bus, "connected", False))


async def _acknowledged(writers: list[Writer], count: int) -> None:
    async def reached() -> bool:
        return all(len(writer.acknowledged) >= count for writer in writers)

    await wait_until(reached, what=f"{count} notes acknowledged by each writer", timeout_s=60)
