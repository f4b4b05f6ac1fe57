"""The whole of measuring on a virtual clock: a host's /proc and cgroups, the shares stream, usage and inventory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from bus.memory import InMemoryBus, MemoryServer
from contracts.inventory import Card, NodeInventory
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.subjects import INVENTORY, SHARES
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import CardUsage, NodeUsage, ProcessUsage
from monitor.cards.protocol import DriverInfo, Look, Place, ProviderName
from monitor.cards.runner import Inline, Lane, T
from monitor.cards.simulated import SimulatedCards, SimulatedKind
from monitor.measuring import LANE, Measuring, of_shares
from monitor.report import Identity
from monitor.service import Monitor
from monitor.settings import MonitoringSettings
from monitor.watch import CardWatch

pytestmark = pytest.mark.looptime

NODE = "n1"
UID = RequestUid("e-1-0")
POD_UID = "8f9b5a2c-1d3e-4f60-9a7b-0c1d2e3f4a5b"
CONTAINER = "7f" * 32
PATH = f"kubepods/burstable/pod{POD_UID}/{CONTAINER}"
CARD = Card(uuid=CardUuid("GPU-a"), index=0, model="T4", memory_total_mib=15_000)
WHO = Identity(node=NodeName(NODE), boot_id="boot-1", incarnation="m-1")
OURS, STRANGER = 4000, 666


class OneCard:
    """A driver with one card and the processes that the test puts on it."""

    name: ProviderName = "nvml"

    def __init__(self) -> None:
        self.processes: tuple[ProcessUsage, ...] = ()

    def sample(self) -> tuple[CardUsage, ...]:
        return (CardUsage(uuid=CARD.uuid, compute_percent=50, memory_used_mib=9000, processes=self.processes),)

    def seats(self) -> tuple[int, ...]:
        return (0,)

    def look(self, seat: int) -> Look:
        return Look(cards=(CARD,), usage=self.sample())

    def info(self) -> DriverInfo:
        return DriverInfo()

    def places(self, seats: tuple[int, ...]) -> dict[int, Place]:
        return {}

    def reopen(self) -> None: ...

    def close(self) -> None: ...


class Host:
    """/proc and a v2 cgroup mount below one folder."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.proc.mkdir()
        self.cgroups.mkdir()
        (self.cgroups / "cgroup.controllers").write_text("cpu memory\n")
        (self.proc / "stat").write_text("cpu 1 1 1 1 1 1 1 1 1 1\ncpu0 1\n")
        (self.proc / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n")
        self.process(2, "kthreadd", "/")

    def process(self, pid: int, name: str, path: str) -> None:
        (self.proc / str(pid)).mkdir()
        zeros = " ".join("0" for _ in range(17))
        (self.proc / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 {zeros} 777 0 0\n")
        (self.proc / str(pid) / "cgroup").write_text(f"0::{path}\n")

    def container(self, usage_usec: int) -> None:
        folder = self.cgroups / PATH
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.stat").write_text(f"usage_usec {usage_usec}\n")
        (folder / "cpu.max").write_text("max 100000\n")

    def settings(self) -> MonitoringSettings:
        return MonitoringSettings(node=NodeName(NODE), proc_path=str(self.proc), cgroup_path=str(self.cgroups))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Our process in its pod, a stranger in none."""
    made = Host(tmp_path)
    made.process(OURS, "python3", f"/{PATH}")
    made.process(STRANGER, "miner", "/user.slice")
    made.container(0)
    return made


def shares(card: CardUuid = CARD.uuid) -> NodeShares:
    return NodeShares(
        node=NodeName(NODE),
        epoch="e",
        ledger_sequence=5,
        assignments=(ShareAssignment(uid=UID, namespace="team", pod="p", card=card, share_milli=500, memory_mib=8000),),
        pods=(PodOnNode(uid=UID, pod_uid=POD_UID, container_id=CONTAINER),),
    )


def on_card(pid: int, mib: int, busy: int = 20) -> ProcessUsage:
    return ProcessUsage(pid=pid, memory_mib=mib, compute_percent=busy)


async def one_period(measuring: Measuring, cards: OneCard) -> NodeUsage:
    await asyncio.sleep(1)
    return await measuring.period((CARD,), [cards.sample()], cards)


async def test_a_period_tells_cards_requests_and_containers(host: Host) -> None:
    """Claim: from files to the message: whose process it is, what its container used, and since when it runs."""
    cards = OneCard()
    cards.processes = (on_card(OURS, 3000), on_card(STRANGER, 500))
    measuring = Measuring(WHO, host.settings())
    measuring.told = of_shares(shares())
    await measuring.start()
    await one_period(measuring, cards)

    host.container(500_000)
    usage = await one_period(measuring, cards)

    (card,) = usage.cards
    assert card.slices is not None
    assert [(s.uid, s.compute_percent, s.average_milli, s.memory_used_mib) for s in card.slices] == [
        (UID, 20, 200, 3000)
    ]
    assert card.unmanaged_mib == 500
    assert [(p.pid, p.belongs, p.command, p.started_ticks) for p in card.processes or ()] == [
        (OURS, "request", "python3", 777),
        (STRANGER, "nobody", "miner", 777),
    ]
    assert usage.containers is not None
    (container,) = usage.containers
    assert (container.uid, container.pod, container.own, container.cpu_limited) == (UID, "p", True, False)
    assert container.cpu_used_milli is not None
    assert (usage.sequence, usage.period_ms, usage.provider) == (2, 1000, "nvml")
    assert measuring.last is usage


async def test_before_anything_is_told_nothing_is_attributed(host: Host) -> None:
    """Claim: without the shares nobody is called a stranger, and no list of containers is made up."""
    cards = OneCard()
    cards.processes = (on_card(STRANGER, 500),)
    measuring = Measuring(WHO, host.settings())
    await measuring.start()

    usage = await one_period(measuring, cards)

    (card,) = usage.cards
    assert (card.slices, card.unmanaged_mib, usage.containers) == (None, None, None)
    assert [p.belongs for p in card.processes or ()] == ["unknown"]


async def test_another_pid_namespace_tells_nothing(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """Claim: without hostPID whose use is whose stays unknown, and the log says what is missing, once."""
    (host.proc / "2" / "stat").write_text("2 (sleep) S 1\n")
    cards = OneCard()
    cards.processes = (on_card(OURS, 3000),)
    measuring = Measuring(WHO, host.settings())
    measuring.told = of_shares(shares())
    await measuring.start()

    usages = [await one_period(measuring, cards) for _ in range(3)]

    assert [s.memory_used_mib for usage in usages for s in usage.cards[0].slices or ()] == [None] * 3
    assert [record.__dict__["reason"] for record in caplog.records if "whose use" in record.message] == [
        f"{host.proc} is not the host's: the pod of the monitor needs hostPID: true"
    ]


class HungHost(Inline):
    """The host's lane hangs while `hangs`; how many calls were made tells whether they pile up."""

    def __init__(self) -> None:
        self.hangs = False
        self.calls = 0
        self.back: list[asyncio.Future[object]] = []

    def start(self, lane: Lane, function) -> asyncio.Future[T]:
        assert lane == LANE
        self.calls += 1
        if not self.hangs:
            return super().start(lane, function)
        answer = asyncio.get_running_loop().create_future()
        self.back.append(answer)
        return answer


async def test_a_kernel_that_hangs_costs_its_deadline_and_no_pile_of_calls(host: Host) -> None:
    """Claim: the message comes without containers and processes, one call is out, and the next look works again."""
    runner, cards = HungHost(), OneCard()
    cards.processes = (on_card(OURS, 3000),)
    measuring = Measuring(WHO, host.settings(), runner)
    measuring.told = of_shares(shares())
    await measuring.start()
    runner.hangs = True
    began = asyncio.get_running_loop().time()

    blind = [await one_period(measuring, cards) for _ in range(3)]

    assert asyncio.get_running_loop().time() - began == pytest.approx(3 * (1 + 5))
    assert runner.calls == 2
    assert [(u.containers, u.cpu, u.cards[0].unmanaged_mib) for u in blind] == [(None, None, None)] * 3

    runner.hangs = False
    runner.back[0].set_result(None)
    assert (await one_period(measuring, cards)).containers is not None


# --- the service ------------------------------------------------------------------------------------------------------


class World:
    """A bus, a monitor on it, and what it said last."""

    def __init__(self, settings: MonitoringSettings, cards: OneCard | SimulatedCards) -> None:
        self.server = MemoryServer()
        self.server.create_streams()
        self.bus = InMemoryBus(self.server, "monitor")
        self.usage: list[NodeUsage] = []
        self._settings = settings
        self._cards = cards

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Monitor]:
        watch = CardWatch(self._cards, Inline(), self._settings)
        monitor, stop = Monitor(self.bus, watch, WHO, self._settings), asyncio.Event()
        async with InMemoryBus(self.server, "ear").subscribe(f"gpubus.v1.nodes.{NODE}.usage", self._hear):
            task = asyncio.create_task(monitor.run(stop), name="monitor")
            try:
                yield monitor
            finally:
                stop.set()
                await task

    async def say(self, told: NodeShares) -> None:
        await self.bus.store(SHARES.subject(node=NODE), encode(told), stream=SHARES.stream)

    async def inventory(self) -> NodeInventory:
        last = await self.bus.last(INVENTORY.stream, INVENTORY.subject(node=NODE))
        assert last is not None
        return msgspec.json.decode(last.data, type=NodeInventory)

    async def _hear(self, message) -> None:
        self.usage.append(msgspec.json.decode(message.data, type=NodeUsage))


async def test_s077_a_process_outside_is_taken_off_what_is_sold(host: Host) -> None:
    """Claim: named at once, not sold after ten seconds, in two inventories; kept over a restart; sold again later."""
    cards = OneCard()
    cards.processes = (on_card(STRANGER, 9000),)
    world = World(host.settings(), cards)
    async with world.running() as monitor:
        await asyncio.sleep(2.5)
        assert world.usage[-1].cards[0].unmanaged_mib == 9000
        assert (await world.inventory()).cards[0].memory_unmanaged_mib == 0

        await asyncio.sleep(30)
        stored = await world.inventory()
        assert (stored.cards[0].memory_unmanaged_mib, stored.cards[0].unmanaged_by) == (9216, "miner (666)")
        assert stored.cards[0].sellable_mib == 15_000 - 9216
        assert monitor.stored is not None
        assert monitor.stored.sequence <= 3

    cards.processes = ()
    async with world.running():
        await asyncio.sleep(2)
        assert (await world.inventory()).cards[0].memory_unmanaged_mib == 9216
        await asyncio.sleep(65)
        assert (await world.inventory()).cards[0].memory_unmanaged_mib == 0


async def test_a_pod_of_ours_is_no_stranger_once_it_is_told(host: Host) -> None:
    """Claim: what the stream says of the pods reaches the next message, and nothing is taken off for them."""
    cards = OneCard()
    cards.processes = (on_card(OURS, 3000),)
    world = World(host.settings(), cards)
    async with world.running():
        await world.say(shares())
        await asyncio.sleep(15)

    assert [s.memory_used_mib for s in world.usage[-1].cards[0].slices or ()] == [3000]
    assert (await world.inventory()).cards[0].memory_unmanaged_mib == 0


async def test_simulated_cards_know_whose_their_processes_are(host: Host) -> None:
    """Claim: without any process on this machine each piece has its part, and the message says it is made up."""
    simulated = SimulatedCards(NODE, SimulatedKind(cards=1), lambda: 15_000)
    card = simulated.look(0).cards[0].uuid
    settings = msgspec.structs.replace(host.settings(), provider="simulated")
    world = World(settings, simulated)
    async with world.running():
        await world.say(msgspec.structs.replace(shares(card), pods=()))
        await asyncio.sleep(5)

    usage = world.usage[-1]
    (piece,) = usage.cards[0].slices or ()
    assert (piece.uid, piece.processes) == (UID, 1)
    assert piece.memory_used_mib == 8000 * 9 // 10
    assert piece.compute_percent == usage.cards[0].compute_percent
    assert (usage.cards[0].unmanaged_mib, usage.provider) == (0, "simulated")
