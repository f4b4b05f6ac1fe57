"""From a card's failure, or an operator's word, to the last placement on it: monitor, bus and scheduler together.

The monitor and the scheduler run in this process over a real nats-server, the driver is the stand-in; Kubernetes is
played. How soon it is, is measured in `bench/fleet.py`; here it only has to be at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pynvml
import pytest
import pytest_asyncio
from msgspec.structs import replace

from bus.client import connect
from bus.protocol import Bus
from contracts.answers import CardView
from contracts.messages import encode
from contracts.subjects import INVENTORY
from contracts.units import NodeName
from gpubus.client import Client
from monitor.cards.nvml import NvmlCards
from monitor.cards.runner import CardThreads
from monitor.report import Identity
from monitor.service import Monitor
from monitor.settings import MonitoringSettings
from monitor.watch import CardWatch
from tests.contract.scheduler_rig import FakeCluster, Place, deciding
from tests.nvml_stub.stub import GIB, World, build, driver
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = pytest.mark.nats

NODE = "gpu-1"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


class Node:
    """A machine with two cards: its monitor can be started anew, its driver's world changed."""

    def __init__(self, bus: Bus, world: World) -> None:
        self.bus, self.world, self.lives = bus, world, 0

    @contextlib.asynccontextmanager
    async def monitored(self) -> AsyncIterator[Monitor]:
        """One life of its monitor."""
        self.lives += 1
        settings = MonitoringSettings(node=NodeName(NODE), recover_after_s=1, sample_s=0.2, heartbeat_s=0.5)
        who = Identity(node=NodeName(NODE), boot_id="boot", incarnation=f"m-{self.lives}")
        monitor = Monitor(self.bus, CardWatch(NvmlCards(), CardThreads(), settings), who, settings)
        stop = asyncio.Event()
        task = asyncio.create_task(monitor.run(stop), name="monitor")
        try:
            yield monitor
        finally:
            stop.set()
            await task


@pytest_asyncio.fixture
async def node(nats_server: NatsServer, library: Path, tmp_path: Path) -> AsyncIterator[Node]:
    world = World(tmp_path / "world")
    for index in range(2):
        world.card(index, uuid=f"GPU-{index}", name="T4", total=16 * GIB, reserved=GIB, events=8)
    with driver(library, world):
        async with connect(nats_server.url, name="monitor") as bus:
            await bus.ensure_streams()
            yield Node(bus, world)


@pytest_asyncio.fixture
async def place(nats_server: NatsServer, node: Node) -> AsyncIterator[Place]:
    """The cluster around the node, and somebody who asks."""
    async with connect(nats_server.url, name="test") as bus, FakeCluster(bus) as cluster:
        await cluster.facts(NODE)
        yield Place(bus, cluster)


@contextlib.asynccontextmanager
async def scheduled(nats_server: NatsServer) -> AsyncIterator[None]:
    async with connect(nats_server.url, name="scheduler") as bus, deciding(bus, explain_every_s=0.2, policy="packing"):
        yield


async def shows(place: Place, what: str, condition: Callable[[list[CardView]], object]) -> list[CardView]:
    """The cards as the scheduler has them, once they are as the condition says."""
    seen: list[CardView] = []

    async def met() -> bool:
        with contextlib.suppress(Exception):
            seen[:] = await Client(place.bus).cards()
            return bool(seen and condition(seen))
        return False

    await wait_until(met, what=what)
    return seen


def healths(*said: str) -> Callable[[list[CardView]], bool]:
    return lambda cards: [card.health for card in cards] == list(said)


async def test_s061_nothing_is_placed_on_a_card_that_fell_off_the_bus(
    node: Node, place: Place, nats_server: NatsServer
) -> None:
    """Claim: after an Xid 79 the other card takes a pod and the failed one none, though it has room.

    What runs on it stays counted and is shown; after a reset it comes back by itself, and takes the one that waited.
    """
    async with scheduled(nats_server), node.monitored():
        await shows(place, "two cards", healths("healthy", "healthy"))
        await place.submits("resident", 600)
        card = (await place.until("resident", "placed"))["slices"][0]["card"]
        lost = int(card.rpartition("-")[2])
        await asyncio.sleep(0.5)  # the driver tells only what happens after its event set was made
        node.world.happen(lost, 79)
        seen = await shows(place, "the failed card", lambda cards: cards[lost].health == "failed")
        assert seen[lost].reason == "Xid 79: the card has fallen off the bus"
        assert (seen[lost].used_milli, seen[lost].residents) == (600, ("default/resident",))
        await place.submits("first", 1000)
        assert (await place.until("first", "placed"))["slices"][0]["card"] == f"GPU-{1 - lost}"
        await place.submits("second", 400)
        await place.until("second", "pending")

        node.world.card(lost, error=pynvml.NVML_ERROR_GPU_IS_LOST)  # the reset, as looks see it
        await asyncio.sleep(0.6)
        node.world.unset(f"card{lost}.error")
        assert (await place.until("second", "placed"))["slices"][0]["card"] == card
        await place.proved()


async def test_s076_a_cordon_survives_everything_but_being_lifted(
    node: Node, place: Place, nats_server: NatsServer
) -> None:
    """Claim: over restarts of monitor and scheduler, and for a card that leaves the inventory and comes back.

    Its health is shown beside it; given back, it takes pods.
    """
    client = Client(place.bus)
    async with scheduled(nats_server):
        async with node.monitored():
            await shows(place, "two cards", healths("healthy", "healthy"))
            await client.cordon(NODE, "GPU-0", reason="fan is loud", at_ms=7)
            await client.cordon(NODE, "GPU-1", reason="fan is loud too", at_ms=8)
            await shows(place, "two cordons", healths("cordoned", "cordoned"))
            await place.submits("waits", 500)
            told = await place.until("waits", "pending")
            assert any("fan is loud" in reason["text"] for reason in told["reasons"])
        async with node.monitored() as second:
            node.world.card(1, error=pynvml.NVML_ERROR_GPU_IS_LOST)
            seen = await shows(place, "health below the cordon", healths("cordoned", "cordoned, failed"))
            assert seen[1].since_ms == 8
            assert seen[1].reason.startswith("fan is loud too; ")
            await place.bus.store(INVENTORY.subject(node=NODE), _without_cards(second))
            await shows(place, "the other card alone", lambda cards: len(cards) == 1)
            node.world.unset("card1.error")
    async with scheduled(nats_server), node.monitored():
        seen = await shows(place, "both after a restart", healths("cordoned", "cordoned"))
        await client.uncordon(NODE, "GPU-1")
        assert (await place.until("waits", "placed"))["slices"][0]["card"] == "GPU-1"
        await shows(place, "one cordon", healths("cordoned", "healthy"))
        await place.proved()


def _without_cards(monitor: Monitor) -> bytes:
    """An inventory of this monitor that lists the first card only, as after it was taken out of the machine."""
    assert monitor.stored is not None
    return encode(replace(monitor.stored, cards=monitor.stored.cards[:1], sequence=monitor.stored.sequence + 100))
