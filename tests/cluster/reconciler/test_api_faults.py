"""A reconciler whose API server misbehaves: seldom asked while it does, and everything done soon after it stops.

The servers are real; the faults come from a proxy before the API server. In each fault decisions are made that nobody
can carry out; what a minute of it looks like is told by the tests of the parts on virtual time.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from bus.client import connect as connect_nats
from bus.protocol import Bus
from reconciler import kube, marks
from reconciler.plan import pod_of
from reconciler.service import Reconciler
from tests.contract.reconciler.rig import QUICK, Author, running
from tests.servers.api_proxy import ApiProxy, Mood
from tests.servers.control_plane import ControlPlane
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]

SETTINGS = msgspec.structs.replace(QUICK, kube=msgspec.structs.replace(QUICK.kube, timeout_s=2.0))
DECISIONS = 40
WINDOW_S = 3.0
FIRST_S = 1.0
"""What was on its way when it began, and the first tries again, before the pauses grow."""
AT_MOST = 100
"""Requests in the window after that; they are about ten. Keys that each knock for themselves are some five hundred;
without a pause between lists, thousands. Over longer times it is under one a second, which virtual time shows."""
BACK_WITHIN_S = 30.0


class World:
    """A reconciler behind the proxy, and the author of its ledger."""

    def __init__(self, proxy: ApiProxy, plane: ControlPlane, author: Author, reconciler: Reconciler) -> None:
        self.proxy, self.plane, self.author, self.reconciler = proxy, plane, author, reconciler

    async def decide(self) -> list[str]:
        """Forty decisions in one commit; the names of their pods."""
        author = self.author
        pairs = [author.placing(on="n-faults", index=index, share=1, memory=1) for index in range(DECISIONS)]
        await author.write(*(record for pair in pairs for record in pair))
        return [pod_of(author.ledger.state.requests[accepted.uid]) for accepted, _ in pairs]

    async def bound(self, names: list[str]) -> None:
        """Wait until the API server itself says that each is bound, by its own decision."""

        async def all_of_them() -> bool:
            listed = await self.plane.api("GET", f"/api/v1/namespaces/{self.author.namespace}/pods")
            found = {pod["metadata"]["name"]: pod for pod in listed.body["items"]}
            done = {
                n
                for n, p in found.items()
                if marks.bound_by_us(p["metadata"]["annotations"], p["spec"].get("nodeName", ""))
            }
            return done >= set(names)

        await wait_until(all_of_them, what="all are bound", timeout_s=BACK_WITHIN_S, every_s=0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(own_control_plane: ControlPlane) -> AsyncIterator[World]:
    """With one node that is an object only: nothing here runs."""
    plane = own_control_plane
    namespace = await plane.namespace("faults")
    await plane.api("POST", "/api/v1/nodes", {"metadata": {"name": "n-faults"}})
    async with (
        NatsServer() as nats,
        connect_nats(nats.url, name="reconciler") as bus,
        connect_nats(nats.url, name="author") as other,
        ApiProxy(plane, slow_s=0.5) as proxy,
        kube.connect(url=proxy.url) as transport,
    ):
        await bus.ensure_streams()
        author = await _author(other, namespace)
        async with running(bus, transport, SETTINGS, incarnation=f"r-{secrets.token_hex(3)}") as reconciler:
            yield World(proxy, plane, author, reconciler)


async def _author(bus: Bus, namespace: str) -> Author:
    author = await Author.open(bus, namespace=namespace)
    await author.node("n-faults")
    return author


@pytest.mark.parametrize("mood", ["frozen", "html", "too-old", "throttled", "down"])
async def test_in_trouble_it_asks_seldom_and_afterwards_all_is_done(world: World, mood: Mood) -> None:
    """Forty decisions come in while it lasts; each has its pod, bound, within half a minute of the end."""
    await world.proxy.turn(mood)
    try:
        names = await world.decide()
        await asyncio.sleep(FIRST_S)
        since = time.monotonic()
        await asyncio.sleep(WINDOW_S)
        asked = world.proxy.asked(since)
        assert mood == "too-old" or asked <= AT_MOST
    finally:
        await world.proxy.turn("well")
    await world.bound(names)
    assert mood != "too-old" or asked <= AT_MOST + 2 * DECISIONS, "a create and a binding each, and few lists"


async def test_a_slow_api_server_is_waited_for(world: World) -> None:
    """Answers that take a quarter of what a call may take are answers: nothing is done twice, nothing is given up."""
    await world.proxy.turn("slow")
    try:
        names = await world.decide()
        await world.bound(names)
    finally:
        await world.proxy.turn("well")
    assert not world.reconciler.worker.refusals()
