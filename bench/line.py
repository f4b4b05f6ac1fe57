"""Requests through a real scheduler process on a real nats-server: decided and committed per second, and how soon.

The world around the scheduler (nodes, heartbeats, users) is played by this process; every commit is synced to disk.
Two measurements: a backlog is decided as fast as it goes (stored while the scheduler is stopped with SIGSTOP, so that
storing it costs nothing), and requests come one by one at 100 a second and wait for their promise.
The rate is read from the log, by the server's time: requests of all commits but the first, from the first to the last.
Beside it: the same for the events that users are told by, and the CPU time of the scheduler for one request, which
depends least on what else runs. The lease is long here: whoever is stopped would lose it, and winning it again is no
part of deciding.
The floor of the first is the same number of requests appended to the ledger without deciding anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from bench.rows import Row, percentile
from bus.client import NatsBus, connect
from bus.codec import ask, publish
from bus.ledger.append import Ledger, commit_after
from bus.ledger.state import LedgerState
from bus.protocol import BusUnavailable, Outgoing
from contracts import subjects
from contracts.answers import AskState, StateView, SubmitReply
from contracts.decisions import Accepted, Commit, EpochStarted, Reserved
from contracts.inventory import Card, Heartbeat, NodeFacts, NodeInventory
from contracts.messages import encode
from contracts.outcomes import AllocationsPage
from contracts.requests import GpuAsk, PodRequest, PodTemplate
from contracts.units import CardUuid, NodeName, RequestUid
from tests.servers.natsd import NatsCluster, NatsServer

NODES = int(os.environ.get("BENCH_NODES", "5000"))
CARDS = 8
BACKLOG = int(os.environ.get("BENCH_REQUESTS", "20000"))
PACED = 500
RATE_PER_S = 100
SHARES = (100, 250, 500, 125, 200)
CPUS = (100, 250, 500, 1000)


def run() -> list[Row]:
    """The table."""
    return asyncio.run(_tables())


async def _tables() -> list[Row]:
    rows: list[Row] = []
    async with NatsServer() as server:
        rows += await _measure([server.url], replicas=1, label="one server")
    async with NatsCluster() as cluster:
        rows += await _measure(cluster.urls, replicas=3, label="three servers, R3")
    return rows


async def _measure(urls: list[str], *, replicas: int, label: str) -> list[Row]:
    async with connect(urls, name="bench") as bus:
        await bus.ensure_streams(replicas=replicas)
        async with _world(bus), _scheduler(urls, replicas) as scheduler:
            await _ready(bus)
            done = await _backlog(bus, scheduler)
            waits_ms = await _paced(bus)
        floor = await _floor(bus)
    shape = f"{NODES:,} nodes x {CARDS} cards"
    return [
        Row(
            name=f"decided and committed, {label}",
            value=done.rate,
            unit="requests/s",
            floor=floor,
            goal=">= 10,000/s" if replicas == 1 else "",
            note=f"{shape}; backlog of {BACKLOG:,}, 20 shapes; floor: the same accepted records appended, 100 a commit",
        ),
        Row(name=f"and told to users, {label}", value=done.told, unit="events/s", note="from the first commit on"),
        Row(name=f"CPU of the scheduler, {label}", value=done.cpu_us, unit="us/request", note="events and all"),
        Row(
            name=f"submit to committed at {RATE_PER_S}/s, p50, {label}",
            value=percentile(waits_ms, 50),
            unit="ms",
            goal="<= 5 ms" if replicas == 1 else "",
            note=shape,
        ),
        Row(
            name=f"submit to committed at {RATE_PER_S}/s, p99, {label}",
            value=percentile(waits_ms, 99),
            unit="ms",
            goal="<= 25 ms" if replicas == 1 else "",
            note=f"{PACED} submits",
        ),
    ]


# --- the scheduler and its world -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _scheduler(urls: list[str], replicas: int) -> AsyncIterator[asyncio.subprocess.Process]:
    env = {
        **os.environ,
        "GPUBUS_NATS__URLS": ",".join(urls),
        "GPUBUS_NATS__REPLICAS": str(replicas),
        "GPUBUS_LOG__LEVEL": "warning",
        "GPUBUS_SCHEDULER__LEASE_DURATION_S": "60",
    }
    profile = os.environ.get("BENCH_PROFILE")
    command = ["-m", "cProfile", "-o", profile, "-m", "scheduler"] if profile else ["-m", "scheduler"]
    with tempfile.TemporaryFile() as log:
        child = await asyncio.create_subprocess_exec(sys.executable, *command, env=env, stderr=log)
        try:
            yield child
        finally:
            child.terminate()
            await child.wait()


@contextlib.asynccontextmanager
async def _world(bus: NatsBus) -> AsyncIterator[None]:
    async def nothing_runs(_: object) -> bytes:
        return encode(AllocationsPage(items=()))

    await bus.store_many([message for index in range(NODES) for message in _node(NodeName(f"node-{index}"))])
    async with bus.respond(subjects.ALLOCATIONS.wildcard, nothing_runs):
        beating = asyncio.create_task(_beat(bus), name="heartbeats")
        try:
            yield
        finally:
            beating.cancel()


def _node(name: NodeName) -> list[Outgoing]:
    cards = tuple(
        Card(uuid=CardUuid(f"GPU-{name}-{i}"), index=i, model="A100", memory_total_mib=81_920, memory_reserved_mib=600)
        for i in range(CARDS)
    )
    inventory = NodeInventory(node=name, boot_id="b", incarnation="i", cards=cards)
    facts = NodeFacts(node=name, uid="u", allocatable_cpu_milli=96_000, allocatable_memory_mib=512_000)
    return [
        Outgoing(subject=subjects.INVENTORY.subject(node=name), data=encode(inventory)),
        Outgoing(subject=subjects.NODE_FACTS.subject(node=name), data=encode(facts)),
    ]


async def _beat(bus: NatsBus) -> None:
    """Every node once a second, spread over the second as in a real fleet."""
    sequence = 0
    while True:
        sequence += 1
        for index in range(NODES):
            name = NodeName(f"node-{index}")
            beat = Heartbeat(node=name, boot_id="b", incarnation="i", sequence=sequence, uptime_ms=0, cards=CARDS)
            with contextlib.suppress(Exception):
                await publish(bus, subjects.HEARTBEATS, beat, node=name)
            if index % 20 == 19:
                await asyncio.sleep(20 / NODES)


async def _ready(bus: NatsBus) -> None:
    """All nodes known and alive."""
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        with contextlib.suppress(BusUnavailable):
            if await _fresh(bus) == NODES:
                return
        await asyncio.sleep(0.5)
    raise RuntimeError("the scheduler did not see all nodes within 120 s")


async def _fresh(bus: NatsBus) -> int:
    """Nodes that may take requests."""
    count, page = 0, StateView(ledger_sequence=0, more=True)
    while page.more:
        asked = AskState(what="nodes", limit=2000, after=page.last)
        page = await ask(bus, subjects.STATE, asked, StateView, timeout_s=5.0)
        count += sum(n.health == "fresh" and n.cards == CARDS and n.ready for n in page.nodes)
    return count


# --- the measurements ----------------------------------------------------------------------------------------------


def _request(index: int, prefix: str) -> PodRequest:
    pod = PodTemplate(image="image", cpu_milli=CPUS[index % len(CPUS)], memory_mib=256)
    return PodRequest(name=f"{prefix}-{index}", pod=pod, gpu=GpuAsk(share_milli=SHARES[index % len(SHARES)]))


class Done(msgspec.Struct, frozen=True):
    """How a backlog went."""

    rate: float
    told: float
    cpu_us: float


async def _backlog(bus: NatsBus, scheduler: asyncio.subprocess.Process) -> Done:
    """Requests a second while the scheduler commits what had come while it was stopped."""
    first = await bus.last_sequence(subjects.LEDGER.stream) + 1
    told = await bus.last_sequence(subjects.EVENTS.stream)
    os.kill(scheduler.pid, signal.SIGSTOP)
    try:
        subject = subjects.REQUESTS.subject(namespace="bench")
        await bus.store_many([Outgoing(subject=subject, data=encode(_request(i, "b"))) for i in range(BACKLOG)])
    finally:
        os.kill(scheduler.pid, signal.SIGCONT)
    cpu_s = _cpu_s(scheduler.pid)
    await _told(bus, told + BACKLOG)
    cpu_s = _cpu_s(scheduler.pid) - cpu_s
    commits = await _commits(bus, first)
    (began_s, head), (ended_s, _) = commits[0], commits[-1]
    if sum(placed for _, placed in commits) != BACKLOG:
        raise RuntimeError(f"not all were placed, or some twice: {sum(placed for _, placed in commits)}")
    last = await bus.last(subjects.EVENTS.stream, subjects.EVENTS.subject(namespace="bench", name=f"b-{BACKLOG - 1}"))
    told_s = (last.stored_at if last else math.inf) - began_s
    return Done((BACKLOG - head) / (ended_s - began_s), BACKLOG / told_s, cpu_s / BACKLOG * 1e6)


async def _told(bus: NatsBus, events: int) -> None:
    """Until so many events are stored; asked gently, so that asking costs the server nothing."""
    give_up = time.monotonic() + 300
    while time.monotonic() < give_up:
        if await bus.last_sequence(subjects.EVENTS.stream) >= events:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("not all events were stored within 300 s")


async def _commits(bus: NatsBus, first: int) -> list[tuple[float, int]]:
    """When each commit from sequence `first` on was stored, and how many requests it placed; only those that did."""
    found: list[tuple[float, int]] = []
    read = msgspec.json.Decoder(Commit).decode
    async with contextlib.aclosing(bus.read(subjects.LEDGER.stream, from_sequence=first)) as batches:
        async for batch in batches:
            for message in batch.messages:
                placed = sum(isinstance(record, Reserved) for record in read(message.data).records)
                found += [(message.stored_at, placed)] if placed else []
            if batch.caught_up:
                return found
    return found


def _cpu_s(pid: int) -> float:
    """CPU seconds that a process has used so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _paced(bus: NatsBus) -> list[float]:
    """Milliseconds from submit to its promise, at random moments around the rate."""
    rng = random.Random(1)
    waits_ms: list[float] = []

    async def one(index: int) -> None:
        began = time.perf_counter()
        reply = await ask(bus, subjects.SUBMIT, _request(index, "p"), SubmitReply, namespace="bench", timeout_s=10.0)
        waits_ms.append((time.perf_counter() - began) * 1000)
        if not reply.accepted:
            raise RuntimeError(f"refused: {reply}")

    async with asyncio.TaskGroup() as group:
        for index in range(PACED):
            group.create_task(one(index), name=f"submit-{index}")
            await asyncio.sleep(rng.expovariate(RATE_PER_S))
    return waits_ms


async def _floor(bus: NatsBus) -> float:
    """The same acceptances appended to a ledger of their own, 100 a commit, nothing decided."""
    state = LedgerState(pool="floor")
    ledger = Ledger(bus, state)
    await ledger.append(commit_after(state, [EpochStarted(epoch="f", reason="bench")], author="bench", epoch="f"))
    began = time.perf_counter()
    for start in range(0, BACKLOG, 100):
        records = [
            Accepted(uid=RequestUid(f"f-{start}-{i}"), namespace="bench", request=_request(start + i, "f"))
            for i in range(100)
        ]
        await ledger.append(commit_after(state, records, author="bench"))
    return BACKLOG / (time.perf_counter() - began)
