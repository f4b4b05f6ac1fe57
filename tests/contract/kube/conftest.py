"""`rig`: the API under test, once embedded and once real (marker `cluster`), with a namespace of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from gpubus.local.kube import LocalKube, Machine, Timings
from tests.contract.kube.backends import GPU, Embedded, Real
from tests.contract.kube.rig import Rig, unique

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers.control_plane import ControlPlane, HollowNode

QUICK = Timings(start_s=0.02, stop_s=0.05, node_grace_s=0.3)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hollow_node(shared_control_plane: ControlPlane) -> AsyncIterator[HollowNode]:
    """A living node of the real control plane, shared by the suite."""
    from tests.servers.control_plane import HollowNode

    async with HollowNode(shared_control_plane, unique("gpu")) as node:
        yield node


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
def real(request: pytest.FixtureRequest) -> Real | None:
    """The real backend, None for the embedded one. Not async: it starts fixtures of the session's loop."""
    if request.param == "embedded":
        return None
    return Real(request.getfixturevalue("control_plane"), request.getfixturevalue("hollow_node"))


@pytest.fixture
async def rig(real: Real | None) -> AsyncIterator[Rig]:
    """The API under test."""
    if real is not None:
        yield Rig(real, await real.plane.namespace())
        return
    async with LocalKube(token=Embedded.token, timings=QUICK) as kube:
        kube.add_node(Machine(name=Embedded.node, cpu_milli=8000, extended=GPU))
        rig = Rig(Embedded(kube), unique("test"))
        await rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": rig.namespace}})
        yield rig
