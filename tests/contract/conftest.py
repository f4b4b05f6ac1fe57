"""Both buses behind one fixture: the suite in test_bus*.py runs on the one in memory and on a real nats-server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bus.protocol import Bus
from tests.contract.bus_worlds import MemoryWorld, NatsWorld, World
from tests.servers.natsd import NatsServer


@pytest_asyncio.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.nats)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    async with NatsServer() as server, contextlib.AsyncExitStack() as stack:
        yield NatsWorld(server.url, stack)


@pytest_asyncio.fixture
async def bus(world: World) -> Bus:
    one = await world.client("one")
    await one.ensure_streams()
    return one
