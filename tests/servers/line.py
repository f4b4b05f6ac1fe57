"""The whole line as processes: schedulers, a reconciler and monitors, on servers that are given.

    async with Line(nats.urls, plane=control_plane, jaeger=jaeger.otlp_url) as line:
        await line.monitor("gpu-1", cards=8)
        ...
        await line.schedulers[0].kill()

What the processes write goes to files in one folder; an error of the line carries the end of the log of whoever died.
`reconciler=False` leaves Kubernetes to the test; `scheduler_module` runs another program in the scheduler's place.
Strangers are played by `stranger`, a plain nats-py client that knows nothing of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nats
from nats.aio.client import Client

from tests.servers.control_plane import ControlPlane
from tests.servers.http import Answer, call
from tests.servers.ports import Port, reserve_port
from tests.servers.process import ServerProcess

__all__ = ["Line", "Stranger", "exit_code", "log_lines", "stranger"]

REPOSITORY = Path(__file__).resolve().parents[2]


class Line:
    """Services as processes of their own, each with `python -m`."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        plane: ControlPlane | None = None,
        kube_url: str = "",
        jaeger: str = "",
        schedulers: int = 1,
        reconciler: bool = True,
        scheduler_module: str = "scheduler",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="gpubus-line-")
        self.folder = Path(self._temporary.name)
        self.urls = list(urls)
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GPUBUS_")},
            "GPUBUS_NATS__URLS": ",".join(urls),
            "GPUBUS_TELEMETRY__OTLP_ENDPOINT": jaeger,
            "GPUBUS_LOG__FORMAT": "json",
            "GPUBUS_RECONCILER__PODS__RUN_AS_USER": "65532",
            **(env or {}),
        }
        if plane is not None:
            self._env["GPUBUS_RECONCILER__KUBE__KUBECONFIG"] = str(plane.kubeconfig)
        if kube_url:
            self._env["GPUBUS_RECONCILER__KUBE__URL"] = kube_url
        self._ports: dict[str, Port] = {}
        self.schedulers = [self._service(scheduler_module, f"scheduler-{i}") for i in range(schedulers)]
        self.reconciler = self._service("reconciler", "reconciler")
        self._with_reconciler = reconciler
        self.monitors: dict[str, ServerProcess] = {}

    def _service(self, module: str, name: str, **env: str) -> ServerProcess:
        command = [sys.executable, "-m", module]
        self._ports[name] = reserve_port()
        ours = {"GPUBUS_HEALTH__PORT": str(self._ports[name].number), "PYTHONPATH": str(REPOSITORY)}
        return ServerProcess(name, command, self.folder / f"{name}.log", env={**self._env, **env, **ours})

    async def readyz(self, process: ServerProcess) -> Answer:
        """What a service says of itself; status 0 while it does not answer."""
        return await call("GET", f"http://127.0.0.1:{self._ports[process.name].number}/readyz", timeout_s=1.0)

    async def monitor(self, node: str, *, cards: int = 8, memory_mib: int = 81_920) -> None:
        """Start the monitor of a node with simulated cards."""
        process = self._service(
            "monitor",
            f"monitor-{node}",
            GPUBUS_MONITOR__NODE=node,
            GPUBUS_MONITOR__PROVIDER="simulated",
            GPUBUS_MONITOR__SIMULATED__CARDS=str(cards),
            GPUBUS_MONITOR__SIMULATED__MEMORY_MIB=str(memory_mib),
        )
        self.monitors[node] = process
        process.launch()

    @property
    def processes(self) -> list[ServerProcess]:
        """All of them, in the order in which they should end."""
        return [*self.monitors.values(), self.reconciler, *self.schedulers]

    async def __aenter__(self) -> Self:
        for process in (*self.schedulers, *([self.reconciler] if self._with_reconciler else [])):
            process.launch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for process in self.processes:
                error.add_note(f"--- {process.name} ---\n{process.log_tail(12)}")
        await asyncio.gather(*(process.stop(grace_s=6.0) for process in self.processes))
        for port in self._ports.values():
            port.release()
        self._temporary.cleanup()


def exit_code(process: ServerProcess) -> int | None:
    """How it ended; None while it runs or has never run."""
    return process._child.returncode if process._child is not None and not process.running else None


def log_lines(process: ServerProcess) -> list[dict[str, Any]]:
    """What it has logged in all its lives, as JSON; a line that is none is `{"message": line}`."""
    found: list[dict[str, Any]] = []
    text = process.log.read_text(encoding="utf-8", errors="replace") if process.log.exists() else ""
    for line in text.splitlines():
        try:
            found.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            found.append({"message": line})
    return found


@contextlib.asynccontextmanager
async def stranger(url: str) -> AsyncIterator[Stranger]:
    """A bare NATS client."""
    client = await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_expected)
    try:
        yield Stranger(client)
    finally:
        await client.close()


async def _expected(_: Exception) -> None:
    """Servers are killed here; nats-py's own callback would write a traceback for each try."""


class Stranger:
    """Somebody with nothing but nats-py, JSON and the documentation."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.js = client.jetstream()

    async def publish(self, namespace: str, payload: Mapping[str, Any] | bytes, **headers: str) -> int:
        """Publish to the requests subject; the sequence it got."""
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        ack = await self.js.publish(f"gpubus.v1.requests.{namespace}", data, headers=headers or None, timeout=10)
        return ack.seq

    async def ask(self, subject: str, payload: Mapping[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
        """A request and its reply as JSON."""
        reply = await self.client.request(subject, json.dumps(payload).encode(), timeout=timeout_s)
        answer: dict[str, Any] = json.loads(reply.data)
        return answer

    async def state(self, what: str, **more: Any) -> dict[str, Any]:
        """A view; asked again while no scheduler is active."""
        give_up = time.monotonic() + 30
        while True:
            try:
                return await self.ask("gpubus.v1.ask.state", {"type": "ask.state.v1", "what": what, **more}, 3.0)
            except Exception:
                if time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.1)

    async def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Everything told so far of one request."""
        found = []
        subject = f"gpubus.v1.events.{namespace}.{name}"
        subscription = await self.js.subscribe(subject, ordered_consumer=True)
        with contextlib.suppress(nats.errors.TimeoutError):
            while True:
                found.append(json.loads((await subscription.next_msg(timeout=0.5)).data))
        await subscription.unsubscribe()
        return found

    async def until(self, namespace: str, name: str, *phases: str, timeout_s: float = 30.0) -> dict[str, Any]:
        """Wait for an event of one of these phases."""
        subject = f"gpubus.v1.events.{namespace}.{name}"
        subscription = await self.js.subscribe(subject, ordered_consumer=True)
        give_up = time.monotonic() + timeout_s
        seen: list[str] = []
        try:
            while (left_s := give_up - time.monotonic()) > 0:
                with contextlib.suppress(nats.errors.TimeoutError):
                    event: dict[str, Any] = json.loads((await subscription.next_msg(timeout=left_s)).data)
                    seen.append(event["phase"])
                    if event["phase"] in phases:
                        return event
        finally:
            await subscription.unsubscribe()
        raise AssertionError(f"{namespace}/{name} was not {phases} within {timeout_s:g} s; seen: {seen}")
