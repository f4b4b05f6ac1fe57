"""Fixtures on real servers, started only when a test asks for them.

`nats_server`: a fresh nats-server for one test. `shared_nats`: one for the whole session (name your streams
uniquely). `nats_cluster`: three servers for one test. `control_plane`, `jaeger`: one each for the session,
of the programs that tests/cluster/build.sh builds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers.natsd import NatsCluster, NatsServer


@pytest_asyncio.fixture
async def nats_server() -> AsyncIterator[NatsServer]:
    """A nats-server of this test alone."""
    from tests.servers.natsd import NatsServer

    async with NatsServer() as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_nats() -> AsyncIterator[NatsServer]:
    """One nats-server for every test of the session; do not kill it."""
    from tests.servers.natsd import NatsServer

    async with NatsServer() as server:
        yield server


@pytest_asyncio.fixture
async def nats_cluster() -> AsyncIterator[NatsCluster]:
    """Three nats-servers of this test alone, with a JetStream leader elected."""
    from tests.servers.natsd import NatsCluster

    async with NatsCluster() as cluster:
        yield cluster
