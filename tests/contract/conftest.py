"""Both buses behind one fixture: the suite in test_bus*.py runs on the one in memory and on a real nats-server.

And a pod in real cgroups, for those that watch or limit one.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from bus.protocol import Bus
from tests.contract.bus_worlds import MemoryWorld, NatsWorld, World
from tests.servers.cgroups import RealPod
from tests.servers.natsd import NatsServer


@pytest_asyncio.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.nats)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    async with NatsServer() as server, contextlib.AsyncExitStack() as stack:
        yield NatsWorld(server.url, stack)


@pytest.fixture
def pod() -> Iterator[RealPod]:
    """A pod in the cgroups of this machine; whoever asks for it is skipped where `tests.servers.cgroups` says why."""
    pod = RealPod()
    yield pod
    pod.remove()


@pytest_asyncio.fixture
async def bus(world: World) -> Bus:
    one = await world.client("one")
    await one.ensure_streams()
    return one
