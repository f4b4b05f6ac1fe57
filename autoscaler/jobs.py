"""Training jobs: looked at in rounds, resized, and told about.

In: jobs and statuses from the workloads stream, the ledger that somebody folds for us, words of trainers that have
checkpointed. Out: statuses, scale decisions, notices, pod requests and withdrawals. A round is read, decide, write, do:

    1. each job takes a step by what the ledger says of its trainers
    2. one dry run over all; where a job should grow the scheduler is asked whether it would place one more
    3. the status is written with the sequence of the last one as condition: of two writers one loses, and looks again
    4. what the status wants is done: requests, a notice, withdrawals. It follows from the status, so that whoever is
       killed between 3 and 4 does it after the restart; and doing it twice changes nothing

Rounds come every `period_s`, and at once when the ledger or a job moved. Nothing here decides: `core.elastic_*` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Meta

from autoscaler.core import elastic_again as again
from autoscaler.core import elastic_round as rounds
from autoscaler.core.elastic_actions import Actions, actions
from autoscaler.core.elastic_life import FINAL, Sight, step
from autoscaler.core.elastic_load import Limits
from autoscaler.core.elastic_runner import Plan, Waiting
from autoscaler.core.elastic_settle import Inputs, as_integers, decide, wants_to_grow
from autoscaler.core.elastic_shape import shape_of
from autoscaler.core.elastic_sight import sights, strays
from autoscaler.core.elastic_target import begun, retarget
from autoscaler.core.elastic_trainers import is_leaving, probe_of, trainer_index, trainer_name
from autoscaler.jobbook import Book, Record
from autoscaler.jobdoing import Doing
from autoscaler.placing import NoRoom, Unanswered, placeable
from bus import codec
from bus.ledger.state import LedgerState
from bus.protocol import Bus, BusError, Received, SequenceConflict
from bus.runtime.settings import Seconds, Settings
from contracts.messages import encode
from contracts.requests import PodRequest
from contracts.subjects import CHECKPOINTED, JOB_NOW, JOB_STATUS, SCALE, WORKLOADS
from contracts.units import request_key
from contracts.workloads import Checkpointed, Job, JobStatus, ScaleDecision

log = logging.getLogger(__name__)

BREATH_S = 0.05
"""What moves within this time is looked at together."""


QUIET = ("steady", "cool-down")
"""Rules that say nothing new."""


class JobSettings(Settings, frozen=True, kw_only=True):
    """How fast training jobs change, and how full they may make the cluster."""

    period_s: Seconds = 5.0
    """Pause between two looks when nothing moves: cool-downs, notices and patience end by the clock."""
    grow_after_s: Seconds = 15.0
    """A job grows when its number of trainers has not changed for so long."""
    shrink_after_s: Seconds = 30.0
    """A job shrinks for load alone when its number has not changed for so long. For somebody who waits: at once."""
    patience_s: Seconds = 120.0
    """Trainers above the minimum that wait for so long are given up."""
    max_load_milli: Annotated[int, Meta(ge=1, le=1000)] = 970
    """Thousandths of all CPU and host memory up to which jobs grow, and above which they shrink."""
    max_card_load_milli: Annotated[int, Meta(ge=1, le=1000)] = 1000
    """The same of cards."""

    @property
    def pace(self) -> rounds.Pace:
        """For the core."""
        return rounds.Pace(
            grow_after_ms=round(self.grow_after_s * 1000),
            shrink_after_ms=round(self.shrink_after_s * 1000),
            patience_ms=round(self.patience_s * 1000),
        )

    @property
    def limits(self) -> Limits:
        """For the core."""
        load = self.max_load_milli
        return Limits(cpu_milli=load, memory_milli=load, card_milli=self.max_card_load_milli)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Jobs:
    """All training jobs of one cluster, while we are the active autoscaler.

    Args:
        bus: the connection.
        state: the ledger as folded by whoever owns it; read between awaits only.
        settings: see there.
        wall_ms: wall clock: notices and cool-downs outlive a process, so that a monotonic clock will not do.
        frozen: whether an operator has stopped all scaling.
        wanting: functions without room: who, one replica as a request, how many.
        nats_urls: where trainers find the bus; empty: their images know.
    """

    def __init__(
        self,
        bus: Bus,
        state: Callable[[], LedgerState],
        settings: JobSettings | None = None,
        *,
        wall_ms: Callable[[], int] = _wall_ms,
        frozen: Callable[[], bool] = lambda: False,
        wanting: Callable[[], Sequence[tuple[str, PodRequest, int]]] = tuple,
        nats_urls: str = "",
    ) -> None:
        self.bus = bus
        self.book = Book()
        self._state = state
        self._settings = settings or JobSettings()
        self._wall_ms = wall_ms
        self._frozen = frozen
        self._wanting = wanting
        self._doing = Doing(bus, nats_urls)
        self._moved = asyncio.Event()
        self._said: dict[str, tuple[int, str]] = {}
        """The last decision told of each job: one that is the same again is not told again."""

    def wake(self) -> None:
        """Something moved: look soon."""
        self._moved.set()

    async def run(self) -> None:
        """Look after all jobs until cancelled."""
        caught_up = asyncio.Event()
        async with (
            self.bus.subscribe(CHECKPOINTED.wildcard, self._hear),
            self.bus.respond(JOB_NOW.wildcard, self._answer, queue="autoscaler"),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._read(caught_up), name="read jobs")
            await caught_up.wait()  # a status that is not read yet looks like a job that has not begun
            while True:
                took_s = await self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.period_s):
                        await self._moved.wait()
                await asyncio.sleep(max(BREATH_S, min(took_s, self._settings.period_s)))
                self._moved.clear()

    async def _read(self, caught_up: asyncio.Event) -> None:
        async with contextlib.aclosing(self.bus.read(WORKLOADS.stream)) as batches:
            async for batch in batches:
                for received in batch.messages:
                    if self.book.take(received):
                        self.wake()
                if batch.caught_up:
                    caught_up.set()

    async def _answer(self, received: Received) -> bytes:
        """How a job is, for a trainer that has just come; one that is not known is of generation 0."""
        where = JOB_NOW.parse(received.subject) or {"namespace": "", "name": ""}
        record = self.book.records.get(request_key(where["namespace"], where["name"]))
        unknown = JobStatus(namespace=where["namespace"], name=where["name"], phase="creating", reason="not known")
        return encode(record.status if record is not None and record.status is not None else unknown)

    async def _hear(self, received: Received) -> None:
        where = CHECKPOINTED.parse(received.subject)
        said = codec.decode_as(Checkpointed, received)
        if where is None or not isinstance(said, Checkpointed):
            return
        record = self.book.records.get(request_key(where["namespace"], said.job))
        if record is not None and is_leaving(record.status, said.index):  # it says it again; before, nobody asked
            self._doing.checkpointed.add((where["namespace"], trainer_name(said.job, said.index)))
            self.wake()

    # --- a round ---------------------------------------------------------------------------------------------------

    async def _look(self) -> float:
        """A round, and how many seconds it took: as long is the pause, so that a large cluster is not all we do."""
        began_s = asyncio.get_running_loop().time()
        try:
            await self.look(self._wall_ms())
        except (BusError, Unanswered) as error:
            log.warning("training jobs wait for the bus: %s", error)
        return asyncio.get_running_loop().time() - began_s

    async def look(self, now_ms: int) -> None:
        """One round. Raises BusError, Unanswered: the rest is done in the next one."""
        entries: list[rounds.Entry] = []
        for record in self.book.in_order():
            if record.job is not None:
                await self._step(record, record.job, now_ms)
                if record.status is not None:
                    entries.append(rounds.Entry(_as_valid(record, record.job), record.status))
        if any(entry.takes_part for entry in entries):
            await self._scale(entries, now_ms)
        for record in self.book.in_order():
            await self._act(record, now_ms)
        statuses = {name: record.status for name, record in self.book.records.items() if record.status is not None}
        await self._doing.withdraw_strays(strays(self._state(), statuses))

    async def _step(self, record: Record, job: Job, now_ms: int) -> None:
        status = record.status
        fresh = status is None or (status.phase in FINAL and record.job_sequence > status.job_sequence)
        if status is None or fresh:
            await self._write(record, begun(job, record.namespace, record.job_sequence, status, now_ms))
            return
        seen = await self._seen(status)
        after = step(_as_valid(record, job), status, seen, now_ms)
        if after.phase not in FINAL:
            after = _adopted(after, record)
        await self._write(record, after)

    async def _seen(self, status: JobStatus) -> dict[int, Sight]:
        await self._doing.look_up_exits(self._state(), status)
        return sights(self._state(), status, self._doing.exits)

    async def _scale(self, entries: list[rounds.Entry], now_ms: int) -> None:
        state = self._state()
        ledger = state.sequence
        found = rounds.dry_run(state, entries, self._settings.limits, self._in_want()) if state.epoch else None
        for entry in entries:
            if entry.takes_part:
                change = found.changes.get(entry.name) if found is not None else None
                inputs = rounds.inputs_of(
                    entry, change, pace=self._settings.pace, now_ms=now_ms, ledger=ledger, frozen=self._frozen()
                )
                await self._settle(entry, await self._with_answer(entry, inputs), found, now_ms)

    def _in_want(self) -> list[Waiting]:
        """Replicas that wait for room, one by one, so that a part of them can be helped."""
        return [
            Waiting(key=f"function {key}", shape=shape_of(request))
            for key, request, count in self._wanting()
            for _ in range(count)
        ]

    async def _with_answer(self, entry: rounds.Entry, inputs: Inputs) -> Inputs:
        """Whether the scheduler would place one more now; only asked when that decides something."""
        if not wants_to_grow(inputs):
            return inputs
        more: int | None = max(0, (inputs.wish or 0) - inputs.present)
        try:
            await placeable(self.bus, entry.status.namespace, probe_of(entry.job))
        except NoRoom:
            more = 0
        except Unanswered:
            more = None
        return rounds.answered(inputs, more)

    async def _settle(self, entry: rounds.Entry, inputs: Inputs, found: Plan | None, now_ms: int) -> None:
        target, rule = decide(inputs)
        record, status = self.book.records[entry.name], entry.status
        if target != status.target or inputs.moves:
            leave = rounds.leaving(found.changes.get(entry.name) if found is not None else None, rule)
            await self._write(
                record,
                retarget(
                    status,
                    target,
                    based_on=inputs.generation,
                    rule=rule,
                    now_ms=now_ms,
                    notice_ms=entry.job.notice_s * 1000,
                    leave=leave,
                ),
            )
        await self._tell(status, inputs, target, rule, now_ms)

    async def _tell(self, status: JobStatus, inputs: Inputs, target: int, rule: str, now_ms: int) -> None:
        """The decision with all that it was made from: a change, or another reason why there is none."""
        key = f"{status.namespace}/{status.name}"
        if target == status.target and (rule in QUIET or self._said.get(key) == (target, rule)):
            return
        decision = ScaleDecision(
            namespace=status.namespace,
            name=status.name,
            kind="job",
            target=target,
            present=status.target,
            rule=rule,
            inputs=as_integers(inputs),
            at_ms=now_ms,
        )
        await codec.store(self.bus, SCALE, decision, namespace=status.namespace, name=status.name)
        self._said[key] = (target, rule)
        log.info("job", extra={"job": key, "target": target, "present": status.target, "rule": rule})

    # --- writing and doing -------------------------------------------------------------------------------------------

    async def _write(self, record: Record, status: JobStatus) -> None:
        """Store a status that is another one than before; on a lost race take the other one's."""
        if status == record.status:
            return
        try:
            stored = await codec.store(
                self.bus,
                JOB_STATUS,
                status,
                namespace=record.namespace,
                name=record.name,
                expected_last=record.status_sequence,
            )
        except SequenceConflict:
            await self._read_again(record)
            raise
        except BusError:
            await self._read_again(record)  # whether it was stored is not known
            raise
        record.status, record.status_sequence = status, stored.sequence

    async def _read_again(self, record: Record) -> None:
        last = await self.bus.last(JOB_STATUS.stream, JOB_STATUS.subject(namespace=record.namespace, name=record.name))
        if last is not None:
            self.book.take(last)

    async def _act(self, record: Record, now_ms: int) -> None:
        if record.job is None or record.status is None:
            return
        seen = sights(self._state(), record.status, self._doing.exits)
        saved = frozenset(
            index
            for namespace, name in self._doing.checkpointed
            if namespace == record.namespace and (index := trainer_index(record.name, name)) is not None
        )
        todo: Actions = actions(record.job, record.status, seen, saved, now_ms)
        refused = await self._doing.do(record, todo)
        if refused:
            await self._refused(record, refused, now_ms)

    async def _refused(self, record: Record, why: str, now_ms: int) -> None:
        """A trainer that will never be taken: the job cannot begin, or stays as large as it is."""
        status = record.status
        if status is None or record.job is None:
            return
        await self._write(record, again.without_refused(record.job, status, why, now_ms))


def _as_valid(record: Record, job: Job) -> Job:
    """A job whose last change contradicts itself keeps its number of trainers."""
    return again.paused(job, record.status) if record.fault and record.status is not None else job


def _adopted(status: JobStatus, record: Record) -> JobStatus:
    """With what was published last, and what is wrong with it."""
    return again.adopted(status, record.job_sequence, record.fault)
