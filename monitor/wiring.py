"""From settings to a running monitor: who we are, which provider, which bus.

`python -m monitor` uses `MonitorService`. What runs many monitors in one process (a local cluster, a simulation)
builds `Monitor` itself, with a bus of its own, `Inline` calls and a virtual clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bus.client import NatsBus, connect
from bus.protocol import BusUnavailable
from bus.runtime.exits import EndProcess, ExitCode
from bus.runtime.process import Process
from bus.runtime.retry import retrying
from bus.runtime.settings import NatsSettings
from monitor.cards.protocol import CardProvider, DriverMissing
from monitor.cards.runner import CardThread
from monitor.cards.simulated import SimulatedCards
from monitor.report import Identity
from monitor.service import Monitor
from monitor.settings import MonitoringSettings, MonitorSettings
from monitor.watch import CardWatch

CONNECT_S = 60.0
"""A bus that is not there after a minute is a reason to be started again, with what may have changed."""


class MonitorService:
    """One monitor as a process."""

    def __init__(self, settings: MonitorSettings, process: Process) -> None:
        self._settings = settings
        self._process = process

    async def run(self, stop: asyncio.Event) -> None:
        """Connect, watch and publish until `stop` is set."""
        process, chosen = self._process, self._settings.monitor
        watch = CardWatch(provider(chosen, now_ms=lambda: time.monotonic_ns() // 1_000_000), CardThread(), chosen)
        process.health.ready("driver", lambda: watch.trouble)
        async with contextlib.AsyncExitStack() as stack:
            bus = await self._connected(stack)
            process.health.ready("bus", lambda: "" if bus.connected else "not connected")
            process.end_when(bus.closed, ExitCode.BUS_CLOSED, lambda: "the connection to the bus has ended for good")
            monitor = Monitor(bus, watch, identity(chosen, process.instance), chosen)
            process.health.ready("inventory", lambda: "" if monitor.stored else "no inventory has been stored yet")
            try:
                await monitor.run(stop)
            except* DriverMissing as missing:
                raise EndProcess(ExitCode.BAD_SETTINGS, str(missing.exceptions[0])) from None

    async def _connected(self, stack: contextlib.AsyncExitStack) -> NatsBus:
        async def attempt() -> NatsBus:
            return await stack.enter_async_context(_connection(self._settings.nats, self._process.instance))

        return await retrying("connect to the bus", on=BusUnavailable, deadline_s=CONNECT_S)(attempt)


def provider(settings: MonitoringSettings, *, now_ms: Callable[[], int]) -> CardProvider:
    """The provider that the settings choose. The driver's library is imported only when it is asked for."""
    if settings.provider == "simulated":
        return SimulatedCards(settings.node, settings.simulated.kind(), now_ms)
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


def _connection(settings: NatsSettings, name: str) -> contextlib.AbstractAsyncContextManager[NatsBus]:
    return connect(settings.urls, name=name, connect_timeout_s=settings.connect_timeout_s, **_credentials(settings))


def _credentials(nats: NatsSettings) -> dict[str, Any]:
    options: dict[str, Any] = {"token": nats.token or None, "credentials_file": nats.credentials_file or None}
    if nats.nkey_seed_file:
        options["nkey_seed"] = Path(nats.nkey_seed_file).read_text("ascii").strip()
    if nats.tls_ca_file or nats.tls_cert_file or any(url.startswith("tls://") for url in nats.urls):
        options["tls"] = ssl.create_default_context(cafile=nats.tls_ca_file or None)
        if nats.tls_cert_file:
            options["tls"].load_cert_chain(nats.tls_cert_file, nats.tls_key_file)
    return options
