"""Fixtures on real servers, started only when a test asks for them.

`nats_server`: a fresh nats-server for one test. `shared_nats`: one for the whole session (name your
streams uniquely, do not kill it). `nats_cluster`: three servers for one test. `control_plane`, `jaeger`:
one each for the session, of the programs that tests/cluster/build.sh builds; without them such a test is
skipped on a developer's machine and fails where CI=true.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers.control_plane import ControlPlane
    from tests.servers.jaegerd import Jaeger
    from tests.servers.natsd import NatsCluster, NatsServer


# Shared machines pause; a slow example is no failing one. Where CI=true the examples are those of every run, so that a
# change is judged by what it changed; new ones are drawn on developers' machines, where somebody looks at the find.
settings.register_profile("gpubus", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI", "").lower() in {"1", "true"} else "gpubus")


def require_programs(*names: str) -> None:
    """Skip (or, where CI=true, fail) the test that needs programs which have not been built."""
    from tests.servers import binaries

    if not (missing := binaries.missing(*names)):
        return
    reason = f"not built: {', '.join(missing)} (run tests/cluster/build.sh)"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest_asyncio.fixture
async def nats_server() -> AsyncIterator[NatsServer]:
    """A nats-server of this test alone."""
    from tests.servers.natsd import NatsServer

    async with NatsServer() as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_nats() -> AsyncIterator[NatsServer]:
    """One nats-server for every test of the session."""
    from tests.servers.natsd import NatsServer

    async with NatsServer() as server:
        yield server


@pytest_asyncio.fixture
async def nats_cluster() -> AsyncIterator[NatsCluster]:
    """Three nats-servers of this test alone, with a JetStream leader elected."""
    from tests.servers.natsd import NatsCluster

    async with NatsCluster() as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_control_plane() -> AsyncIterator[ControlPlane]:
    """A real etcd, API server and controllers for the session; tests ask for `control_plane`."""
    from tests.servers import binaries

    require_programs(*binaries.CLUSTER)
    from tests.servers.control_plane import ControlPlane

    async with ControlPlane() as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def control_plane(shared_control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The one of the session; make your own namespace and node names in it. No pod of a module outlives the module.

    A reconciler serves the pods of every namespace: one that another module left would be work that no test expects.
    """
    yield shared_control_plane
    await shared_control_plane.delete_pods()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own_control_plane() -> AsyncIterator[ControlPlane]:
    """As `control_plane`, for one module alone: a ledger that begins counts every pod with our annotations."""
    from tests.servers import binaries

    require_programs(*binaries.CLUSTER)
    from tests.servers.control_plane import ControlPlane

    async with ControlPlane() as plane:
        yield plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def jaeger() -> AsyncIterator[Jaeger]:
    """A real Jaeger for the session; use trace ids of your own."""
    from tests.servers import binaries

    require_programs(*binaries.JAEGER)
    from tests.servers.jaegerd import Jaeger

    async with Jaeger() as server:
        yield server
