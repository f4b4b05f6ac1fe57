"""A training script without asyncio, on a real nats-server: told to go, it saves its work and says so."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from bus.client import connect
from bus.protocol import Bus, Received
from contracts.messages import encode
from contracts.subjects import CHECKPOINTED, JOB_STATUS
from contracts.workloads import Checkpointed, JobStatus, TrainerSpan
from gpubus.trainer import training
from tests.servers.natsd import NatsServer

pytestmark = [pytest.mark.nats]

STARTS = (TrainerSpan(first=0, last=2, state="known"),)
SHRINKS = (
    TrainerSpan(first=0, last=1, state="known"),
    TrainerSpan(first=2, last=2, state="leaving", deadline_ms=4_000_000_000_000),
)


def script(trains: threading.Event) -> tuple[int, bool, int]:
    """Trains until it is told to go: (trainers that there were, whether it had time left, the step it saved)."""
    with training() as me:
        step, size = 0, 0
        while me.leaving is None:
            step += 1
            if me.world is not None:
                size = max(size, me.world.size)
                trains.set()
        me.checkpointed(step)
        return size, (me.left_s or 0) > 0, step


async def test_a_plain_script_is_told_while_it_computes(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop never awaits; who its trainer is stands in its environment, as the autoscaler writes it."""
    said: asyncio.Queue[Checkpointed] = asyncio.Queue()

    async def hear(received: Received) -> None:
        said.put_nowait(msgspec.json.decode(received.data, type=Checkpointed))

    for name, value in (("JOB_NAME", "bert"), ("JOB_NAMESPACE", "ns"), ("TRAINER_INDEX", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORKER_NATS_URLS", nats_server.url)
    async with connect(nats_server.url, name="autoscaler") as bus, bus.subscribe(CHECKPOINTED.wildcard, hear):
        await bus.ensure_streams()
        await store(bus, 1, STARTS)
        trains = threading.Event()
        running = asyncio.create_task(asyncio.to_thread(script, trains))
        assert await asyncio.to_thread(trains.wait, 30)
        await store(bus, 2, SHRINKS)
        size, in_time, step = await asyncio.wait_for(running, 30)
        word = await asyncio.wait_for(said.get(), 30)
    assert (size, in_time) == (3, True)
    assert word == Checkpointed(job="bert", index=2, generation=2, step=step)


async def store(bus: Bus, generation: int, trainers: tuple[TrainerSpan, ...]) -> None:
    """The job's status, as the autoscaler writes it."""
    status = JobStatus(namespace="ns", name="bert", phase="running", generation=generation, trainers=trainers)
    await bus.store(JOB_STATUS.subject(namespace="ns", name="bert"), encode(status))
