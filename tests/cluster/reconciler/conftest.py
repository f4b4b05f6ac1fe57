"""`hand`: the reconciler's calls on the real control plane, with a living node."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest_asyncio

from reconciler import kube
from tests.cluster.reconciler.hand import Hand
from tests.servers.control_plane import ControlPlane, HollowNode


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hollow(shared_control_plane: ControlPlane) -> AsyncIterator[HollowNode]:
    """A living node."""
    async with HollowNode(shared_control_plane, f"rcl-{secrets.token_hex(3)}") as made:
        yield made


@pytest_asyncio.fixture
async def hand(control_plane: ControlPlane, hollow: HollowNode) -> AsyncIterator[Hand]:
    namespace = await control_plane.namespace()
    async with kube.connect(kubeconfig=str(control_plane.kubeconfig)) as transport:
        yield Hand(control_plane, namespace, transport, hollow.name)
