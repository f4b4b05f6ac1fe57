"""Decisions into bound pods on a real API server: how fast, and how soon after the commit.

Floor and reconciler take turns on the same servers, three rounds each. The floor is the bare adapter: ready-made
bodies, 16 at once, a create and its binding, nothing else. The reconciler starts from a ledger on a real nats-server
that syncs every write, watches all pods, and publishes an outcome for each; its time runs from the first commit to the
last accepted binding, the writing of the commits included. The nodes are objects without kubelets, so that nobody else
uses the cores.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import Iterator

from bench.rows import Row, median, percentile
from bus.client import connect as connect_nats
from bus.ledger.state import RequestState
from bus.protocol import Bus
from reconciler import kube, podspec
from reconciler.calls import IN_FLIGHT, Kube
from reconciler.podspec import PodRules
from reconciler.service import Reconciler
from reconciler.view import pod_key
from tests.contract.reconciler.rig import Author, running
from tests.servers.binaries import CLUSTER, missing
from tests.servers.control_plane import ControlPlane
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

PODS = int(os.environ.get("BENCH_PODS", "300"))
ROUNDS = 5
NODES = 10
PER_COMMIT = 50
PACED = 100
RATE_PER_S = 20
RULES = PodRules(run_as_user=65_532)


def run() -> list[Row]:
    """The table. Raises RuntimeError when the control plane has not been built."""
    if absent := missing(*CLUSTER):
        raise RuntimeError(f"not built: {', '.join(absent)}; run tests/cluster/build.sh")
    return asyncio.run(_table())


async def _table() -> list[Row]:
    async with (
        ControlPlane() as plane,
        NatsServer() as nats,
        connect_nats(nats.url, name="bench") as bus,
        connect_nats(nats.url, name="bench-author") as authors_bus,
        kube.connect(kubeconfig=str(plane.kubeconfig)) as transport,
    ):
        await bus.ensure_streams()
        await _nodes(plane)
        ours, floors = await Author.open(authors_bus), await Author.open(authors_bus, pool="floor")
        for name in _node_names():
            await ours.node(name)
            await floors.node(name)
        bench = _Bench(plane, bus, transport, ours, floors)
        await bench.bare()  # the first round warms up caches and connections on both sides
        bare_rates, rates = [], []
        for _ in range(ROUNDS):
            bare_rates.append(await bench.bare())
            rates.append(await bench.reconciled())
        bare_ms = await bench.bare_paced()
        waits_ms = await bench.reconciled_paced()
    how = f"{PODS} pods a round, median of {ROUNDS} rounds, {IN_FLIGHT} in flight"
    paced = f"one decision a commit, {RATE_PER_S}/s; floor: create and bind, no ledger"
    rate = Row(
        name="created and bound",
        value=median(rates),
        unit="pods/s",
        floor=median(bare_rates),
        goal=">= 80 % of the floor",
        note=f"{how}; floor: the bare adapter",
    )
    return [rate, *(_wait(percent, waits_ms, bare_ms, paced) for percent in (50, 99))]


def _wait(percent: int, waits_ms: list[float], bare_ms: list[float], note: str) -> Row:
    value, floor = percentile(waits_ms, percent), percentile(bare_ms, percent)
    return Row(name=f"commit to bound, p{percent}", value=value, unit="ms", floor=floor, note=note)


async def _nodes(plane: ControlPlane) -> None:
    for name in _node_names():
        size = {"cpu": "64", "memory": "512Gi", "pods": "5000"}
        ready = [{"type": "Ready", "status": "True", "reason": "bench", "message": ""}]
        body = {"metadata": {"name": name}, "status": {"allocatable": size, "capacity": size, "conditions": ready}}
        await plane.api("POST", "/api/v1/nodes", body)


def _node_names() -> list[str]:
    return [f"bench-{number}" for number in range(NODES)]


class _Bench:
    """Both contenders on the same servers, each with a ledger of its own: neither sees the other's decisions."""

    def __init__(self, plane: ControlPlane, bus: Bus, transport: kube.ApiServer, ours: Author, floors: Author) -> None:
        self._plane, self._bus, self._transport = plane, bus, transport
        self._ours, self._floors = ours, floors
        self._nodes = itertools.cycle(_node_names())

    async def bare(self) -> float:
        """Pairs of create and bind per second, without anything else."""
        author = self._floors
        author.namespace = await self._plane.namespace("bench")
        requests = await self._decided(author, PODS)
        bodies = iter([(r, podspec.manifest(r, epoch=author.epoch, rules=RULES)) for r in requests])
        calls = Kube(self._transport)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(IN_FLIGHT):
                group.create_task(self._pairs(calls, bodies), name=f"bare-{number}")
        return PODS / (time.perf_counter() - began)

    async def _pairs(self, calls: Kube, bodies: Iterator[tuple[RequestState, bytes]]) -> None:
        for request, body in bodies:
            await self._pair(calls, request, body)

    async def _pair(self, calls: Kube, request: RequestState, body: bytes) -> None:
        pod = await calls.create(request.accepted.namespace, body)
        binding = podspec.binding(
            request, podspec.assignment(request, epoch=self._floors.epoch), pod_uid=pod.metadata.uid
        )
        await calls.bind(request.accepted.namespace, pod.metadata.name, binding)

    async def bare_paced(self) -> list[float]:
        """Milliseconds of a pair, at the given rate."""
        calls, found = Kube(self._transport), []
        for request in await self._decided(self._floors, PACED):
            body = podspec.manifest(request, epoch=self._floors.epoch, rules=RULES)
            began = time.perf_counter()
            await self._pair(calls, request, body)
            found.append(await _rest_of(began))
        return found

    async def reconciled(self) -> float:
        """Decisions per second, from the first commit to the last accepted binding."""
        self._ours.namespace = await self._plane.namespace("bench")
        async with running(self._bus, self._transport) as reconciler:
            await wait_until(lambda: _idle(reconciler), what="what was there is looked at")
            began = time.perf_counter()
            unbound = deque(await self._decided(self._ours, PODS))

            async def all_bound() -> bool:
                while unbound and _is_bound(reconciler, unbound[0]):
                    unbound.popleft()
                return not unbound

            await wait_until(all_bound, what="all are bound", timeout_s=120.0, every_s=0.005)
            return PODS / (time.perf_counter() - began)

    async def reconciled_paced(self) -> list[float]:
        """Milliseconds from the answer of the ledger to the accepted binding, at the given rate."""
        self._ours.namespace = await self._plane.namespace("bench")
        found: list[float] = []
        async with running(self._bus, self._transport) as reconciler:
            await wait_until(lambda: _idle(reconciler), what="what was there is looked at")
            for _ in range(PACED):
                [request] = await self._decided(self._ours, 1)
                began = time.perf_counter()

                async def bound(one: RequestState = request) -> bool:
                    return _is_bound(reconciler, one)

                await wait_until(bound, what="bound", every_s=0.0005)
                found.append(await _rest_of(began))
        return found

    async def _decided(self, author: Author, count: int) -> list[RequestState]:
        """Accepted and placed, some in each commit. Each takes a thousandth of a card: all of a run fit."""
        made: list[RequestState] = []
        while len(made) < count:
            size = min(PER_COMMIT, count - len(made))
            pairs = [author.placing(on=next(self._nodes), index=index, share=1, memory=1) for index in range(size)]
            await author.write(*(record for pair in pairs for record in pair))
            made += [author.ledger.state.requests[accepted.uid] for accepted, _ in pairs]
        return made


async def _idle(reconciler: Reconciler) -> bool:
    return not len(reconciler.queue) and not reconciler.board.behind


def _is_bound(reconciler: Reconciler, request: RequestState) -> bool:
    pod = reconciler.pods.store.get(pod_key(request))
    return pod is not None and pod.spec.node_name != ""


async def _rest_of(began: float) -> float:
    """Milliseconds since then; waits until the next one is due."""
    took_ms = (time.perf_counter() - began) * 1000
    await asyncio.sleep(max(0.0, 1 / RATE_PER_S - took_ms / 1000))
    return took_ms
