"""The trainer of a training job: how many of us there are, who leads, and when we have to go.

    with training() as me:                       # in a plain script
        for step in range(start, steps):
            train(step, me.world)
            if me.leaving:
                save(step)
                me.checkpointed(step)            # then end; SIGTERM comes if we do not
                break

    async with trainer() as me:                  # the same in asyncio; `await me.told()` waits for the notice

In: the job's status and its notices. Out: our word that we have saved our work, said again every second until we end,
as one alone may be lost. `world` counts the trainers that the ledger has and that are not leaving: the one with the
lowest index leads, and the autoscaler lets it leave last. It is None while nobody has said how the job is: a trainer
asks when it comes, and hears each change from then on.

`training` runs the connection in a thread of its own, so that a loop that never awaits is told as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

from autoscaler.core.elastic_trainers import staying, unpack
from bus import codec
from bus.client import connect
from bus.protocol import Bus, BusError, Received
from bus.runtime.connection import options_of
from contracts.messages import Value
from contracts.subjects import CHECKPOINTED, JOB_NOW, JOB_STATUS, SHRINK_NOTICES
from contracts.workloads import AskJob, Checkpointed, JobStatus, ShrinkNotice
from gpubus.errors import FrontError, UsageError
from gpubus.settings import effective

REPEAT_S = 1.0
"""Between two words that we have saved our work."""
ASK_S = 2.0
"""How long the autoscaler is waited for when we ask how the job is."""
OPEN_S = 30.0
"""How long `training` waits for its connection."""


class World(Value, frozen=True, kw_only=True):
    """The trainers of a job that train, by one status."""

    generation: int
    members: tuple[int, ...]
    """Their indexes, lowest first."""
    index: int
    """Ours."""

    @property
    def size(self) -> int:
        """How many."""
        return len(self.members)

    @property
    def rank(self) -> int | None:
        """Our place among them, 0 is the leader's; None = we are not among them: leaving, or not known yet."""
        return self.members.index(self.index) if self.index in self.members else None

    @property
    def leader(self) -> bool:
        """Whether we lead."""
        return self.rank == 0


class Leaving(Value, frozen=True, kw_only=True):
    """We have to go."""

    generation: int
    target: int
    """Trainers that remain."""
    deadline_ms: int
    """Wall clock at which we are withdrawn, saved or not."""


def world_of(status: JobStatus, index: int) -> World:
    """Who trains, as trainer `index` sees it."""
    known = {i: one for i, one in unpack(status).items() if one.state != "asked"}
    return World(generation=status.generation, members=tuple(staying(known)), index=index)


def leaving_of(status: JobStatus, index: int) -> Leaving | None:
    """Whether a status says that trainer `index` has to go: for the one who missed the notice."""
    one = unpack(status).get(index)
    if one is None or one.state != "leaving":
        return None
    return Leaving(generation=status.generation, target=status.target, deadline_ms=one.deadline_ms)


class Trainer:
    """One trainer; made by `trainer` or `training`. `world` and `leaving` may be read from any thread."""

    def __init__(self, bus: Bus, namespace: str, job: str, index: int) -> None:
        self.namespace, self.job, self.index = namespace, job, index
        self.world: World | None = None
        self.leaving: Leaving | None = None
        self._bus = bus
        self._told = asyncio.Event()
        self._saved: Checkpointed | None = None
        self._say = asyncio.Event()

    async def told(self) -> Leaving:
        """Wait until we have to go."""
        await self._told.wait()
        if self.leaving is None:
            raise AssertionError("told without a notice")
        return self.leaving

    def checkpointed(self, step: int = 0) -> None:
        """Our work is saved up to that step. Without a notice it says nothing: nobody asked."""
        if self.leaving is not None:
            generation = self.leaving.generation
            self._saved = Checkpointed(job=self.job, index=self.index, generation=generation, step=step)
            self._say.set()

    # --- beside it ---------------------------------------------------------------------------------------------------

    async def hear_status(self, received: Received) -> None:
        """The job has changed."""
        status = codec.decode_as(JobStatus, received)
        self.take(status if isinstance(status, JobStatus) else None)

    def take(self, status: JobStatus | None) -> None:
        """Go by a status that is no older than the one that we know."""
        if status is not None and (self.world is None or status.generation >= self.world.generation):
            self.world = world_of(status, self.index)
            self._go(leaving_of(status, self.index))

    async def hear_notice(self, received: Received) -> None:
        """Some have to go."""
        notice = codec.decode_as(ShrinkNotice, received)
        if isinstance(notice, ShrinkNotice) and self.index in notice.trainers:
            self._go(Leaving(generation=notice.generation, target=notice.target, deadline_ms=notice.deadline_ms))

    def _go(self, leaving: Leaving | None) -> None:
        if leaving is not None and self.leaving is None:
            self.leaving = leaving
            self._told.set()

    async def speak(self) -> None:
        """Say that we have saved our work, again and again, once we have."""
        await self._say.wait()
        while True:
            await self.say()
            await asyncio.sleep(REPEAT_S)

    async def say(self) -> None:
        """Say it once, if it is so."""
        if self._saved is not None:
            with contextlib.suppress(BusError):
                await codec.publish(self._bus, CHECKPOINTED, self._saved, namespace=self.namespace)


@contextlib.asynccontextmanager
async def trainer(
    job: str = "", index: int | None = None, *, namespace: str = "", bus: Bus | None = None
) -> AsyncIterator[Trainer]:
    """Be a trainer while the context is open.

    Args:
        job: its name; empty: JOB_NAME, as it stands in the pods that the autoscaler makes.
        index: which trainer of it; None: TRAINER_INDEX.
        namespace: empty: JOB_NAMESPACE.
        bus: a connection of one's own; None: one to WORKER_NATS_URLS, else by the settings of the `gpubus` command.

    Raises:
        UsageError: it is not said which trainer of which job.
        BusUnavailable: no connection.
    """
    job, index, namespace = _who(job, index, namespace)
    async with contextlib.AsyncExitStack() as stack:
        if bus is None:
            settings = effective(env=os.environ, nats=os.environ.get("WORKER_NATS_URLS") or None).settings.nats
            name = f"trainer-{job}-{index}"
            bus = await stack.enter_async_context(connect(settings.urls, name=name, **options_of(settings)))
        me = Trainer(bus, namespace, job, index)
        subject = JOB_STATUS.subject(namespace=namespace, name=job)
        await stack.enter_async_context(bus.subscribe(subject, me.hear_status))
        notices = SHRINK_NOTICES.subject(namespace=namespace, name=job)
        await stack.enter_async_context(bus.subscribe(notices, me.hear_notice))
        me.take(await _now(bus, namespace, job, index))
        speaking = asyncio.create_task(me.speak(), name=f"trainer {job}-{index} speaks")
        try:
            yield me
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await me.say()


async def _now(bus: Bus, namespace: str, job: str, index: int) -> JobStatus | None:
    """As the autoscaler says; where there is none, as the stream has it; None = nobody knows, or may tell us."""
    where = {"namespace": namespace, "name": job}
    with contextlib.suppress(BusError):
        status = await codec.ask(bus, JOB_NOW, AskJob(index=index), JobStatus, timeout_s=ASK_S, **where)
        return status if status.generation else None
    with contextlib.suppress(BusError):
        last = await bus.last(JOB_STATUS.stream, JOB_STATUS.subject(**where))
        found = codec.decode_as(JobStatus, last) if last is not None else None
        return found if isinstance(found, JobStatus) else None
    return None


class Training:
    """A trainer whose connection lives in another thread."""

    def __init__(self, me: Trainer, call: Callable[[Callable[[], None]], object]) -> None:
        self._me = me
        self._call = call

    @property
    def world(self) -> World | None:
        """Who trains; None = not known yet."""
        return self._me.world

    @property
    def leaving(self) -> Leaving | None:
        """Whether we have to go, and until when."""
        return self._me.leaving

    @property
    def left_s(self) -> float | None:
        """Seconds until we are withdrawn; None = we may stay."""
        leaving = self._me.leaving
        return None if leaving is None else max(0.0, leaving.deadline_ms / 1000 - time.time())

    def checkpointed(self, step: int = 0) -> None:
        """Our work is saved up to that step."""
        self._call(lambda: self._me.checkpointed(step))


@contextlib.contextmanager
def training(job: str = "", index: int | None = None, *, namespace: str = "") -> Iterator[Training]:
    """Be a trainer while the context is open, in a program without asyncio; arguments and errors as of `trainer`."""
    job, index, namespace = _who(job, index, namespace)
    ready, over = threading.Event(), asyncio.Event()
    made: list[Training] = []
    failed: list[Exception] = []

    async def live() -> None:
        loop = asyncio.get_running_loop()
        async with trainer(job, index, namespace=namespace) as me:
            made.append(Training(me, loop.call_soon_threadsafe))
            ready.set()
            await over.wait()

    def run() -> None:
        try:
            asyncio.run(live())
        except (BusError, FrontError, OSError) as error:  # raised again where `training` is entered
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="gpubus-trainer", daemon=True)
    thread.start()
    ready.wait(OPEN_S)
    if failed or not made:
        raise failed[0] if failed else TimeoutError(f"no connection within {OPEN_S:g} s")
    try:
        yield made[0]
    finally:
        made[0]._call(over.set)  # noqa: SLF001 - our own half
        thread.join(OPEN_S)


def _who(job: str, index: int | None, namespace: str) -> tuple[str, int, str]:
    job = job or os.environ.get("JOB_NAME", "")
    namespace = namespace or os.environ.get("JOB_NAMESPACE", "")
    number = os.environ.get("TRAINER_INDEX", "") if index is None else str(index)
    if not (job and namespace and number.isdecimal()):
        given = f"JOB_NAME={job!r}, JOB_NAMESPACE={namespace!r}, TRAINER_INDEX={number!r}"
        raise UsageError(f"which trainer of which job? {given}")
    return job, int(number), namespace
