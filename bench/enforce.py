"""From a changed desired state to the kernel: how soon a pod's CPU limit holds after somebody published it.

A monitor process follows a real nats-server that syncs every write; the pod is a busy process in cgroups of this
machine. The time runs from before the publish, its disk sync included, to the new quota in the container's cgroup, as
a loop that reads the kernel's file sees it. Floor, in turns with it: the same publish until a bare reader of the same
stream has the message, and one write of the quota.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from bench.rows import Row, percentile
from bus.client import connect
from bus.protocol import Bus
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode
from contracts.shares import CpuLimit, NodeCpuLimits
from contracts.subjects import CPU_LIMITS, SHARES
from contracts.units import NodeName, RequestUid
from monitor.cgroups.tree import CpuPlace
from monitor.enforce import cpu
from tests.servers.cgroups import POD, RealPod, missing
from tests.servers.natsd import NatsServer
from tests.servers.process import ServerProcess, wait_until

CHANGES = int(os.environ.get("BENCH_CHANGES", "200"))
NODE = NodeName("bench-1")
OTHER = NodeName("bench-2")
UID = RequestUid("e-1-0")
LOW, HIGH = 200, 300
LOOK_S = 0.0002
ROOT = Path(__file__).parents[1]


def run() -> list[Row]:
    """The table. Raises RuntimeError where no cgroups can be made."""
    if reason := missing():
        raise RuntimeError(reason)
    return asyncio.run(_table())


async def _table() -> list[Row]:
    pod = RealPod()
    try:
        container = pod.start()
        async with NatsServer() as nats, connect(nats.url, name="bench") as bus:
            await bus.ensure_streams()
            shares = NodeShares(
                node=NODE,
                epoch="e",
                ledger_sequence=1,
                pods=(PodOnNode(uid=UID, pod_uid=POD, container_id=container),),
            )
            await bus.store(SHARES.subject(node=NODE), encode(shares), stream=SHARES.stream)
            async with _monitor(nats.url, pod), _Floor(bus, pod) as floor:
                held, bare = await _measured(bus, pod, floor)
    finally:
        pod.remove()
    how = f"{CHANGES} changes, one at a time; floor: publish, a bare reader, one write"
    return [
        Row(
            name=f"limit published to limit in the kernel, p{percent}",
            value=percentile(held, percent),
            unit="ms",
            floor=percentile(bare, percent),
            note=how,
        )
        for percent in (50, 99)
    ]


async def _measured(bus: Bus, pod: RealPod, floor: _Floor) -> tuple[list[float], list[float]]:
    held: list[float] = []
    bare: list[float] = []
    for sequence in range(1, CHANGES + 1):
        milli = LOW if sequence % 2 else HIGH
        held.append(await _change(bus, pod, sequence, milli))
        bare.append(await floor.change(sequence, milli))
    return held, bare


async def _change(bus: Bus, pod: RealPod, sequence: int, milli: int) -> float:
    """Milliseconds until the kernel has it."""
    began = time.perf_counter()
    await bus.store(CPU_LIMITS.subject(node=NODE), _limits(NODE, sequence, milli), stream=CPU_LIMITS.stream)
    while pod.limit() != str(milli * 100):  # noqa: ASYNC110 - the kernel sets no event
        await asyncio.sleep(LOOK_S)
    return (time.perf_counter() - began) * 1000


def _limits(node: NodeName, sequence: int, milli: int) -> bytes:
    limits = (CpuLimit(uid=UID, limit_milli=milli),)
    return encode(NodeCpuLimits(node=node, epoch="e", sequence=sequence, limits=limits))


class _Floor:
    """The same without a monitor: a reader of another node's limits, and the write on a cgroup of its own."""

    def __init__(self, bus: Bus, pod: RealPod) -> None:
        self._bus = bus
        self._folder = pod.pod_folder.parent / "floor"
        self._place = CpuPlace(
            pod_uid="", container="", unified=pod.unified, pod_folder=str(self._folder), folder=str(self._folder)
        )
        self._seen = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._folder.mkdir()
        self._reader = asyncio.create_task(self._read(), name="floor")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        self._folder.rmdir()

    async def _read(self) -> None:
        async with contextlib.aclosing(
            self._bus.read(CPU_LIMITS.stream, subject=CPU_LIMITS.subject(node=OTHER))
        ) as batches:
            async for batch in batches:
                if batch.messages:
                    self._seen.set()

    async def change(self, sequence: int, milli: int) -> float:
        """Milliseconds."""
        self._seen.clear()
        began = time.perf_counter()
        await self._bus.store(CPU_LIMITS.subject(node=OTHER), _limits(OTHER, sequence, milli), stream=CPU_LIMITS.stream)
        await self._seen.wait()
        cpu.bring(self._place, milli)
        return (time.perf_counter() - began) * 1000


@contextlib.asynccontextmanager
async def _monitor(url: str, pod: RealPod) -> AsyncIterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "NODE": NODE,
            "PROVIDER": "simulated",
            "CGROUP_ROOT": pod.root,
            "ENFORCE__STATE_PATH": f"{folder}/state",
        }
        env = os.environ | {f"GPUBUS_MONITOR__{key}": str(value) for key, value in settings.items()}
        env |= {"GPUBUS_NATS__URLS": url, "PYTHONPATH": str(ROOT)}
        process = ServerProcess("monitor", [sys.executable, "-m", "monitor"], Path(folder, "log"), env=env)
        process.launch()
        try:
            async with connect(url, name="bench-warm") as bus:
                await bus.store(CPU_LIMITS.subject(node=NODE), _limits(NODE, 0, 250), stream=CPU_LIMITS.stream)

                async def warm() -> bool:
                    return pod.limit() == "25000"

                await wait_until(warm, what="the monitor holds the first limit", timeout_s=30.0)
            yield
        finally:
            await process.kill()
