"""A whole monitor on a virtual clock: a driver whose world is set, calls that hang, an ear, and the bench of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bus.memory import InMemoryBus, MemoryServer
from contracts.inventory import Card, Heartbeat, NodeInventory
from contracts.units import CardUuid, NodeName
from contracts.usage import CardUsage, NodeUsage
from monitor.cards.protocol import (
    CardProvider,
    DriverInfo,
    Look,
    Place,
    ProviderName,
    Sign,
    Weight,
)
from monitor.cards.runner import Inline, Lane, T
from monitor.report import Identity
from monitor.service import Monitor
from monitor.settings import MonitoringSettings
from monitor.watch import CardWatch

NODE = "gpu-1.example"
SUBJECT = "gpubus.v1.nodes.gpu-1_example"
A, B = (Card(uuid=CardUuid(f"GPU-{c}"), index=i, model="T4", memory_total_mib=15_000) for i, c in enumerate("ab"))
LOST = "GPU is lost (NVML 15)"


class FakeCards:
    """A driver whose world is set by the test; `broken` is raised by every call. Seat = place in `cards`."""

    name: ProviderName = "nvml"

    def __init__(self, *cards: Card) -> None:
        self.cards = cards
        self.against: dict[int, tuple[Weight, str]] = {}
        self.busy = 10
        self.broken: Exception | None = None
        self.closed = False
        self.reopened = 0

    def seats(self) -> tuple[int, ...]:
        if self.broken:
            raise self.broken
        return tuple(range(len(self.cards)))

    def look(self, seat: int) -> Look:
        card, against = self.cards[seat], self.against.get(seat)
        signs = (Sign(card=card.uuid, weight=against[0], reason=against[1]),) if against else ()
        return Look(cards=(card,), usage=(CardUsage(uuid=card.uuid, compute_percent=self.busy),), signs=signs)

    def info(self) -> DriverInfo:
        return DriverInfo(version="570", cuda="13.0")

    def places(self, seats: tuple[int, ...]) -> dict[int, Place]:
        return {}

    def reopen(self) -> None:
        self.reopened += 1

    def close(self) -> None:
        self.closed = True


class Hanging(Inline):
    """Lanes in `hung` do not come back until they are `freed`; all of them while `hang` is set."""

    def __init__(self) -> None:
        self.hung: set[Lane] = set()
        self.hang = False
        self._left: list[tuple[Lane, Callable[[], None]]] = []

    def start(self, lane: Lane, function: Callable[[], T]) -> asyncio.Future[T]:
        if not self.hang and lane not in self.hung:
            return super().start(lane, function)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._left.append((lane, lambda: answer.set_result(function())))
        return answer

    def free(self) -> None:
        """Every call comes back, and no further one hangs."""
        self.hang, self.hung = False, set()
        for _, come_back in self._left:
            come_back()
        self._left.clear()


class Ear:
    """A stranger's subscriber: everything that was said, with the time."""

    def __init__(self) -> None:
        self.heartbeats: list[tuple[float, Heartbeat]] = []
        self.usage: list[tuple[float, NodeUsage]] = []
        self.inventories: list[tuple[float, NodeInventory]] = []

    @contextlib.asynccontextmanager
    async def listening(self, bus: InMemoryBus) -> AsyncIterator[None]:
        kinds = {"heartbeat": (Heartbeat, self.heartbeats), "usage": (NodeUsage, self.usage)}
        kinds["inventory"] = (NodeInventory, self.inventories)
        async with contextlib.AsyncExitStack() as stack:
            for kind, (type_, heard) in kinds.items():
                await stack.enter_async_context(bus.subscribe(f"{SUBJECT}.{kind}", self._hear(type_, heard)))
            yield

    def _hear(self, type_, heard):
        async def hear(message) -> None:
            heard.append((asyncio.get_running_loop().time(), msgspec.json.decode(message.data, type=type_)))

        return hear


class Bench:
    """A server, a monitor on it, and an ear."""

    def __init__(self, cards: CardProvider, proc: Path, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()
        self.server.create_streams()
        self.bus = InMemoryBus(self.server, "monitor")
        self.cards = cards
        self.runner = Hanging()
        self.ear = Ear()
        self.settings = MonitoringSettings(node=NODE, proc_path=str(proc))
        self.stop = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self, incarnation: str = "m-1", boot: str = "boot-1") -> AsyncIterator[Monitor]:
        who = Identity(node=NodeName(NODE), boot_id=boot, incarnation=incarnation)
        self.watch = CardWatch(self.cards, self.runner, self.settings, wall_ms=lambda: 0)
        monitor = Monitor(self.bus, self.watch, who, self.settings)
        async with self.ear.listening(InMemoryBus(self.server, "ear")):
            task = asyncio.create_task(monitor.run(self.stop), name="monitor")
            try:
                yield monitor
            finally:
                self.stop.set()
                await task

    def last(self) -> NodeInventory:
        return self.ear.inventories[-1][1]


def well(bench: Bench) -> tuple[Card, ...]:
    """The cards last published, which must all be healthy, as the driver told them."""
    cards = bench.last().cards
    assert {card.health for card in cards} == {"healthy"}
    return tuple(replace(card, health_since_ms=0) for card in cards)
