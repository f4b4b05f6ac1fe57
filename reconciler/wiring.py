"""From settings to a running reconciler: the bus, the API server, health; what `python -m reconciler` runs."""

from __future__ import annotations

import asyncio

from bus.runtime.connection import connected
from bus.runtime.exits import EndProcess, ExitCode
from bus.runtime.process import Process
from reconciler.errors import Unauthorized
from reconciler.kube import connect
from reconciler.metrics import watch
from reconciler.service import Reconciler
from reconciler.settings import ReconcilerSettings

SPARE_CONNECTIONS = 8
"""Two watches, two lists and some reads beside the writes in flight."""


class ReconcilerService:
    """One reconciler as a process."""

    def __init__(self, settings: ReconcilerSettings, process: Process) -> None:
        self._settings = settings
        self._process = process
        self._reconciler: Reconciler | None = None
        process.health.ready("reconciler", self._trouble)

    async def run(self, stop: asyncio.Event) -> None:
        """Connect to both sides and reconcile until `stop` is set."""
        own = self._settings.reconciler
        try:
            async with (
                connect(
                    url=own.kube.url,
                    kubeconfig=own.kube.kubeconfig,
                    context=own.kube.context,
                    connections=own.kube.in_flight + SPARE_CONNECTIONS,
                ) as server,
                connected(self._settings.nats, self._process) as bus,
            ):
                await bus.ensure_streams(replicas=self._settings.nats.replicas)
                reconciler = await Reconciler.open(bus, server, own, incarnation=self._process.instance)
                self._reconciler = reconciler
                watch(self._process.telemetry.meter, reconciler)
                await reconciler.run(stop)
        except Unauthorized as error:
            raise EndProcess(ExitCode.BAD_SETTINGS, str(error)) from error

    def _trouble(self) -> str:
        return self._reconciler.trouble() if self._reconciler else "starting"
