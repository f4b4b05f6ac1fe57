"""A whole gpubus on one machine: started in order, watched, stopped in order.

    gpubus local (this process)      the span store, the Kubernetes-shaped API with its kubelets, monitors, workers
      ├── nats-server                sync_interval: always
      ├── python -m scheduler        as in production, by settings in its environment
      ├── python -m reconciler       as in production, with a kubeconfig for the embedded API
      └── python -m autoscaler       as in production

What flows in: `Options`. What flows out: the URLs, and nodes that can be made to fail and return. A part that dies
ends the whole with a `LocalFailure` that carries the end of its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import msgspec

from bus.client import connect
from bus.protocol import Bus, BusError
from gpubus.client import Client
from gpubus.errors import LocalFailure, NoAnswer
from gpubus.local import natsserver, spanserver
from gpubus.local.children import Child
from gpubus.local.kube import LocalKube, Machine, ScaledClock, Timings
from gpubus.local.kube.resources import NAMESPACES
from gpubus.local.monitors import SimulatedMonitors
from gpubus.local.nodes import NodeSpec
from gpubus.local.runfile import Running
from gpubus.local.spanstore import SpanStore
from gpubus.local.workers import SimulatedWorkers

READY_S = 60.0
"""Longest wait until every node can take pods. Some 4 s on two cores; more when they are busy with other things."""
STOP_SERVICES_S = 3.0
STOP_NATS_S = 1.0
STOP_KUBE_S = 0.5
"""Together under the five seconds in which everything is gone."""

Told = Callable[[str], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to start."""

    nodes: tuple[NodeSpec, ...]
    folder: Path
    """Logs, and the store of nats-server."""
    nats_port: int = 0
    traces_port: int = 0
    kube_port: int = 0
    speed: float = 1.0
    """How fast the simulated machines' clock runs: containers that run an hour end after 3600 / speed seconds."""
    timings: Timings = Timings()
    namespaces: tuple[str, ...] = ()
    """Beside those that every cluster has."""
    environment: Mapping[str, str] = {}
    """More settings for scheduler, reconciler and autoscaler."""


class LocalCluster:
    """What runs. Made by `started`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.spans = SpanStore()
        self.kube = LocalKube(port=options.kube_port, clock=ScaledClock(options.speed), timings=options.timings)
        self.children: list[Child] = []
        self.nats_url = self.traces_url = ""
        self._specs = {node.name: node for node in options.nodes}
        self._monitors: SimulatedMonitors | None = None
        self.client: Client

    @property
    def running(self) -> Running:
        """What the run file says."""
        return Running(
            pid=os.getpid(),
            nats_url=self.nats_url,
            traces_url=self.traces_url,
            kube_url=self.kube.url,
            folder=str(self.options.folder),
        )

    async def watch(self) -> None:
        """Wait until a part dies.

        Raises:
            LocalFailure: which part, why, and the end of its log.
        """
        async with asyncio.TaskGroup() as group:
            for child in self.children:
                group.create_task(child.watch(), name=f"watch {child.name}")
            group.create_task(self._watch_monitors(), name="watch the monitors")

    async def node_dies(self, name: str) -> None:
        """Kubelet and monitor of a node fall silent, as in a power cut."""
        self.kube.kill_node(name)
        if self._monitors is not None:
            await self._monitors.stop(name)

    async def node_returns(self, name: str) -> None:
        """The node is back, after a reboot."""
        self.kube.revive_node(name)
        if self._monitors is not None:
            self._monitors.start(self._specs[name])

    # --- starting, in order ------------------------------------------------------------------------------------------

    async def start(self, stack: contextlib.AsyncExitStack, told: Told) -> None:
        """Start everything; what is started is stopped by the stack, last first."""
        self.traces_url = await stack.enter_async_context(spanserver.serving(self.spans, port=self.options.traces_port))
        await self._start_kube(stack)
        nats = await self._start_nats(stack)
        told(f"nats-server  {self.nats_url}  (pid {nats.pid})")
        bus = await stack.enter_async_context(connect(self.nats_url, name="gpubus-local"))
        await bus.ensure_streams()
        await self._start_services(stack, told)
        self._start_monitors(bus, stack)
        await stack.enter_async_context(SimulatedWorkers(bus, self.kube).working())
        told(f"{len(self._specs)} simulated nodes  {self.kube.url}  (Kubernetes-shaped API)")
        self.client = Client(bus)

    async def _start_kube(self, stack: contextlib.AsyncExitStack) -> None:
        try:
            await self.kube.start()
        except OSError as error:
            why = f"port {self.options.kube_port} cannot be used: {error.strerror or error}"
            raise LocalFailure("Kubernetes-shaped API", why) from error
        stack.push_async_callback(self._stop_kube)
        self.kube.write_kubeconfig(self.options.folder / "kubeconfig")
        for namespace in self.options.namespaces:
            self.kube.store.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        for node in self._specs.values():
            self.kube.add_node(_machine(node))

    async def _stop_kube(self) -> None:
        """Bounded: nobody is left who would miss an answer, and a watch that lingers must not hold up the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_KUBE_S):
                await self.kube.stop()

    async def _start_nats(self, stack: contextlib.AsyncExitStack) -> Child:
        folder = self.options.folder / "nats"
        nats, self.nats_url = await natsserver.start(folder, self.options.nats_port, _plain_environment())
        stack.push_async_callback(nats.stop, grace_s=STOP_NATS_S)
        self.children.append(nats)
        return nats

    async def _start_services(self, stack: contextlib.AsyncExitStack, told: Told) -> None:
        environment = service_environment(self)
        services = [self._service(name, environment) for name in ("scheduler", "reconciler", "autoscaler")]
        stack.push_async_callback(_stop_together, services)
        for service in services:
            await service.start()
            told(f"{service.name}  (pid {service.pid}, log {service.log})")
        self.children += services

    def _service(self, name: str, environment: Mapping[str, str]) -> Child:
        folder = self.options.folder
        command = [sys.executable, "-m", name]
        return Child(name, command, folder / f"{name}.log", environment, folder=folder)

    def _start_monitors(self, bus: Bus, stack: contextlib.AsyncExitStack) -> None:
        self._monitors = SimulatedMonitors(bus)
        stack.push_async_callback(self._monitors.stop_all)
        for node in self._specs.values():
            self._monitors.start(node)

    async def _watch_monitors(self) -> None:
        try:
            if self._monitors is not None:
                await self._monitors.watch()
        except Exception as error:
            raise LocalFailure("monitors", f"{type(error).__name__}: {error}") from error

    # --- ready? ------------------------------------------------------------------------------------------------------

    async def ready(self, told: Told) -> None:
        """Wait until every node takes pods.

        Raises:
            LocalFailure: not within a minute, with what was missing.
        """
        missing = "the scheduler has not answered"
        try:
            async with asyncio.timeout(READY_S):
                while missing := await self._missing():
                    told(missing)
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise LocalFailure("gpubus local", f"not ready after {READY_S:g} s: {missing}") from error

    async def _missing(self) -> str:
        """What keeps the nodes from taking pods; empty when nothing does."""
        try:
            nodes = await self.client.nodes()
            ready = sum(node.ready and node.health == "fresh" and node.cards > 0 for node in nodes)
            if ready < len(self._specs):
                return f"{ready} of {len(self._specs)} nodes take pods"
            # Kept state may tell of nodes before anybody has looked at them again.
            await self.client.allocations()
        except (NoAnswer, BusError) as error:
            return str(error)
        return ""


@contextlib.asynccontextmanager
async def started(options: Options, told: Told) -> AsyncIterator[LocalCluster]:
    """Everything up and every node ready; stopped, within five seconds, when the context is left.

    Raises:
        LocalFailure: a part did not come up, or died.
    """
    cluster = LocalCluster(options)
    async with contextlib.AsyncExitStack() as stack:
        await cluster.start(stack, told)
        async with _failing_with(cluster):
            await cluster.ready(_once(told))
            yield cluster


@contextlib.asynccontextmanager
async def _failing_with(cluster: LocalCluster) -> AsyncIterator[None]:
    """A part that dies ends the block with its failure."""
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(cluster.watch(), name="watch all parts")
            yield
            watching.cancel()
    except* LocalFailure as failures:
        raise _first(failures) from None


def _first(group: BaseExceptionGroup[LocalFailure]) -> LocalFailure:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, LocalFailure):
        raise TypeError(error)
    return error


async def _stop_together(children: list[Child]) -> None:
    await asyncio.gather(*(child.stop(grace_s=STOP_SERVICES_S) for child in children))


def _once(told: Told) -> Told:
    """Say each thing once."""
    said: set[str] = set()

    def tell(text: str) -> None:
        if text not in said:
            said.add(text)
            told(text)

    return tell


def _machine(node: NodeSpec) -> Machine:
    return Machine(
        name=node.name,
        cpu_milli=node.cpu_milli,
        memory_mib=node.memory_mib,
        labels={"gpubus.dev/simulated": "true"},
    )


def _plain_environment() -> dict[str, str]:
    """Ours, without settings that are meant for somebody else."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("GPUBUS_", "OTEL_", "KUBECONFIG"))
    }


def service_environment(cluster: LocalCluster) -> dict[str, str]:
    """Settings of scheduler, reconciler and autoscaler."""
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **_plain_environment(),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "GPUBUS_NATS__URLS": cluster.nats_url,
        "GPUBUS_TELEMETRY__OTLP_ENDPOINT": cluster.traces_url,
        "GPUBUS_LOG__FORMAT": "json",
        "GPUBUS_RECONCILER__KUBE__URL": cluster.kube.url,
        **cluster.options.environment,
    }
