"""From settings to a running monitor: who we are, which provider, which bus.

`python -m monitor` uses `MonitorService`. What runs many monitors in one process (a local cluster, a simulation)
builds `Monitor` itself, with a bus of its own, `Inline` calls and a virtual clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from bus.runtime.connection import connected
from bus.runtime.exits import EndProcess, ExitCode
from bus.runtime.process import Process
from monitor import metrics
from monitor.cards.protocol import CardProvider, DriverMissing
from monitor.cards.runner import CardThreads
from monitor.cards.simulated import SimulatedCards, fault
from monitor.enforce.wiring import enforcer
from monitor.report import Identity
from monitor.service import Monitor
from monitor.settings import MonitoringSettings, MonitorSettings
from monitor.watch import CardWatch


class MonitorService:
    """One monitor as a process."""

    def __init__(self, settings: MonitorSettings, process: Process) -> None:
        self._settings = settings
        self._process = process

    async def run(self, stop: asyncio.Event) -> None:
        """Connect, watch and publish until `stop` is set."""
        process, chosen = self._process, self._settings.monitor
        threads = CardThreads()
        watch = CardWatch(provider(chosen, now_ms=lambda: time.monotonic_ns() // 1_000_000), threads, chosen)
        process.health.ready("driver", lambda: watch.trouble)
        async with connected(self._settings.nats, process) as bus:
            who = identity(chosen, process.instance)
            enforce = enforcer(
                bus, who, chosen, cards=lambda: watch.book.cards if watch.known else None, runner=threads
            )
            monitor = Monitor(bus, watch, who, chosen, runner=threads, beside=(enforce.run,))
            process.telemetry.scrape(lambda: metrics.gauges(monitor.measuring.last))
            process.health.ready("inventory", lambda: "" if monitor.stored else "no inventory has been stored yet")
            try:
                await monitor.run(stop)
            except* DriverMissing as missing:
                raise EndProcess(ExitCode.BAD_SETTINGS, str(missing.exceptions[0])) from None


def provider(settings: MonitoringSettings, *, now_ms: Callable[[], int]) -> CardProvider:
    """The provider that the settings choose. The driver's library is imported only when it is asked for."""
    if settings.provider == "simulated":
        return SimulatedCards(
            settings.node, settings.simulated.kind(), now_ms, faults=map(fault, settings.simulated.faults)
        )
    from monitor.cards.nvml import NvmlCards  # noqa: PLC0415 - as the docstring says

    return NvmlCards(settings.memory_rules())


def identity(settings: MonitoringSettings, incarnation: str) -> Identity:
    """Who speaks. A boot that cannot be read is one of its own: then nothing is taken over from an earlier monitor."""
    boot_id = settings.boot_id or _boot_id(Path(settings.proc_path)) or incarnation
    return Identity(node=settings.node, boot_id=boot_id, incarnation=incarnation)


def _boot_id(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
