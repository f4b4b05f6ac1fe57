"""`world`: a ledger that the test writes and an API server with one node; fakes in this process, or real servers.

Tests choose with `everywhere` (both) or `fakes` of `worlds.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bus.client import connect as connect_nats
from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import Bus
from gpubus.local.kube import LocalKube, Machine, Timings
from reconciler import kube
from tests.contract.kube.backends import GPU, Embedded, Real
from tests.contract.kube.rig import Rig, unique
from tests.contract.reconciler.rig import Author
from tests.contract.reconciler.worlds import World
from tests.servers.control_plane import HollowNode
from tests.servers.natsd import NatsServer


@pytest_asyncio.fixture
async def buses(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Bus, Bus]]:
    """One for the reconciler, one for everybody else; `request.param` says of what kind."""
    async with _buses(request.param) as made:
        yield made


@pytest_asyncio.fixture
async def fresh(buses: tuple[Bus, Bus]) -> AsyncIterator[tuple[Bus, Bus]]:
    """Two more of the same kind, on a server of their own with empty streams."""
    async with _buses("memory" if isinstance(buses[0], InMemoryBus) else "nats") as made:
        yield made


@contextlib.asynccontextmanager
async def _buses(kind: str) -> AsyncIterator[tuple[Bus, Bus]]:
    if kind == "memory":
        server = MemoryServer()
        server.create_streams()
        yield InMemoryBus(server, "reconciler"), InMemoryBus(server, "test")
        return
    async with NatsServer() as nats, connect_nats(nats.url, name="a") as one, connect_nats(nats.url, name="b") as two:
        await one.ensure_streams()
        yield one, two


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_node(request: pytest.FixtureRequest) -> AsyncIterator[HollowNode]:
    """A living node of the real control plane."""
    plane = request.getfixturevalue("shared_control_plane")
    async with HollowNode(plane, unique("rec")) as node:
        yield node


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Real | None:
    """The real backend, None for the embedded one."""
    if request.param == "embedded":
        return None
    return Real(request.getfixturevalue("control_plane"), request.getfixturevalue("shared_node"))


@pytest_asyncio.fixture
async def rig(real: Real | None) -> AsyncIterator[Rig]:
    if real is not None:
        yield Rig(real, await real.plane.namespace())
        return
    async with LocalKube(token=Embedded.token, timings=Timings(start_s=0.02, stop_s=0.05, node_grace_s=0.3)) as local:
        local.add_node(Machine(name=Embedded.node, cpu_milli=8000, extended=GPU))
        made = Rig(Embedded(local), unique("test"))
        await made.call("POST", "/api/v1/namespaces", {"metadata": {"name": made.namespace}})
        yield made


@pytest_asyncio.fixture
async def world(rig: Rig, buses: tuple[Bus, Bus], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A ledger with the node in it, and an API server with the node alive."""
    path = tmp_path_factory.mktemp("kube") / "config"
    backend = rig.backend
    if isinstance(backend, Real):
        backend.plane.write_kubeconfig(path, backend.token)
    elif isinstance(backend, Embedded):
        backend.kube.write_kubeconfig(path)
    async with kube.connect(kubeconfig=str(path)) as server:
        author = await Author.open(buses[1], namespace=rig.namespace)
        await author.node(backend.node)
        yield World(rig, buses[0], buses[1], server, author)
