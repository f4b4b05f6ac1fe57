"""Training jobs over both buses, with the real scheduler: they grow into free cards and shrink when another one waits.

Nodes and containers are played: what is placed runs, what is withdrawn is gone, a trainer ends as it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest_asyncio

from autoscaler.core.elastic_settle import replay
from autoscaler.jobs import Jobs, JobSettings
from bus.ledger.follow import follow, open_ledger
from bus.ledger.state import LedgerState
from bus.protocol import Bus
from contracts.messages import encode
from contracts.outcomes import RequestEvent
from contracts.requests import EnvVar, GpuAsk, PodTemplate
from contracts.subjects import EVENTS, JOB_STATUS, SCALE, WORKLOADS
from contracts.workloads import Job, JobStatus, ScaleDecision
from gpubus.trainer import Trainer, trainer
from tests.contract.bus_worlds import World, collect
from tests.contract.scheduler_rig import NAMESPACE, FakeCluster, Place, deciding
from tests.servers.process import wait_until

QUICK = JobSettings(period_s=0.2, grow_after_s=0.2, shrink_after_s=0.2, patience_s=60.0)


class Autoscaling:
    """The ledger, folded, and training jobs looked after by it, until it is killed."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.jobs: Jobs | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        state, _ = await open_ledger(self.bus)
        jobs = self.jobs = Jobs(self.bus, lambda: state, QUICK)
        self._tasks = [
            asyncio.create_task(self._fold(state, jobs), name="fold"),
            asyncio.create_task(jobs.run(), name="jobs"),
        ]

    async def _fold(self, state: LedgerState, jobs: Jobs) -> None:
        async with contextlib.aclosing(follow(self.bus, state)) as commits:
            async for _ in commits:
                jobs.wake()

    async def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


class Training(Place):
    """A place with containers, and jobs on it."""

    def __init__(self, bus: Bus, cluster: FakeCluster, autoscaling: Autoscaling) -> None:
        super().__init__(bus, cluster)
        self.autoscaling = autoscaling
        self.uids: dict[str, str] = {}

    async def contain(self) -> None:
        """What is placed runs, what is withdrawn is gone."""
        async with contextlib.aclosing(self.bus.read(EVENTS.stream)) as batches:
            async for batch in batches:
                for received in batch.messages:
                    event = msgspec.json.decode(received.data, type=RequestEvent)
                    if event.phase == "placed":
                        self.uids[event.name] = event.uid
                        await self.cluster.outcome(event.uid, NAMESPACE, event.name, "running")
                    elif event.phase == "withdrawn" and event.name in self.uids:
                        await self.cluster.outcome(self.uids[event.name], NAMESPACE, event.name, "gone")

    async def job(self, name: str, least: int, most: int, **more: Any) -> None:
        pod = PodTemplate(image="train", cpu_milli=1, memory_mib=1)
        job = Job(name=name, pod=pod, gpu=GpuAsk(), min_trainers=least, max_trainers=most, **{"notice_s": 0, **more})
        await self.bus.store(WORKLOADS.subject(namespace=NAMESPACE, name=name), encode(job))

    async def status(self, name: str) -> JobStatus | None:
        last = await self.bus.last(JOB_STATUS.stream, JOB_STATUS.subject(namespace=NAMESPACE, name=name))
        return msgspec.json.decode(last.data, type=JobStatus) if last else None

    async def until_job(self, name: str, phase: str, running: int | None = None) -> JobStatus:
        found: list[JobStatus] = []

        async def so() -> bool:
            status = await self.status(name)
            found[:] = [status] if status else []
            return status is not None and status.phase == phase and running in (None, status.running)

        try:
            await wait_until(so, what=f"{name} is {phase} with {running}", timeout_s=30.0)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {found}") from error
        return found[0]

    async def decisions(self, name: str) -> list[ScaleDecision]:
        subject = SCALE.subject(namespace=NAMESPACE, name=name)
        return [
            msgspec.json.decode(m.data, type=ScaleDecision)
            for m in await collect(self.bus, SCALE.stream, subject=subject)
        ]


@pytest_asyncio.fixture
async def place(world: World) -> AsyncIterator[Training]:
    """One node with four cards, the scheduler and the autoscaler."""
    theirs, scaling, ours = (
        await world.client("scheduler"),
        await world.client("autoscaler"),
        await world.client("test"),
    )
    await ours.ensure_streams()
    async with FakeCluster(ours) as cluster, deciding(theirs, policy="packing", explain_every_s=0.2):
        await cluster.node("gpu-1", cards=4)
        autoscaling = Autoscaling(scaling)
        here = Training(ours, cluster, autoscaling)
        containing = asyncio.create_task(here.contain(), name="containers")
        await autoscaling.start()
        try:
            yield here
        finally:
            await autoscaling.kill()
            containing.cancel()
            await asyncio.gather(containing, return_exceptions=True)
        await here.proved()


async def test_a_job_grows_into_free_cards_and_shrinks_when_another_one_waits(place: Training) -> None:
    """Four cards: the first job takes all of them, then leaves two for the least that the second one needs."""
    await place.job("first", 1, 8)
    await place.until_job("first", "running", 4)
    await place.job("second", 2, 2)
    second = await place.until_job("second", "running", 2)
    first = await place.until_job("first", "running", 2)

    assert (second.gang_size, [record.rule for record in first.history]) == (2, ["begin", "room", "yields"])
    assert [(d.rule, d.present, d.target) for d in await place.decisions("first")][:2] == [
        ("room", 1, 4),
        ("yields", 4, 2),
    ]
    for decision in await place.decisions("first"):
        assert replay(decision) == (decision.target, decision.rule)


def of(place: Training, index: int) -> contextlib.AbstractAsyncContextManager[Trainer]:
    """A trainer of the first job, as its program is one."""
    return trainer("first", index, namespace=NAMESPACE, bus=place.bus)


async def test_the_leader_stays_and_the_others_are_told_before_they_go(place: Training) -> None:
    """One that has checkpointed is withdrawn at once, an hour before its notice ends; the other when it says so."""
    await place.job("first", 1, 3, notice_s=3600)
    await place.until_job("first", "running", 3)
    await place.submits("urgent", 1000)
    await place.submits("later", 1000)
    await place.until("urgent", "placed")
    async with of(place, 2) as last, of(place, 0) as leader:
        leaving = await asyncio.wait_for(last.told(), 30)
        assert (leaving.target, leader.leaving) == (2, None)
        assert leader.world is not None
        assert (leader.world.members, leader.world.leader) == ((0, 1), True)
        last.checkpointed(step=7)
        await place.until("later", "placed")

    status = await place.until_job("first", "running", 2)
    assert [(span.first, span.last) for span in status.trainers] == [(0, 1)]


async def test_a_dead_trainer_is_replaced_and_the_job_ends_with_the_last_one(place: Training) -> None:
    """One fails, another one comes under a new name; two finish their work, and none is added for them."""
    await place.job("first", 2, 3)
    status = await place.until_job("first", "running", 3)
    await place.cluster.outcome(place.uids["first-t1"], NAMESPACE, "first-t1", "ended", exit_code=1)
    await place.until("first-t3", "running")
    status = await place.until_job("first", "running", 3)
    assert (status.failed, status.next_index) == (1, 4)
    for name in ("first-t0", "first-t2", "first-t3"):
        await place.cluster.outcome(place.uids[name], NAMESPACE, name, "ended", exit_code=0)

    status = await place.until_job("first", "succeeded")
    assert (status.succeeded, status.trainers) == (3, ())


async def test_a_killed_autoscaler_goes_on_where_it_was(place: Training) -> None:
    """The number of trainers is the one before, nothing is asked for twice, and it scales again."""
    await place.job("first", 1, 3)
    before = await place.until_job("first", "running", 3)
    await place.autoscaling.kill()
    await place.submits("urgent", 1000)
    await place.submits("later", 1000)
    await place.until("later", "pending")
    await place.autoscaling.start()
    await place.until("later", "placed")
    after = await place.until_job("first", "running", 2)

    assert (before.next_index, after.next_index, after.generation) == (3, 3, before.generation + 1)


async def test_a_job_that_is_stopped_leaves_nothing_behind(place: Training) -> None:
    """All trainers are withdrawn; published again it begins anew, under new names."""
    await place.job("first", 2, 2)
    await place.until_job("first", "running", 2)
    await place.job("first", 2, 2, stopped=True)
    await place.until_job("first", "stopped")
    await place.job("first", 1, 1)
    status = await place.until_job("first", "running", 1)

    assert [(span.first, span.last) for span in status.trainers] == [(2, 2)]


async def test_a_job_that_contradicts_itself_is_told_so(place: Training) -> None:
    """By field, value and bound."""
    await place.job("first", 5, 2)
    status = await place.until_job("first", "failed")

    assert status.reason == "min_trainers 5: at most max_trainers, 2"


async def test_two_autoscalers_at_once_are_slower_and_do_no_harm(place: Training, world: World) -> None:
    """A status is written on condition: the loser looks again. Nobody is asked for twice, and nobody is left over."""
    rival = Autoscaling(await world.client("rival"))
    await rival.start()
    try:
        await place.job("first", 1, 3)
        await place.until_job("first", "running", 3)
        await place.submits("urgent", 1000)
        await place.submits("later", 1000)
        await place.until("later", "placed")
        status = await place.until_job("first", "running", 2)
    finally:
        await rival.kill()

    assert [(span.first, span.last) for span in status.trainers] == [(0, 1)]
    assert sorted(name for name in place.uids if name.startswith("first")) == ["first-t0", "first-t1", "first-t2"]


async def test_a_trainer_that_is_refused_for_good_ends_a_job_that_begins(place: Training) -> None:
    """Its pod names a variable that is the platform's: the job fails with what the scheduler says of it."""
    pod = PodTemplate(image="train", env=(EnvVar(name="CUDA_VISIBLE_DEVICES", value="0"),))
    job = Job(name="first", pod=pod)
    await place.bus.store(WORKLOADS.subject(namespace=NAMESPACE, name="first"), encode(job))
    status = await place.until_job("first", "failed")

    assert status.reason.startswith("a trainer was refused: first-t0: ")
    assert "CUDA_VISIBLE_DEVICES" in status.reason
