"""Schedulers that are killed between two lines: in the middle of a rebuild, before a refusal's commit and after it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from bus.ledger.append import commit_after
from bus.ledger.follow import open_ledger
from bus.ledger.proof import prove
from bus.ledger.state import LedgerState
from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import Batch, BusError, Outgoing, Stored
from contracts.decisions import CardSlice
from contracts.messages import encode
from contracts.outcomes import Allocation
from contracts.requests import EnvVar, GpuAsk, PodRequest, PodTemplate
from contracts.subjects import EVENTS, LEDGER, REQUESTS
from contracts.units import CardUuid, NodeName, RequestUid
from scheduler import rebuild
from tests.contract.bus_worlds import collect
from tests.contract.scheduler_rig import FakeCluster, Place, deciding
from tests.servers.process import wait_until

PODS = 500


class Cut(InMemoryBus):
    """A bus that is silent for ever when one more commit than so many would be stored, or `mute` and an event."""

    def __init__(self, server: MemoryServer, name: str, commits: int) -> None:
        super().__init__(server, name)
        self.left = commits
        self.mute = False
        self.killed = asyncio.Event()

    async def store(self, subject: str, data: bytes, **options: Any) -> Stored:
        if LEDGER.parse(subject):
            if self.left == 0:
                self.killed.set()
                await asyncio.Event().wait()
            self.left -= 1
        return await super().store(subject, data, **options)

    async def store_many(self, messages: Sequence[Outgoing], **options: Any) -> list[Stored | BusError]:
        if self.mute and EVENTS.parse(messages[0].subject):
            self.killed.set()
            await asyncio.Event().wait()
        return await super().store_many(messages, **options)


def running(index: int, *, value: str = "") -> Allocation:
    """A pod of a lost ledger."""
    name = f"p{index}"
    pod = PodTemplate(image="i", cpu_milli=1, memory_mib=1, env=(EnvVar(name="A", value=value),))
    ask = GpuAsk(share_milli=1, memory_mib=1)
    return Allocation(
        uid=RequestUid(f"0ldepoch-1-{index}"),
        namespace="default",
        epoch="0ldepoch",
        ledger_sequence=index + 1,
        request=PodRequest(name=name, pod=pod, gpu=ask),
        node=NodeName("gpu-1"),
        slices=(CardSlice(card=CardUuid("GPU-gpu-1-0"), share_milli=1, memory_mib=1),),
        pod=f"{name}-abcde",
        running=True,
    )


@pytest.mark.parametrize("commits", [0, 1, 2])
async def test_whoever_goes_on_with_a_cut_rebuild_adopts_every_pod_once(commits: int) -> None:
    """Claim: killed after any of its commits, a rebuild is finished by the next one.

    Nothing that runs is forgotten, accepted twice or decided anew.
    """
    server = MemoryServer()
    world = InMemoryBus(server, "world")
    await world.ensure_streams()
    async with FakeCluster(world) as cluster:
        cluster.allocations = tuple(running(index) for index in range(PODS))
        await cluster.node("gpu-1", cards=1)
        cut = Cut(server, "first", commits)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_until_killed(cut), name="first")
            await asyncio.wait_for(cut.killed.wait(), 20)
            first.cancel()
        assert await world.last_sequence(LEDGER.stream) == commits
        async with deciding(InMemoryBus(server, "second")):
            await wait_until(lambda: _adopted(world), what="every pod is adopted", timeout_s=20.0)

    messages = await collect(world, LEDGER.stream)
    proof = prove(messages)
    assert proof.holds, str(proof)
    assert (len(proof.epochs), proof.accepted, proof.adopted, proof.decided) == (1, PODS, PODS, 0)


async def _until_killed(bus: Cut) -> None:
    async with deciding(bus):
        await asyncio.Event().wait()


async def _adopted(bus: InMemoryBus) -> bool:
    state, _ = await open_ledger(bus)
    return state.placed_count() == PODS and not await rebuild.unfinished(bus, "default")


@pytest.mark.parametrize("value", ["v" * 8000, ""], ids=["large", "small"])
def test_a_part_of_a_rebuild_is_never_larger_than_a_message_may_be(value: str) -> None:
    """Claim: large requests are packed by size, small ones by number; none is left out."""
    found = tuple(running(index, value=value) for index in range(PODS))
    parts = list(rebuild.parts(rebuild.groups(LedgerState(), "e", found, {}, reason="test")))
    commits = [commit_after(LedgerState(), part, author="a", epoch="e") for part in parts]

    assert sum(len(part) for part in parts) == 2 * PODS + 1
    assert max(len(encode(commit)) for commit in commits) < 640 * 1024
    assert len(parts) > 2


class Slow(InMemoryBus):
    """A bus on which requests arrive later than everything else."""

    async def read(self, stream: str, **options: Any) -> AsyncGenerator[Batch, None]:
        if stream == REQUESTS.stream:
            await asyncio.sleep(0.3)
        async with contextlib.aclosing(super().read(stream, **options)) as batches:
            async for batch in batches:
                yield batch


def before_the_commit(cut: Cut) -> None:
    cut.left = 0


def before_anybody_is_told(cut: Cut) -> None:
    cut.mute = True


Next = Callable[[], contextlib.AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def killed_at_a_refusal(dies: Callable[[Cut], None]) -> AsyncIterator[tuple[Place, Next]]:
    """A scheduler refuses `job` because there is one, and dies over it; then `job` ends, and the next one decides."""
    server = MemoryServer()
    world = InMemoryBus(server, "world")
    await world.ensure_streams()
    async with FakeCluster(world) as cluster:
        await cluster.node("gpu-1", cards=1)
        here = Place(world, cluster)
        cut = Cut(server, "first", 10**9)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_until_killed(cut), name="first")
            await here.submits("job", 500)
            uid = (await here.until("job", "placed"))["uid"]
            dies(cut)
            await here.submits("job", 300)
            await asyncio.wait_for(cut.killed.wait(), 20)
            first.cancel()

        @contextlib.asynccontextmanager
        async def next_one() -> AsyncIterator[None]:
            await cluster.outcome(uid, "default", "job", "ended")
            async with deciding(Slow(server, "second")):
                await here.until("job", "ended")
                yield

        yield here, next_one


async def test_a_refusal_that_no_commit_holds_was_never_said() -> None:
    """Claim: killed before the commit, a scheduler has refused nothing: the next one goes by the state that it finds.

    The first decides that the name is taken; when the second reads the message, the name is free.
    """
    async with killed_at_a_refusal(before_the_commit) as (here, next_one):
        async with next_one():
            await wait_until(lambda: _placed_twice(here), what="the name is taken again", timeout_s=20.0)
            await here.proved()

        assert "refused" not in await here.phases("job")


async def _placed_twice(here: Place) -> bool:
    return (await here.phases("job")).count("placed") == 2


async def test_a_refusal_that_a_commit_holds_stands_and_is_told() -> None:
    """Claim: killed after the commit, before anybody was told, a scheduler has refused: the next one says it.

    Also when the name is free by then.
    """
    async with killed_at_a_refusal(before_anybody_is_told) as (here, next_one):
        assert "refused" not in await here.phases("job")
        async with next_one():
            await here.submits("next", 500)
            await here.until("next", "placed")
            await here.proved()

        assert await here.phases("job") == ["accepted", "placed", "refused", "ended"]
