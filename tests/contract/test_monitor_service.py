"""`python -m monitor` over a real nats-server and a stand-in driver, as a stranger's subscriber sees it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import nats
import pynvml
import pytest

from bus.client import connect
from contracts.inventory import CordonCard, Heartbeat, NodeInventory
from contracts.messages import encode
from contracts.subjects import CORDONS, INVENTORY
from contracts.units import CardUuid, NodeName
from contracts.usage import NodeUsage
from tests.nvml_stub.stub import GIB, MIB, World, build, environment
from tests.servers.process import ServerProcess, wait_until

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from tests.servers.natsd import NatsServer

pytestmark = pytest.mark.nats

ROOT = Path(__file__).parents[2]
SUBJECT = "gpubus.v1.nodes.gpu-7_example"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
EVERYTHING = f"{SUBJECT}.*"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "world")
    for index in range(2):
        world.card(
            index, uuid=f"GPU-{index}", name="Tesla T4", total=15360 * MIB, reserved=450 * MIB, used=2 * GIB,
            util=40, power_mw=70_000, temperature=55, processes=f"{os.getpid()}:{2 * GIB}",
        )  # fmt: skip
    return world


class Stranger:
    """Everything said about the node, by kind, in order; plain nats-py and JSON."""

    def __init__(self) -> None:
        self.heartbeats: list[Heartbeat] = []
        self.usage: list[NodeUsage] = []
        self.inventories: list[NodeInventory] = []
        self.heard_at: list[float] = []

    async def take(self, message: Msg) -> None:
        kind = message.subject.rpartition(".")[2]
        if kind == "heartbeat":
            self.heartbeats.append(msgspec.json.decode(message.data, type=Heartbeat))
            self.heard_at.append(time.monotonic())
        elif kind == "usage":
            self.usage.append(msgspec.json.decode(message.data, type=NodeUsage))
        elif kind == "inventory":
            self.inventories.append(msgspec.json.decode(message.data, type=NodeInventory))

    async def hears(self, what: str, condition: Callable[[], object], timeout_s: float = 10) -> None:
        async def met() -> object:
            return condition()

        await wait_until(met, what=what, timeout_s=timeout_s)


@pytest.fixture
async def stranger(nats_server: NatsServer) -> AsyncIterator[Stranger]:
    async with connect(nats_server.url, name="operator") as bus:
        await bus.ensure_streams()
    stranger = Stranger()
    client = await nats.connect(nats_server.url)
    await client.subscribe(EVERYTHING, cb=stranger.take)
    await client.flush()
    yield stranger
    await client.close()


@pytest.fixture
async def start(
    nats_server: NatsServer, library: Path, world: World, tmp_path: Path
) -> AsyncIterator[Callable[..., ServerProcess]]:
    """Start a monitor with settings given as `deadline=...`; all of them end with the test."""
    started: list[ServerProcess] = []

    def launch(**settings: Any) -> ServerProcess:
        env = environment(library, world) | {
            "GPUBUS_NATS__URLS": nats_server.url,
            "GPUBUS_MONITOR__NODE": "gpu-7.example",
            "PYTHONPATH": str(ROOT),
            **{f"GPUBUS_MONITOR__{key.upper()}": str(value) for key, value in settings.items()},
        }
        log = tmp_path / f"monitor-{len(started)}.log"
        monitor = ServerProcess("monitor", [sys.executable, "-m", "monitor"], log, env=env)
        monitor.launch()
        started.append(monitor)
        return monitor

    yield launch
    for monitor in started:
        await monitor.kill()
        print(monitor.log_tail())  # noqa: T201 - pytest shows it when the test fails


async def ended(monitor: ServerProcess, within_s: float) -> float:
    """How long it took to end after SIGTERM."""
    began = time.monotonic()
    os.kill(monitor.pid, signal.SIGTERM)

    async def gone() -> bool:
        return not monitor.running

    await wait_until(gone, what="the monitor ends after SIGTERM", timeout_s=within_s)
    return time.monotonic() - began


async def test_a_stranger_sees_inventory_heartbeats_and_usage(
    stranger: Stranger, start: Callable[..., ServerProcess], nats_server: NatsServer
) -> None:
    """Claim: stored inventory with sellable memory, heartbeats that count up, usage each second, host CPU included."""
    monitor = start()
    await stranger.hears("four usage messages", lambda: len(stranger.usage) >= 4)
    inventory = stranger.inventories[0]

    assert [(c.uuid, c.model, c.sellable_mib, c.health) for c in inventory.cards] == [
        ("GPU-0", "Tesla T4", 14_910, "healthy"), ("GPU-1", "Tesla T4", 14_910, "healthy")
    ]  # fmt: skip
    assert (inventory.node, inventory.driver_version) == ("gpu-7.example", "570.86.15")
    assert inventory.boot_id == BOOT_ID.read_text().strip()  # noqa: ASYNC240 - a file of /proc does not block
    async with connect(nats_server.url, name="reader") as bus:
        kept = await bus.last("GPUBUS_FACTS", INVENTORY.subject(node="gpu-7_example"))
    assert kept is not None
    assert msgspec.json.decode(kept.data, type=NodeInventory) == inventory

    sequences = [beat.sequence for beat in stranger.heartbeats]
    assert sequences == list(range(1, len(sequences) + 1))
    assert {beat.incarnation for beat in stranger.heartbeats} == {inventory.incarnation}

    used = stranger.usage[-1]
    assert (used.cards[0].compute_percent, used.cards[0].memory_used_mib, used.cards[0].power_w) == (40, 2048, 70)
    assert used.cards[0].processes is not None
    assert used.cards[0].processes[0].pid == os.getpid()
    assert all(900 < message.period_ms < 3000 for message in stranger.usage[1:])
    assert used.cpu is not None
    assert used.cpu.used_milli is not None
    assert await ended(monitor, 5) < 5


async def test_a_restarted_monitor_is_another_incarnation(
    stranger: Stranger, start: Callable[..., ServerProcess]
) -> None:
    """Claim: after SIGKILL and a new start the incarnation differs, the sequence begins again, the boot is the same."""
    first = start()
    await stranger.hears("two heartbeats", lambda: len(stranger.heartbeats) >= 2)
    await first.kill()
    before = stranger.heartbeats[-1]
    start()
    await stranger.hears("a new incarnation", lambda: stranger.heartbeats[-1].incarnation != before.incarnation)
    after = next(beat for beat in stranger.heartbeats if beat.incarnation != before.incarnation)

    assert after.sequence == 1
    assert after.boot_id == before.boot_id
    await stranger.hears("its inventory", lambda: stranger.inventories[-1].incarnation == after.incarnation)


async def test_s061_a_card_that_falls_off_the_bus_is_said_at_once(
    stranger: Stranger, start: Callable[..., ServerProcess], world: World
) -> None:
    """Claim: within seconds inventory and heartbeat name the card; the other stays healthy and measured."""
    start()
    await stranger.hears("usage", lambda: stranger.usage)
    world.card(1, error=pynvml.NVML_ERROR_GPU_IS_LOST)
    await stranger.hears("the heartbeat", lambda: stranger.heartbeats[-1].unhealthy == ("GPU-1",), timeout_s=4)
    await stranger.hears("the inventory", lambda: stranger.inventories[-1].cards[1].health == "failed", timeout_s=4)
    count = len(stranger.usage)
    await stranger.hears("two more usage messages", lambda: len(stranger.usage) >= count + 2)

    assert "GPU is lost" in stranger.inventories[-1].cards[1].health_reason
    healthy, lost = stranger.usage[-1].cards
    assert healthy.compute_percent == 40
    assert (lost.compute_percent, lost.memory_used_mib, lost.processes) == (None, None, None)


async def test_s061_an_xid_is_said_before_the_next_look(
    stranger: Stranger, start: Callable[..., ServerProcess], world: World
) -> None:
    """Claim: with looks 30 s apart an Xid 79 reaches heartbeat and inventory all the same, and stays until a reset."""
    for index in range(2):
        world.card(index, events=pynvml.nvmlEventTypeXidCriticalError)
    start(sample_s=30, usage_s=30)
    await stranger.hears("the inventory", lambda: stranger.inventories)
    await stranger.hears("two more heartbeats", lambda: len(stranger.heartbeats) >= 4)
    world.happen(1, 79)
    await stranger.hears("the heartbeat", lambda: stranger.heartbeats[-1].unhealthy == ("GPU-1",), timeout_s=4)
    await stranger.hears("the inventory", lambda: stranger.inventories[-1].cards[1].health == "failed", timeout_s=4)

    lost = stranger.inventories[-1].cards[1]
    assert lost.health_reason.startswith("Xid 79: ")
    assert (lost.health_needs, stranger.inventories[-1].cards[0].health) == ("reset", "healthy")


async def test_an_operator_who_saw_to_a_card_is_believed_once(
    stranger: Stranger, start: Callable[..., ServerProcess], world: World, nats_server: NatsServer
) -> None:
    """Claim: `repaired` starts the way back of a card that failed by an event.

    It is no word on the next failure, also when the monitor is started anew.
    """
    for index in range(2):
        world.card(index, events=pynvml.nvmlEventTypeXidCriticalError)
    settings = {"recover_after_s": 1, "sample_s": 0.2}
    first = start(**settings)
    await stranger.hears("the first use", lambda: stranger.usage)
    world.happen(1, 48)
    await stranger.hears("the failure", lambda: stranger.inventories[-1].cards[1].health == "failed")
    async with connect(nats_server.url, name="operator") as bus:
        order = CordonCard(node=NodeName("gpu-7.example"), card=CardUuid("GPU-1"), cordoned=False, repaired=True)
        await bus.store(CORDONS.subject(node="gpu-7_example", card="GPU-1"), encode(order))
    await stranger.hears("its return", lambda: stranger.inventories[-1].cards[1].health == "healthy")
    world.happen(1, 48)
    await stranger.hears("the second failure", lambda: stranger.inventories[-1].cards[1].health == "failed")
    await first.kill()
    start(**settings)
    told = len(stranger.usage)
    await stranger.hears("the new monitor", lambda: len(stranger.usage) >= told + 3)

    assert [card.health for card in stranger.inventories[-1].cards] == ["healthy", "failed"]


async def test_one_card_that_hangs_is_one_suspect_card(
    stranger: Stranger, start: Callable[..., ServerProcess], world: World
) -> None:
    """Claim: the other card stays healthy and measured; the hanging one is well again when it answers."""
    start(driver_deadline_s=1)
    await stranger.hears("usage", lambda: stranger.usage)
    world.card(1, hang=600)
    await stranger.hears("the heartbeat", lambda: stranger.heartbeats[-1].unhealthy == ("GPU-1",))
    count = len(stranger.usage)
    await stranger.hears("two more usage messages", lambda: len(stranger.usage) >= count + 2)

    assert [card.compute_percent for card in stranger.usage[-1].cards] == [40, None]
    world.unset("card1.hang")
    await stranger.hears("healthy cards", lambda: not stranger.heartbeats[-1].unhealthy)


async def test_a_hanging_driver_is_no_silence_and_no_obstacle_to_the_end(
    stranger: Stranger, start: Callable[..., ServerProcess], world: World
) -> None:
    """Claim: while a driver call hangs heartbeats come each second with all cards unhealthy, and SIGTERM is obeyed."""
    monitor = start(driver_deadline_s=1)
    await stranger.hears("usage", lambda: stranger.usage)
    world.set("hang.nvmlDeviceGetMemoryInfo_v2", 600)
    await stranger.hears("all cards unhealthy", lambda: stranger.heartbeats[-1].unhealthy == ("GPU-0", "GPU-1"))
    count = len(stranger.heartbeats)
    await stranger.hears("three more heartbeats", lambda: len(stranger.heartbeats) >= count + 3)

    pauses = [b - a for a, b in itertools.pairwise(stranger.heard_at)]
    assert max(pauses) < 3  # one second, and what a busy machine adds
    assert [card.compute_percent for card in stranger.usage[-1].cards] == [None, None]
    assert [card.health for card in stranger.inventories[-1].cards] == ["suspect", "suspect"]
    assert stranger.usage[-1].cpu is not None
    assert await ended(monitor, 5) < 5


async def test_a_hang_that_ends_is_over(stranger: Stranger, start: Callable[..., ServerProcess], world: World) -> None:
    """Claim: when the call comes back the cards are healthy again, without a restart."""
    start(driver_deadline_s=0.5)
    await stranger.hears("usage", lambda: stranger.usage)
    world.set("hang.nvmlDeviceGetUtilizationRates", 600)
    await stranger.hears("unhealthy cards", lambda: stranger.heartbeats[-1].unhealthy)
    world.unset("hang.nvmlDeviceGetUtilizationRates")
    await stranger.hears("healthy cards", lambda: not stranger.heartbeats[-1].unhealthy)
    await stranger.hears("use", lambda: stranger.usage[-1].cards[0].compute_percent == 40)

    assert len({beat.incarnation for beat in stranger.heartbeats}) == 1


async def test_what_changed_while_the_server_was_dead_arrives(
    stranger: Stranger, start: Callable[..., ServerProcess], world: World, nats_server: NatsServer
) -> None:
    """Claim: a card lost during a server's death is in the stream soon after its restart."""
    start()
    await stranger.hears("usage", lambda: stranger.usage)
    await nats_server.kill()
    world.card(0, error=pynvml.NVML_ERROR_GPU_IS_LOST)
    await nats_server.restart()

    async def stored() -> bool:
        with contextlib.suppress(Exception):
            async with connect(nats_server.url, name="reader") as bus:
                last = await bus.last("GPUBUS_FACTS", INVENTORY.subject(node="gpu-7_example"))
                return last is not None and b'"failed"' in last.data
        return False

    await wait_until(stored, what="the failed card is in the stream", timeout_s=15, every_s=0.2)


async def test_simulated_cards_need_no_driver(stranger: Stranger, start: Callable[..., ServerProcess]) -> None:
    """Claim: the provider is a setting; its cards are in the inventory as configured."""
    start(provider="simulated", simulated__cards=3, simulated__model="Simulated L4", simulated__memory_mib=23_000)
    await stranger.hears("an inventory", lambda: stranger.inventories)
    inventory = stranger.inventories[0]

    assert (inventory.provider, inventory.driver_version) == ("simulated", "simulated")
    assert [(c.model, c.memory_total_mib) for c in inventory.cards] == [("Simulated L4", 23_000)] * 3


async def test_s178_a_missing_driver_ends_with_what_is_missing(
    stranger: Stranger, start: Callable[..., ServerProcess], world: World
) -> None:
    """Claim: exit code 2 and a line that names what is missing and the setting that goes without."""
    world.set("error.nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    monitor = start()

    async def gone() -> bool:
        return not monitor.running

    await wait_until(gone, what="the monitor ends", timeout_s=10)
    assert monitor._child is not None
    assert monitor._child.returncode == 2
    assert "kernel module `nvidia` is not loaded" in monitor.log_tail()
    assert "GPUBUS_MONITOR__PROVIDER=simulated" in monitor.log_tail()
