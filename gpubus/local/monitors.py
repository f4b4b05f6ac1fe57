"""The monitors of all simulated nodes, in one process over one connection; each can fall silent and come back.

They are the real `monitor.service` with the simulated provider: inventories, heartbeats and usage go the real way.
"""

from __future__ import annotations

import asyncio
import secrets
import time

from bus.protocol import Bus
from contracts.units import NodeName
from gpubus.local.nodes import NodeSpec
from monitor.cards.runner import Inline
from monitor.cards.simulated import SimulatedCards
from monitor.report import Identity
from monitor.service import Monitor
from monitor.settings import MonitoringSettings, SimulatedSettings
from monitor.watch import CardWatch

RECOVER_S = 10.0
"""A card that failed is believed again after so long: short, so that one can watch it."""


class SimulatedMonitors:
    """One monitor per node that is alive."""

    def __init__(self, bus: Bus, *, heartbeat_s: float = 1.0) -> None:
        self._bus = bus
        self._heartbeat_s = heartbeat_s
        self._running: dict[str, tuple[asyncio.Event, asyncio.Task[None]]] = {}
        self._lives = 0

    def start(self, node: NodeSpec) -> asyncio.Task[None]:
        """A monitor begins a new life on the node, as after a reboot."""
        self._lives += 1
        settings = _settings(node, self._heartbeat_s, f"boot-{self._lives}")
        kind = settings.simulated.kind()
        cards = SimulatedCards(node.name, kind, lambda: time.monotonic_ns() // 1_000_000, faults=node.faults)
        who = Identity(
            node=NodeName(node.name), boot_id=settings.boot_id, incarnation=f"monitor-{secrets.token_hex(4)}"
        )
        monitor = Monitor(self._bus, CardWatch(cards, Inline(), settings), who, settings)
        stop = asyncio.Event()
        task = asyncio.create_task(monitor.run(stop), name=f"monitor of {node.name}")
        self._running[node.name] = (stop, task)
        return task

    async def stop(self, node: str) -> None:
        """The node's monitor falls silent."""
        stop, task = self._running.pop(node)
        stop.set()
        await asyncio.gather(task, return_exceptions=True)

    async def stop_all(self) -> None:
        """All fall silent."""
        for stop, _ in self._running.values():
            stop.set()
        await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)
        self._running.clear()

    async def watch(self) -> None:
        """Wait until a monitor fails. Raises what it failed with."""
        while True:
            tasks = [task for _, task in self._running.values()]
            if not tasks:
                await asyncio.sleep(0.2)
                continue
            done, _ = await asyncio.wait(tasks, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error


def _settings(node: NodeSpec, heartbeat_s: float, boot_id: str) -> MonitoringSettings:
    """Sampling is slower than on a real node: two hundred of these share one process."""
    return MonitoringSettings(
        node=NodeName(node.name),
        provider="simulated",
        simulated=SimulatedSettings(
            cards=node.cards,
            model=node.model.name,
            memory_mib=node.model.memory_mib,
            reserved_mib=node.model.reserved_mib,
        ),
        heartbeat_s=heartbeat_s,
        sample_s=1.0,
        usage_s=2.0,
        recover_after_s=RECOVER_S,
        boot_id=boot_id,
    )
