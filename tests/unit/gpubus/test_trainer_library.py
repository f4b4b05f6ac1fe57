"""The trainer library: who trains, who leads, who has to go; on the bus in memory and virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from bus.memory import InMemoryBus, MemoryServer
from contracts.messages import encode
from contracts.subjects import CHECKPOINTED, JOB_STATUS, SHRINK_NOTICES
from contracts.workloads import Checkpointed, JobStatus, ShrinkNotice, TrainerSpan
from gpubus.errors import UsageError
from gpubus.trainer import Leaving, Trainer, trainer, training

pytestmark = pytest.mark.looptime(start=0)

Spans = tuple[TrainerSpan, ...]
KNOWN: Spans = (TrainerSpan(first=2, last=4, state="known"), TrainerSpan(first=5, last=5, state="asked"))
SHRUNK: Spans = (
    TrainerSpan(first=2, last=3, state="known"),
    TrainerSpan(first=4, last=4, state="leaving", deadline_ms=9000),
)


class Job:
    """The autoscaler's side of one job."""

    def __init__(self, bus: InMemoryBus) -> None:
        self.bus = bus
        self.said: list[Checkpointed] = []

    async def hear(self, received: object) -> None:
        self.said.append(msgspec.json.decode(received.data, type=Checkpointed))  # type: ignore[attr-defined]

    async def status(self, generation: int, trainers: Spans) -> None:
        status = JobStatus(namespace="ns", name="bert", phase="running", generation=generation, trainers=trainers)
        await self.bus.store(JOB_STATUS.subject(namespace="ns", name="bert"), encode(status))
        await asyncio.sleep(0.1)

    async def notice(self, *trainers: int) -> None:
        notice = ShrinkNotice(
            namespace="ns", name="bert", generation=7, target=2, trainers=trainers, deadline_ms=9000
        )  # fmt: skip
        await self.bus.store(SHRINK_NOTICES.subject(namespace="ns", name="bert"), encode(notice))
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def job() -> AsyncIterator[Job]:
    made = Job(InMemoryBus(MemoryServer(wall=asyncio.get_running_loop().time), "autoscaler"))
    await made.bus.ensure_streams()
    async with made.bus.subscribe(CHECKPOINTED.wildcard, made.hear):
        yield made


def of(made: Job, index: int) -> contextlib.AbstractAsyncContextManager[Trainer]:
    return trainer("bert", index, namespace="ns", bus=made.bus)


async def test_a_trainer_knows_who_trains_and_who_leads() -> None:
    """One that is asked for and not there yet is not among them; the lowest index leads."""
    async with job() as made:
        await made.status(6, KNOWN)
        async with of(made, 2) as first, of(made, 4) as last, of(made, 5) as coming:
            assert first.world is not None
            assert last.world is not None
            assert coming.world is not None
            assert (first.world.members, first.world.size, first.world.leader) == ((2, 3, 4), 3, True)
            assert (last.world.rank, last.world.leader, coming.world.rank) == (2, False, None)
            await made.status(7, SHRUNK)
            assert (first.world.size, last.world.rank) == (2, None)


async def test_what_is_not_known_yet_is_none() -> None:
    """Until the first status is heard."""
    async with job() as made, of(made, 0) as me:
        assert me.world is None
        assert me.leaving is None


async def test_who_has_to_go_is_told_and_says_that_it_has_saved_until_it_ends() -> None:
    """The word may be lost, so it is said each second; the others are told nothing."""
    async with job() as made:
        async with of(made, 4) as me, of(made, 3) as other:
            told = asyncio.create_task(me.told())
            await made.notice(4)
            assert await told == Leaving(generation=7, target=2, deadline_ms=9000)
            assert other.leaving is None
            assert made.said == []
            me.checkpointed(step=120)
            await asyncio.sleep(2.5)
            assert made.said == [Checkpointed(job="bert", index=4, generation=7, step=120)] * 3
        assert len(made.said) == 4, "and once more at the end"


async def test_whoever_missed_the_notice_learns_it_from_the_status() -> None:
    """A trainer that connects after it was told to go."""
    async with job() as made:
        await made.status(7, SHRUNK)
        async with of(made, 4) as me:
            assert (await me.told()).deadline_ms == 9000


async def test_nobody_says_that_it_has_saved_who_was_not_asked() -> None:
    """The autoscaler would take it for an answer."""
    async with job() as made:
        async with of(made, 3) as me:
            me.checkpointed(step=5)
            await asyncio.sleep(3)
        assert made.said == []


async def test_an_older_status_changes_nothing() -> None:
    """Two messages that overtake each other."""
    async with job() as made, of(made, 2) as me:
        await made.status(7, SHRUNK)
        await made.status(6, KNOWN)
        assert me.world is not None
        assert me.world.generation == 7


def test_which_trainer_of_which_job_must_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """By arguments or by the environment; before any connection is tried."""
    monkeypatch.setenv("JOB_NAME", "bert")
    monkeypatch.delenv("TRAINER_INDEX", raising=False)
    with pytest.raises(UsageError, match="JOB_NAME='bert', JOB_NAMESPACE='', TRAINER_INDEX=''"), training():
        pass


def test_a_wrong_setting_is_told_where_training_is_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name and its value, and not as a connection that did not come up."""
    monkeypatch.setenv("WORKER_NATS_URLS", "ftp://x")
    with pytest.raises(UsageError, match=r"nats: urls: 'ftp://x'"), training("bert", 1, namespace="ns"):
        pass
