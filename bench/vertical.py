"""Vertical scaling: from a change of load to the quota in the kernel, and what stretching saves.

Latency: a monitor process with its own pace measures a real process in cgroups of this machine, which is stopped and
goes on; vertical scaling decides over a real nats-server that syncs every write; the time runs to the new quota in the
container's cgroup. Floor: until the first usage message that shows the change, heard by a bare subscriber: nobody can
answer what was not measured. The moments of the changes wander over the measuring period.

Stretching: `bench.stretch`, simulated. What a decision costs: in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from autoscaler.core.vertical_node import NodeView, plan
from autoscaler.core.vertical_values import CardPart, Economy, PodView
from autoscaler.vertical import PERIOD_MS
from bench import stretch
from bench.rows import Row, percentile
from bus.client import connect
from bus.protocol import Bus, Received
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode
from contracts.subjects import SHARES, USAGE
from contracts.usage import NodeUsage
from tests.contract.test_vertical import NODE, deciding, monitor, quota_us, sold
from tests.servers.cgroups import POD, RealPod, missing
from tests.servers.natsd import NatsServer

CHANGES = int(os.environ.get("BENCH_CHANGES", "60"))
LOOK_S = 0.002
PATIENCE_S = 10.0
USAGE_S = 1.0


def run() -> list[Row]:
    """The table. Raises RuntimeError where no cgroups can be made."""
    if reason := missing():
        raise RuntimeError(reason)
    return [*asyncio.run(_latency()), _cost(), *_saved()]


# --- latency ---------------------------------------------------------------------------------------------------------


async def _latency() -> list[Row]:
    pod, state = RealPod(), sold()
    (uid,) = state.requests
    try:
        async with NatsServer() as nats, connect(nats.url, name="bench") as bus:
            await bus.ensure_streams()
            on_node = (PodOnNode(uid=uid, pod_uid=POD, container_id=pod.start()),)
            shares = NodeShares(node=NODE, epoch=state.epoch, ledger_sequence=1, pods=on_node)
            await bus.store(SHARES.subject(node=NODE), encode(shares), stream=SHARES.stream)
            with tempfile.TemporaryDirectory() as folder:
                async with monitor(nats.url, pod, Path(folder), usage_s=USAGE_S), deciding(bus, state):
                    found, floor = await _changes(bus, pod)
    finally:
        pod.remove()
    goal = f"p99 <= period ({PERIOD_MS} ms) + 200 ms"
    note = f"{len(found)} changes, usage each {USAGE_S:g} s; floor: until usage that shows it is on the bus"
    return [
        Row(
            name=f"load change to new quota in the kernel, p{percent}",
            value=percentile(found, percent),
            unit="ms",
            floor=percentile(floor, percent),
            goal=goal if percent == 99 else "",
            note=note,
        )
        for percent in (50, 99)
    ]


class _Seen:
    """When usage was last heard that a condition holds for."""

    def __init__(self) -> None:
        self.used_milli = 0
        self.since_s: float | None = None
        self._was = 0
        self._wakes = False

    async def hear(self, received: Received) -> None:
        usage = msgspec.json.decode(received.data, type=NodeUsage)
        self.used_milli = next((c.cpu_used_milli or 0 for c in usage.containers or () if c.own), 0)
        if self.since_s is None and (self.used_milli > self._was if self._wakes else self.used_milli < self._was):
            self.since_s = time.perf_counter()

    def watch(self, *, wakes: bool) -> None:
        """From now on for more, or for less."""
        self._was, self._wakes, self.since_s = self.used_milli, wakes, None


async def _changes(bus: Bus, pod: RealPod) -> tuple[list[float], list[float]]:
    """Milliseconds of each change, and of the floor."""
    (busy,) = pod._busy  # noqa: SLF001 - the process to stop
    seen, found, floor = _Seen(), [], []
    async with bus.subscribe(USAGE.subject(node=NODE), seen.hear):
        await _until(lambda: pod.limit() != "none")
        for turn in range(CHANGES + 1):
            await _settled(pod, turn)
            before_us, wakes = quota_us(pod), turn % 2 == 1
            seen.watch(wakes=wakes)
            began = time.perf_counter()
            busy.send_signal(signal.SIGCONT if wakes else signal.SIGSTOP)
            await _until(partial(_moved, pod, before_us))
            if turn:  # the first one also waits for the monitor to begin
                found.append((time.perf_counter() - began) * 1000)
                await _until(lambda: seen.since_s is not None)
                floor.append(((seen.since_s or began) - began) * 1000)
    return found, floor


def _moved(pod: RealPod, was_us: int) -> bool:
    return quota_us(pod) != was_us


async def _settled(pod: RealPod, turn: int) -> None:
    """The quota has not moved for two measurements, and a part of one that differs each time."""
    stands, since = quota_us(pod), time.perf_counter()
    while time.perf_counter() - since < 2 * USAGE_S + turn * 37 % 100 * USAGE_S / 100:
        await asyncio.sleep(0.02)
        if quota_us(pod) != stands and time.perf_counter() - since < PATIENCE_S:
            stands, since = quota_us(pod), time.perf_counter()


async def _until(condition: Callable[[], bool]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - the kernel sets no event
                await asyncio.sleep(LOOK_S)


# --- cost and savings ------------------------------------------------------------------------------------------------


def _cost() -> Row:
    """One node of eight cards with 64 pods, all managed: median of seven times ten decisions."""
    pods = tuple(
        PodView(
            uid=f"u{i}", managed=True, cpu_sold_milli=500, cpu_used_milli=400 + i,
            cards=(CardPart(card=f"c{i % 8}", sold_milli=125, used_milli=2 * i, elastic=True),),
        )
        for i in range(64)
    )  # fmt: skip
    view, economy, times = NodeView(node="n", pods=pods, cpu_capacity_milli=64_000), Economy(), []
    memory = plan(view, {}, economy, now_ms=0).memory
    for _ in range(7):
        began = time.process_time()
        for turn in range(10):
            plan(view, memory, economy, now_ms=turn * 1000)
        times.append((time.process_time() - began) * 100)
    note = "CPU time; nodes without a pod that asks for it are decided about every 15 s only"
    return Row(name="one decision about a node with 64 pods", value=statistics.median(times), unit="ms", note=note)


def _saved() -> list[Row]:
    alone, joint = stretch.best(stretch=False), stretch.best(stretch=True)
    how = (
        f"simulated hour; 99 % within {stretch.LATENCY_S * 1000:.0f} ms; aim {joint.target_percent} % of what "
        f"replicas may use, {joint.replicas:.1f} of them; alone {alone.target_percent} % and {alone.replicas:.1f}"
    )
    return [
        Row(
            name="card hours, stretching before replicas",
            value=joint.card_hours,
            unit="card h",
            floor=alone.card_hours,
            goal="fewer than replicas alone (shown as floor)",
            note=how,
        )
    ]
