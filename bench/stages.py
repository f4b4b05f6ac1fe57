"""What one request costs the scheduler, stage by stage: CPU time in one process, without a server, with little noise.

The stages are those of `scheduler.term`, called as it calls them: a message read from the connection, judged at the
door and accepted, decided, encoded, folded into the committed state, told. What is left out: heartbeats, the socket,
and the waiting, which other work fills.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from time import process_time

from nats.protocol.parser import Parser

from bench.rows import Row, median
from bus.frames import parse_ack_reply, parse_header, publish_frame, received
from bus.ledger.append import commit_after
from bus.ledger.fold import apply
from bus.ledger.snapshot import copy
from bus.ledger.state import LedgerState
from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import Received
from bus.together import headers_together
from contracts.decisions import Commit, EpochStarted, FactsSet, HealthSet, InventorySet, Record
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.messages import encode
from contracts.requests import GpuAsk, PodRequest, PodTemplate
from contracts.units import CardUuid, NodeName
from scheduler.batch import Author, Desk
from scheduler.core.arrays.warm import warm_up
from scheduler.core.engine import Engine
from scheduler.core.policies import POLICIES
from scheduler.core.queue.desk import always
from scheduler.inbox import FromStream, Input
from scheduler.projector import Projector
from scheduler.sampling import Sampler

NODES = int(os.environ.get("BENCH_NODES", "5000"))
CARDS = 8
REQUESTS_EACH = int(os.environ.get("BENCH_REQUESTS", "10000"))
ROUNDS = 5
BATCH = 500
CHUNK = 32 * 1024
SHARES, CPUS = (100, 250, 500, 125, 200), (100, 250, 500, 1000)
STAGES = ("read", "door and acceptance", "decision", "encoding", "committed state", "events", "frames of events")


def run() -> list[Row]:
    """The table."""
    warm_up()
    state = LedgerState()
    apply(state, commit_after(state, [EpochStarted(epoch="e", reason="bench"), *_nodes()], author="b", epoch="e"), 1)
    rounds = [asyncio.run(_round(copy(state), copy(state))) for _ in range(ROUNDS)]
    shape = f"{NODES:,} nodes x {CARDS} cards, {REQUESTS_EACH:,} requests of 20 shapes, median of {ROUNDS}"
    rows = [
        Row(name=stage, value=median([one[stage] for one in rounds]), unit="us/request", note=shape) for stage in STAGES
    ]
    whole = median([sum(one.values()) for one in rounds])
    return [*rows, Row(name="all of it", value=whole, unit="us/request", goal="<= 95 us", note="10,000/s with room")]


def _nodes() -> Iterator[Record]:
    for index in range(NODES):
        name = NodeName(f"node-{index}")
        cards = tuple(
            Card(uuid=CardUuid(f"GPU-{name}-{i}"), index=i, model="A100", memory_total_mib=81_920) for i in range(CARDS)
        )
        yield InventorySet(inventory=NodeInventory(node=name, boot_id="b", incarnation="i", cards=cards))
        yield FactsSet(
            facts=NodeFacts(node=name, uid="u", allocatable_cpu_milli=96_000, allocatable_memory_mib=512_000)
        )
        yield HealthSet(node=name, health="fresh")


def _payloads() -> list[bytes]:
    return [
        encode(
            PodRequest(
                name=f"r-{i}",
                pod=PodTemplate(image="image", cpu_milli=CPUS[i % len(CPUS)], memory_mib=256),
                gpu=GpuAsk(share_milli=SHARES[i % len(SHARES)]),
            )
        )
        for i in range(REQUESTS_EACH)
    ]


class Clock:
    """CPU microseconds by stage."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time what is done inside."""
        began = process_time()
        yield
        self.spent[stage] += process_time() - began


async def _round(assumed: LedgerState, committed: LedgerState) -> dict[str, float]:
    clock = Clock()
    wire = [_frame(index, data) for index, data in enumerate(_payloads(), start=1)]
    with clock("read"):
        messages = await _read(wire)
    desk, told = _desk(clock, assumed), Projector(InMemoryBus(MemoryServer(), "bench"), committed)
    gc.freeze()
    left: Sequence[Input] = [FromStream(namespace="bench", message=message) for message in messages]
    while left or desk.engine.unfinished:
        batch, rest = left[:BATCH], left[BATCH:]
        with clock("door and acceptance"):
            prepared = desk.prepare(batch, now_ms=1)
        left = [*prepared.left, *rest]
        if prepared.commit is not None:
            _commit(clock, prepared.commit, committed, told)
    clock.spent["door and acceptance"] -= clock.spent["decision"]
    if committed.placed_count() != REQUESTS_EACH:
        raise RuntimeError(f"{committed.placed_count()} of {REQUESTS_EACH} are placed")
    return {stage: clock.spent[stage] / REQUESTS_EACH * 1e6 for stage in STAGES}


class _Timed(Engine):
    """An engine whose decisions are timed apart from what comes in."""

    clock: Clock

    def schedule(self, may_go_on: Callable[[], bool] = always) -> None:
        with self.clock("decision"):
            super().schedule(may_go_on)


def _desk(clock: Clock, assumed: LedgerState) -> Desk:
    engine = _Timed(assumed, policy="menu-value")
    engine.clock = clock
    author = Author(incarnation="s", term=1, policy_version="v")
    return Desk(engine, author, policies=frozenset(POLICIES), sampler=Sampler(0.0, lambda: 0.0))


def _commit(clock: Clock, commit: Commit, committed: LedgerState, told: Projector) -> None:
    with clock("encoding"):
        encode(commit)
    with clock("committed state"):
        apply(committed, commit, committed.sequence + 1)
    before = len(told.queue)
    with clock("events"):
        told.commit(commit, committed.sequence)
    window = list(told.queue)[before:]
    with clock("frames of events"):
        for header, message in zip(headers_together(window, "batch"), window, strict=True):
            publish_frame(message.subject, "", header, message.data)


def _frame(sequence: int, data: bytes) -> bytes:
    """A delivery of the requests stream as the server sends it."""
    place = b"%d.%d.1790000000000000000.%d" % (sequence, sequence, REQUESTS_EACH - sequence)
    return b"MSG gpubus.v1.requests.bench 1 $JS.ACK.GPUBUS_REQUESTS.reader.1.%b %d\r\n%b\r\n" % (place, len(data), data)


class _Taker:
    """What the parser of the connection hands messages to, as the reader takes them in."""

    def __init__(self) -> None:
        self.found: list[Received] = []

    async def _process_msg(self, _sid: int, subject: bytes, reply: bytes, data: bytes, header: bytes | None) -> None:
        ack = parse_ack_reply(reply)
        if ack is not None:
            sequence, stored_ns = ack.sequence, ack.stored_ns
            self.found.append(received(subject, data, parse_header(header), sequence=sequence, stored_ns=stored_ns))


async def _read(frames: list[bytes]) -> list[Received]:
    """In pieces as they come from a socket."""
    taker = _Taker()
    parser = Parser(taker)
    wire = b"".join(frames)
    for start in range(0, len(wire), CHUNK):
        await parser.parse(wire[start : start + CHUNK])
    return taker.found
