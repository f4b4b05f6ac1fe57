"""The demo as a script: what is submitted when, which node dies, what is withdrawn, and the questions at the end.

What flows in: a running local cluster. What flows out: steps that were taken, for whoever shows them, and at the end
the answers (two explanations, one trace, one audit). Nothing here draws.

     0.0 s   one request, followed until it runs: the first card
     0.5 s   a burst of halves, a gang of four, tags, one that is refused, one that no card can ever hold
     1 s     a mixed load in small bursts, drawn from a real trace; some end, some stay
     5 s     a node dies with what is on it; 8 s later it returns
     8 s     one that runs and one that waits are withdrawn
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from bus.runtime.tracing import span_context_from
from contracts.answers import Explanation
from contracts.requests import PodRequest
from gpubus.audit.collect import audit
from gpubus.audit.snapshot import Report
from gpubus.client import Client
from gpubus.jaeger import Trace
from gpubus.local import workload
from gpubus.local.cluster import LocalCluster
from gpubus.tracequery import fetch

NAMESPACE = "demo"
TOTAL = 300
BURST = 12
EVERY_S = 0.5
"""Twelve requests each half second: 24 a second, far below what the services take, slow enough to be watched."""
VICTIM = "a40-03"
DIES_AT_S, RETURNS_AFTER_S, WITHDRAW_AT_S = 5.0, 8.0, 8.0
QUIET_S = 25.0
"""Longest wait at the end for the node to be back and for short pods to be over."""

Told = Callable[[str], None]


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo ends with."""

    placed: Explanation
    pending: Explanation
    trace: Trace | None
    report: Report


class Demo:
    """One run."""

    def __init__(self, cluster: LocalCluster, told: Told) -> None:
        self._cluster = cluster
        self._client: Client = cluster.client
        self._told = told
        self._began = time.monotonic()

    async def run(self) -> Answers:
        """Everything, from the first request to the audit."""
        await self._first_card()
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed(), name="demo: feed")
            group.create_task(self._outage(), name="demo: outage")
            group.create_task(self._withdrawals(), name="demo: withdrawals")
        await self._quiet()
        return await self._answers()

    async def _first_card(self) -> None:
        request = workload.explained()
        head = await self._client.event_head()
        reply = await self._client.submit(request, namespace=NAMESPACE)
        event = await self._client.wait(NAMESPACE, request.name, "placed", uid=reply.uid, from_sequence=head)
        self._told(f"first card: {request.name} has a quarter of {event.slices[0].card} on {event.node}")

    async def _feed(self) -> None:
        alone = [workload.impossible(), workload.undecided()]
        extras = [*workload.halves(16, burst=1), *workload.gang(), *workload.tagged(), *alone]
        await self._submit(extras)
        await self._client.fire(workload.misspelt(), namespace=NAMESPACE)
        self._told("a burst of 16 halves, a gang of 4, two pairs with tags, one that no card can hold, one misspelt")
        rest = workload.requests(TOTAL - len(extras) - 2, seed=8152)
        for at in range(0, len(rest), BURST):
            await self._submit(rest[at : at + BURST])
            await asyncio.sleep(EVERY_S)
        self._told(f"{TOTAL} requests are in")

    async def _submit(self, requests: Sequence[PodRequest]) -> None:
        await asyncio.gather(*(self._client.submit(request, namespace=NAMESPACE) for request in requests))

    async def _outage(self) -> None:
        await self._until(DIES_AT_S)
        await self._cluster.node_dies(VICTIM)
        self._told(f"{VICTIM} loses power; nothing new goes there, and nothing of it is freed")
        await self._until(DIES_AT_S + RETURNS_AFTER_S)
        await self._cluster.node_returns(VICTIM)
        self._told(f"{VICTIM} is back")

    async def _withdrawals(self) -> None:
        await self._until(WITHDRAW_AT_S)
        for request in (workload.halves(1, burst=1)[0], workload.undecided()):
            await self._client.withdraw(request.name, namespace=NAMESPACE, reason="not needed any more")
            self._told(f"{request.name} is withdrawn")

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, self._began + at_s - time.monotonic()))

    async def _quiet(self) -> None:
        """Until every node is fresh and the counts have stood still for two looks."""
        before = None
        until = time.monotonic() + QUIET_S
        while time.monotonic() < until:
            summary = await self._client.summary()
            fresh = all(node.health == "fresh" and node.ready for node in await self._client.nodes())
            if fresh and summary == before:
                return
            before = summary
            await asyncio.sleep(1.5)

    async def _answers(self) -> Answers:
        placed = await self._client.explain(workload.explained().name, namespace=NAMESPACE)
        pending = await self._client.explain(workload.impossible().name, namespace=NAMESPACE)
        context = span_context_from(placed.trace)
        trace = await fetch(self._cluster.traces_url, f"{context.trace_id:032x}") if context else None
        return Answers(placed=placed, pending=pending, trace=trace, report=await audit(self._client, settle_s=8.0))
