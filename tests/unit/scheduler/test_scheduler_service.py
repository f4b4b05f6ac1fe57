"""The scheduler as a whole on an in-memory bus and a virtual clock: what users and nodes see of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from bus.codec import ask, publish, store
from bus.ledger.proof import prove
from bus.ledger.shelf import newest_head
from bus.ledger.state import LedgerState
from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import BusUnavailable, Received
from bus.runtime.deadline import Deadline
from bus.runtime.process import Process
from bus.runtime.settings import TelemetrySettings
from bus.runtime.telemetry import start
from contracts import subjects
from contracts.answers import AskExplain, AskState, Explanation, StateView, SubmitReply
from contracts.decisions import CardSlice
from contracts.inventory import Card, Heartbeat, NodeFacts, NodeInventory
from contracts.messages import encode
from contracts.outcomes import Allocation, AllocationsPage, Outcome, RequestEvent
from contracts.requests import GpuAsk, PodRequest, PodTemplate, Withdraw
from contracts.units import CardUuid, NodeName, RequestUid
from gpubus.audit.collect import audit
from gpubus.client import Client
from scheduler.batch import Author, Desk
from scheduler.core.engine import Engine
from scheduler.inbox import StillHere
from scheduler.sampling import Sampler
from scheduler.service import Scheduler
from scheduler.settings import SchedulerSettings

pytestmark = pytest.mark.looptime(start=0)

NODE = NodeName("n1")


class World:
    """One memory server, a scheduler on it, and everybody else played by `bus`."""

    def __init__(self, *, running: tuple[Allocation, ...] = ()) -> None:
        self.server = MemoryServer()
        self.bus = InMemoryBus(self.server, "world")
        self.running = running
        self.beats = 0

    @contextlib.asynccontextmanager
    async def scheduler(self, name: str = "s1") -> AsyncIterator[Scheduler]:
        """A scheduler at work."""
        telemetry = start(TelemetrySettings(), "scheduler", name)
        made = Scheduler(SchedulerSettings(), Process("scheduler", name, telemetry, Deadline()))
        stop = asyncio.Event()
        bus = InMemoryBus(self.server, name)
        work = asyncio.create_task(made.serve(bus, stop), name=name)
        try:
            yield made
        finally:
            stop.set()
            await asyncio.wait_for(work, 10)
            telemetry.shutdown(0.5)

    @contextlib.asynccontextmanager
    async def alive(self, *, cards: int = 2) -> AsyncIterator[None]:
        """A reconciler that says what runs, and one node whose monitor speaks once a second."""

        async def answer(_: Received) -> bytes:
            return encode(AllocationsPage(items=self.running))

        await self.bus.ensure_streams()
        await self.node(cards)
        async with self.bus.respond(subjects.ALLOCATIONS.wildcard, answer):
            beating = asyncio.create_task(self.beat_for_ever(), name="beats")
            try:
                yield
            finally:
                beating.cancel()

    async def node(self, cards: int) -> None:
        """The node with so many cards."""
        found = tuple(
            Card(uuid=CardUuid(f"GPU-{i}"), index=i, model="A100", memory_total_mib=40_537) for i in range(cards)
        )
        await store(
            self.bus, subjects.INVENTORY, NodeInventory(node=NODE, boot_id="b", incarnation="i", cards=found), node=NODE
        )
        facts = NodeFacts(node=NODE, uid="u", allocatable_cpu_milli=64_000, allocatable_memory_mib=256_000)
        await store(self.bus, subjects.NODE_FACTS, facts, node=NODE)

    async def beat_for_ever(self) -> None:
        """A heartbeat a second."""
        while True:
            self.beats += 1
            beat = Heartbeat(node=NODE, boot_id="b", incarnation="i", sequence=self.beats, uptime_ms=0, cards=2)
            with contextlib.suppress(BusUnavailable):
                await publish(self.bus, subjects.HEARTBEATS, beat, node=NODE)
            await asyncio.sleep(1)

    async def ready(self) -> None:
        """Until the node takes requests."""
        for _ in range(100):
            with contextlib.suppress(BusUnavailable):
                nodes = (await ask(self.bus, subjects.STATE, AskState(what="nodes"), StateView)).nodes
                if [n.health for n in nodes] == ["fresh"] and nodes[0].ready and nodes[0].cards:
                    return
            await asyncio.sleep(0.2)
        raise AssertionError("the node is not ready")

    async def submit(self, name: str, share: int = 500) -> SubmitReply:
        """A submit, repeated while nobody is active."""
        for _ in range(50):
            with contextlib.suppress(BusUnavailable):
                return await ask(self.bus, subjects.SUBMIT, asked(name, share), SubmitReply, namespace="team")
            await asyncio.sleep(0.2)
        raise AssertionError("nobody answers")

    async def view(self) -> StateView:
        """The summary."""
        return await ask(self.bus, subjects.STATE, AskState(what="summary"), StateView)

    async def events(self, name: str) -> list[RequestEvent]:
        """What was told of a request."""
        told: list[RequestEvent] = []
        subject = subjects.EVENTS.subject(namespace="team", name=name)
        async with contextlib.aclosing(self.bus.read(subjects.EVENTS.stream, subject=subject)) as batches:
            async for batch in batches:
                told.extend(msgspec.json.decode(m.data, type=RequestEvent) for m in batch.messages)
                if batch.caught_up:
                    return told
        return told


def asked(name: str, share: int = 500) -> PodRequest:
    """A request."""
    return PodRequest(name=name, pod=PodTemplate(image="i"), gpu=GpuAsk(share_milli=share))


async def test_a_submit_is_answered_after_its_commit_and_tells_where_it_went() -> None:
    """Accepted means: its record is in the ledger, at the sequence that the answer names."""
    world = World()
    async with world.alive(), world.scheduler():
        await world.ready()
        reply = await world.submit("a")
        await asyncio.sleep(1.5)

        assert reply.accepted
        assert (await world.view()).ledger_sequence >= reply.ledger_sequence > 0
        assert [e.phase for e in await world.events("a")] == ["placed"]


async def test_the_same_request_again_is_the_same_request() -> None:
    """A repeated submit gets the first uid; another content under the name is refused."""
    world = World()
    async with world.alive(), world.scheduler():
        first = await world.submit("a")
        again = await world.submit("a")
        other = await world.submit("a", share=100)

    assert (again.uid, again.duplicate) == (first.uid, True)
    assert not other.accepted
    assert other.refusals[0].field == "name"


async def test_a_request_published_while_nobody_is_there_is_decided_later() -> None:
    """The stream keeps it; the position in the ledger makes it once."""
    world = World()
    await world.bus.ensure_streams()
    await store(world.bus, subjects.REQUESTS, asked("early"), namespace="team")
    async with world.alive():
        async with world.scheduler():
            await asyncio.sleep(3)
        async with world.scheduler("s2"):
            await asyncio.sleep(3)

            assert [e.phase for e in await world.events("early")][-1] == "placed"
            assert (await world.view()).summary.accepted == 1  # type: ignore[union-attr]


async def test_what_does_not_fit_waits_with_numbers_and_goes_when_there_is_room() -> None:
    """Three of 600 on two cards: the third says what is missing, and is placed when one ends."""
    world = World()
    async with world.alive(), world.scheduler():
        await world.ready()
        replies = [await world.submit(f"r{i}", 600) for i in range(3)]
        await asyncio.sleep(2.5)
        waiting = (await world.events("r2"))[-1]
        explained = await ask(world.bus, subjects.EXPLAIN, AskExplain(name="r2"), Explanation, namespace="team")
        ended = Outcome(uid=replies[0].uid, namespace="team", name="r0", phase="ended", pod="p", exit_code=0)
        await store(world.bus, subjects.OUTCOMES, ended, namespace="team", name="r0")
        await asyncio.sleep(1)

        assert waiting.phase == "pending"
        assert (waiting.reasons[0].needed, waiting.reasons[0].free) == (600, 400)
        assert explained.nearest is not None
        assert explained.nearest.missing == 200
        assert [e.phase for e in await world.events("r2")][-1] == "placed"


async def test_a_silent_node_takes_nothing_new_and_gives_nothing_back() -> None:
    """Suspect after five seconds; what runs there stays counted; back within one heartbeat."""
    world = World()
    async with world.scheduler():
        async with world.alive():
            await world.ready()
            await world.submit("before")
        await asyncio.sleep(7)
        late = await world.submit("late")
        await asyncio.sleep(2)
        silent = (await world.events("late"))[-1]
        summary = (await world.view()).summary
        beating = asyncio.create_task(world.beat_for_ever(), name="beats")
        await asyncio.sleep(1)
        beating.cancel()

        assert late.accepted
        assert (silent.phase, silent.reasons[0].code) == ("pending", "stale")
        assert summary is not None
        assert (summary.placed, summary.pending) == (1, 1)
        assert [e.phase for e in await world.events("late")][-1] == "placed"


async def test_the_other_scheduler_takes_over_and_every_request_has_one_decision() -> None:
    """A graceful end hands over at once; the log shows one decision per request and an unbroken chain."""
    world = World()
    async with world.alive(), contextlib.AsyncExitStack() as first, contextlib.AsyncExitStack() as second:
        await first.enter_async_context(world.scheduler("s1"))
        await world.ready()
        await second.enter_async_context(world.scheduler("s2"))
        for i in range(3):
            await world.submit(f"r{i}", 100)
        await first.aclose()
        for i in range(3, 6):
            await world.submit(f"r{i}", 100)
        messages: list[Received] = []
        async with contextlib.aclosing(world.bus.read(subjects.LEDGER.stream)) as batches:
            async for batch in batches:
                messages.extend(batch.messages)
                if batch.caught_up:
                    break

    proof = prove(messages)
    assert proof.broken == ""
    assert (proof.accepted, proof.decided) == (6, 6)
    assert len(proof.authors) == 2


async def test_an_empty_ledger_begins_with_what_kubernetes_says() -> None:
    """Lost ledger: the pods' annotations are counted before anything new is placed."""
    held = Allocation(
        uid=RequestUid("0ldepoch-7-0"),
        namespace="team",
        epoch="0ldepoch",
        ledger_sequence=7,
        request=asked("kept", 700),
        node=NODE,
        slices=(CardSlice(card=CardUuid("GPU-0"), share_milli=700, memory_mib=28_000),),
        pod="kept-abcde",
        running=True,
    )
    world = World(running=(held,))
    async with world.alive(), world.scheduler():
        await world.ready()
        await world.submit("new", 400)
        cards = (await ask(world.bus, subjects.STATE, AskState(what="cards"), StateView)).cards

    assert [c.used_milli for c in cards] == [700, 400]


async def test_no_epoch_begins_before_kubernetes_has_spoken() -> None:
    """Without the reconciler's answer nothing is promised: the submit finds nobody."""
    world = World()
    await world.bus.ensure_streams()
    async with world.scheduler() as made:
        await asyncio.sleep(90)

        assert await world.bus.last_sequence(subjects.LEDGER.stream) == 0
        assert "reconciler" in made.role
        with pytest.raises(BusUnavailable):
            await ask(world.bus, subjects.SUBMIT, asked("a"), SubmitReply, namespace="team")


def test_a_quiet_day_ends_with_an_empty_commit() -> None:
    """A log that aged out whole would have no head to compare with; otherwise nothing makes no commit."""
    engine = Engine(LedgerState(epoch="e"), policy="packing")
    author = Author(incarnation="s", term=1, policy_version="v")
    desk = Desk(engine, author, policies=frozenset(), sampler=Sampler(0.0, lambda: 0.0))

    assert desk.prepare([], now_ms=0).commit is None
    quiet = desk.prepare([StillHere()], now_ms=0).commit
    assert quiet is not None
    assert (quiet.number, quiet.records) == (1, ())


async def test_withdrawing_what_waits_ends_it_and_what_is_placed_waits_for_evidence() -> None:
    """The slice of a placed request is counted until its pod is seen to be gone."""
    world = World()
    async with world.alive(cards=1), world.scheduler():
        await world.ready()
        placed = await world.submit("placed", 800)
        await world.submit("waits", 800)
        for name in ("placed", "waits"):
            await ask(world.bus, subjects.SUBMIT, Withdraw(name=name), SubmitReply, namespace="team")
        held = (await world.view()).summary
        gone = Outcome(uid=placed.uid, namespace="team", name="placed", phase="gone", pod="p")
        await store(world.bus, subjects.OUTCOMES, gone, namespace="team", name="placed")
        await asyncio.sleep(1)
        freed = (await world.view()).summary

    assert held is not None
    assert freed is not None
    assert (held.placed, held.withdrawn) == (1, 1)
    assert (freed.placed, freed.ended) == (0, 1)


async def test_the_audit_of_a_log_that_has_aged_begins_at_a_checkpoint() -> None:
    """After thirty days the first commits are gone; what is left is walked from the oldest checkpoint that reaches."""
    world = World()
    async with world.alive(), world.scheduler():
        await world.ready()
        for index in range(8):
            await world.submit(f"r{index}", 100)
        log = world.server.streams[subjects.LEDGER.stream]
        checkpoint = await newest_head(world.bus)
        assert checkpoint is not None
        for sequence in range(1, checkpoint[0].ledger_sequence + 1):
            log.messages.pop(sequence, None)
        report = await audit(Client(world.bus, timeout_s=2.0), settle_s=0.1)

    assert report.proof.broken == ""
    assert report.counts.accepted == 8
    assert report.proof.first_sequence == checkpoint[0].ledger_sequence + 1 > 1
    assert report.replayed.differences == ()
