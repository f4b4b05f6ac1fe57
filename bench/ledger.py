"""The ledger: folding, committing at `sync_interval: always` on one and on three servers, starting from a checkpoint.

The floor of committing is the same bytes stored by the same client with the same compare-and-set, one after the other,
without encoding and folding. The floor of a start is the same messages read and thrown away. What needs no server is
told in CPU time, so that a busy machine does not show in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice

from bench.rows import Row
from bus.client import NatsBus, connect
from bus.ledger.append import Ledger, commit_after
from bus.ledger.fold import apply, apply_record
from bus.ledger.follow import messages, open_ledger
from bus.ledger.shelf import write_checkpoint
from bus.ledger.snapshot import copy, dump, load
from bus.ledger.state import LedgerState
from bus.protocol import Outgoing, Stored
from contracts.decisions import (
    Accepted,
    Candidate,
    CardSlice,
    Commit,
    EpochStarted,
    FactsSet,
    HealthSet,
    InventorySet,
    Placement,
    Rationale,
    Record,
    Released,
    Reserved,
)
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.messages import encode
from contracts.requests import GpuAsk, PodRequest, PodTemplate
from contracts.subjects import LEDGER
from contracts.units import CardUuid, NodeName, RequestUid
from tests.servers.natsd import NatsCluster, NatsServer

NODES, CARDS = 1_000, 8
LIVE = 50_000
TAIL = 100_000
SECONDS = 2.0
"""For each row of commits."""

READY = 150_000
"""Records made before the clock starts; a row ends early when they are used up."""

EPOCH = "e0000000"


def run() -> list[Row]:
    """All rows; about a minute and a half."""
    return [*in_memory(), *asyncio.run(on_servers())]


# --- what is written -----------------------------------------------------------------------------------------------


def nodes() -> Iterator[Record]:
    """The records that make the fleet."""
    yield EpochStarted(epoch=EPOCH, reason="bench")
    for n in range(NODES):
        name = NodeName(f"n{n}")
        cards = tuple(
            Card(uuid=CardUuid(f"GPU-{n}-{i}"), index=i, model="A100", memory_total_mib=81_920) for i in range(CARDS)
        )
        yield InventorySet(inventory=NodeInventory(node=name, boot_id="b", incarnation="i", cards=cards))
        yield FactsSet(
            facts=NodeFacts(
                node=name, uid="u", allocatable_cpu_milli=10**6, allocatable_memory_mib=10**6, allocatable_pods=500
            )
        )
        yield HealthSet(node=name, health="fresh")


def requests(start: int = 0) -> Iterator[Record]:
    """Accepted, reserved, accepted, reserved, ...; the one before the last `LIVE` ends for each that comes."""
    for i in range(start, 10**9):
        uid, name, card = uid_of(i), NodeName(f"n{i % NODES}"), CardUuid(f"GPU-{i % NODES}-{i // NODES % CARDS}")
        yield Accepted(uid=uid, namespace="team", request=request_of(i))
        yield Reserved(
            uid=uid,
            placement=Placement(
                node=name,
                slices=(CardSlice(card=card, share_milli=100, memory_mib=1_000),),
                cpu_milli=500 + i % 7,
                memory_mib=64,
            ),
            rationale=Rationale(
                policy="menu",
                chosen=Candidate(node=name, score=37),
                runner_up=Candidate(node=NodeName("n0"), score=36),
                feasible_nodes=NODES,
                rejected_nodes=0,
            ),
        )
        if i >= LIVE:
            yield Released(uid=uid_of(i - LIVE), evidence="ended")


def uid_of(i: int) -> RequestUid:
    """As the scheduler would name the i-th request."""
    return RequestUid(f"{EPOCH}-{i // 100 + 2}-{i % 100}")


def request_of(i: int) -> PodRequest:
    """A small request with a command."""
    return PodRequest(
        name=f"job-{i}",
        pod=PodTemplate(image="registry/image:tag", command=("python", "-m", "train"), cpu_milli=500 + i % 7),
        gpu=GpuAsk(share_milli=100, memory_mib=1_000),
    )


def fleet(live: int) -> tuple[LedgerState, list[Commit]]:
    """A state with nodes and so many live requests, and the commits that make it."""
    state, commits = LedgerState(), []
    for records in (nodes(), islice(requests(), 2 * live)):
        while part := list(islice(records, 1_000)):
            commit = commit_after(state, part, author="bench", epoch=EPOCH)
            apply(state, commit, state.sequence + 1)
            commits.append(commit)
    return state, commits


# --- without a server ----------------------------------------------------------------------------------------------


def _fold(state: LedgerState, records: Sequence[Record], sequence: int) -> None:
    for record in records:
        apply_record(state, record, sequence)


def in_memory() -> list[Row]:
    """Folding, dumping, loading, copying."""
    state, _ = fleet(0)
    records = list(islice(requests(), 2 * LIVE))
    spent = timed(lambda: _fold(state, records, 5))
    releases = [Released(uid=uid_of(i), evidence="ended") for i in range(LIVE)]
    whole = copy(state)
    freed = timed(lambda: _fold(state, releases, 6))
    dumped = dump(whole)
    size = f"{NODES:,} nodes x {CARDS} cards, {LIVE:,} live requests, {len(dumped) / 1e6:.0f} MB"
    return [
        Row(name="fold accepted + reserved", value=spent / LIVE * 1e6, unit="us", goal="10 us", note="per request"),
        Row(name="fold released", value=freed / LIVE * 1e6, unit="us", note="per request"),
        Row(name="copy a state", value=timed(lambda: copy(whole)) * 1e3, unit="ms", goal="500 ms", note=size),
        Row(name="dump a state", value=timed(lambda: dump(whole)) * 1e3, unit="ms", note=size),
        Row(name="load a state", value=timed(lambda: load(dumped)) * 1e3, unit="ms", note=size),
    ]


def timed(work: Callable[[], object]) -> float:
    """Seconds of CPU that a call takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


# --- on servers ----------------------------------------------------------------------------------------------------


async def on_servers() -> list[Row]:
    """Committing on one server and on three; starting."""
    rows: list[Row] = []
    for replicas in (1, 3):
        rows += [await committing(replicas, size) for size in (1, 10, 100, 500)]
    return [*rows, *[await starting(size) for size in (100, 10)]]


@contextlib.asynccontextmanager
async def prepared(replicas: int) -> AsyncIterator[NatsBus]:
    """A bus with our streams, over fresh servers."""
    async with contextlib.AsyncExitStack() as stack:
        if replicas == 1:
            urls = [(await stack.enter_async_context(NatsServer())).url]
        else:
            urls = (await stack.enter_async_context(NatsCluster())).urls
        bus = await stack.enter_async_context(connect(urls, name="bench"))
        await _streams(bus, replicas)
        yield bus


async def _streams(bus: NatsBus, replicas: int) -> None:
    for _ in range(50):
        with contextlib.suppress(Exception):
            await bus.ensure_streams(replicas=replicas)
            return
        await asyncio.sleep(0.2)
    await bus.ensure_streams(replicas=replicas)


async def committing(replicas: int, size: int) -> Row:
    """Commits one after the other for a while, then the same bytes stored barely."""
    async with prepared(replicas) as bus:
        ledger = Ledger(bus, LedgerState())
        for part in _parts(nodes(), 300):
            await ledger.append(commit_after(ledger.state, part, author="bench", epoch=EPOCH))
        first, work = ledger.state.number, iter(list(islice(_parts(requests(), size), READY // size)))
        began = time.perf_counter()
        for part in work:
            await ledger.append(commit_after(ledger.state, part, author="bench"))
            if time.perf_counter() - began > SECONDS:
                break
        commits = ledger.state.number - first
        rate = commits / (time.perf_counter() - began)
        data = encode(commit_after(ledger.state, part, author="bench"))
        floor = await _storing(bus, data)
    return Row(
        name=f"R{replicas}, {size} records a commit",
        value=rate,
        unit="commits/s",
        floor=floor,
        note=f"{rate * size:,.0f} records/s, {len(data) / 1000:.1f} kB a commit",
    )


async def _storing(bus: NatsBus, data: bytes) -> float:
    subject, last, count = LEDGER.subject(pool="floor"), 0, 0
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS / 2:
        last = (await bus.store(subject, data, expected_last=last, stream=LEDGER.stream)).sequence
        count += 1
    return count / (time.perf_counter() - began)


def _parts(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    while part := list(islice(records, size)):
        yield part


async def starting(size: int) -> Row:
    """A checkpoint of the whole fleet, so many records behind it, and a start."""
    state, commits = fleet(LIVE)
    async with prepared(1) as bus:
        await _store_all(bus, commits)
        if await write_checkpoint(bus, copy(state)) is None:
            raise RuntimeError("the checkpoint was not stored")
        tail = []
        for part in _parts(islice(requests(LIVE), TAIL), size):
            tail.append(commit_after(state, part, author="bench"))
            apply(state, tail[-1], state.sequence + 1)
        await _store_all(bus, tail)
        began, busy = time.perf_counter(), time.process_time()
        opened, _ = await open_ledger(bus)
        spent, busy = time.perf_counter() - began, time.process_time() - busy
        floor = await _reading(bus, commits[-1].number + 1, state.sequence)
    if opened.number != state.number:
        raise RuntimeError(f"started at {opened.number}, written up to {state.number}")
    note = f"{LIVE:,} live requests in the checkpoint, {len(tail):,} commits after it; {busy:.1f} s of CPU"
    return Row(name=f"start with {TAIL:,} later records", value=spent, unit="s", floor=floor, goal="5 s", note=note)


async def _store_all(bus: NatsBus, commits: list[Commit]) -> None:
    subject = LEDGER.subject(pool="default")
    outgoing = [Outgoing(subject=subject, data=encode(commit), stream=LEDGER.stream) for commit in commits]
    for result in await bus.store_many(outgoing, timeout_s=60):
        if not isinstance(result, Stored):
            raise result


async def _reading(bus: NatsBus, first: int, last: int) -> float:
    began = time.perf_counter()
    async with contextlib.aclosing(messages(bus, "default", first)) as stored:
        async for message in stored:
            if message.sequence >= last:
                break
    return time.perf_counter() - began
