"""A recorded trace through the same services: arrivals in compressed time, lifetimes on the cluster's own fast clock.

In: pods by creation time, a running local cluster. Out: samples of what is sold and what waits, and a summary. The
simulated machines' clock runs `speed` times as fast, so that a pod of the trace runs its own seconds; requests are
published when their time has come. When publishing falls behind, it goes on as fast as it can and says by how much.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from contracts.answers import Summary
from contracts.messages import Value
from contracts.units import WHOLE_CARD
from gpubus.audit.collect import audit
from gpubus.audit.snapshot import Report
from gpubus.client import Client
from gpubus.simulate.openb import PodRow

SAMPLE_S = 0.5
IN_FLIGHT = 64
"""Requests that wait for their acknowledgement: the stream's disk is the limit, not the way there."""
SETTLE_S = 3.0
"""The end: nothing has been accepted, placed or ended for so long."""
PATIENCE_S = 60.0

Told = Callable[[str], None]


class Sample(Value, frozen=True, kw_only=True):
    """The cluster at one time of the replay (seconds of ours since the first arrival)."""

    at_s: float
    sold_milli: int
    cards: int
    pending: int
    placed: int
    ended: int
    arrived: int

    @property
    def percent(self) -> float:
        """Of all cards; for pictures, never for decisions."""
        return 100 * self.sold_milli / (self.cards * WHOLE_CARD) if self.cards else 0.0


class Outcome(Value, frozen=True, kw_only=True):
    """What came of a replay."""

    pods: int
    demand_milli: int
    """Of all pods together, whether or not they were there at the same time."""
    late_s: float
    """By how much the last request was published after its time."""
    summary: Summary
    samples: tuple[Sample, ...]
    report: Report


class Replay:
    """One run."""

    def __init__(self, client: Client, rows: Sequence[PodRow], *, speed: float, policy: str | None, told: Told) -> None:
        self._client = client
        self._rows = rows
        self._speed = speed
        self._policy = policy
        self._told = told
        self._arrived = 0
        self._late_s = 0.0
        self.samples: list[Sample] = []

    async def run(self) -> Outcome:
        """Publish everything, wait until it has settled, audit."""
        began = time.monotonic()
        sampling = asyncio.create_task(self._sample(began), name="replay: samples")
        try:
            await self._feed(began)
            self._told(f"{len(self._rows)} pods have arrived after {time.monotonic() - began:.1f} s")
            await self._settled()
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
        return Outcome(
            pods=len(self._rows),
            demand_milli=sum(row.demand_milli for row in self._rows),
            late_s=round(self._late_s, 3),
            summary=await self._client.summary(),
            samples=tuple(self.samples),
            report=await audit(self._client),
        )

    async def _feed(self, began: float) -> None:
        first = self._rows[0].created_s if self._rows else 0.0
        gate = asyncio.Semaphore(IN_FLIGHT)
        async with asyncio.TaskGroup() as group:
            for row in self._rows:
                due = began + (row.created_s - first) / self._speed
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await gate.acquire()
                self._late_s = max(0.0, time.monotonic() - due)
                group.create_task(self._publish(row, gate), name=f"replay: {row.name}")

    async def _publish(self, row: PodRow, gate: asyncio.Semaphore) -> None:
        try:
            await self._client.fire(row.request(policy=self._policy), namespace=row.namespace)
            self._arrived += 1
        finally:
            gate.release()

    async def _sample(self, began: float) -> None:
        while True:
            self.samples.append(await self._one(began))
            await asyncio.sleep(SAMPLE_S)

    async def _one(self, began: float) -> Sample:
        nodes = await self._client.nodes()
        summary = await self._client.summary()
        return Sample(
            at_s=round(time.monotonic() - began, 3),
            sold_milli=sum(node.used_card_milli for node in nodes),
            cards=sum(node.cards for node in nodes),
            pending=summary.pending,
            placed=summary.placed,
            ended=summary.ended,
            arrived=self._arrived,
        )

    async def _settled(self) -> None:
        """Until the numbers stand still: what is left runs on, or waits for what does not end."""
        until = time.monotonic() + PATIENCE_S
        before, since = None, time.monotonic()
        while time.monotonic() < until:
            summary = await self._client.summary()
            if summary != before:
                before, since = summary, time.monotonic()
            elif time.monotonic() - since >= SETTLE_S:
                return
            await asyncio.sleep(SAMPLE_S)
