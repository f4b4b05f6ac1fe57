"""One round over all jobs: who takes part, the dry run, and for each job what its decision is made from.

In: the ledger, jobs with their statuses. Out: a plan, and `Inputs` for each job that could change. While nobody waits
only jobs that run take part: one that still changes has not yet shown what it takes. As soon as a job, or any other
request, waits for room, those may shrink too. A job that begins, stops or finishes its work takes no part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from autoscaler.core.elastic_load import Limits, Load
from autoscaler.core.elastic_observe import load_of, room_of, waiting_of
from autoscaler.core.elastic_plan import plan
from autoscaler.core.elastic_room import Room
from autoscaler.core.elastic_runner import Change, Plan, Runner, Seat, Waiting
from autoscaler.core.elastic_settle import Inputs
from autoscaler.core.elastic_shape import shape_of
from autoscaler.core.elastic_target import impatient
from autoscaler.core.elastic_trainers import probe_of, staying, trainer_name, unpack
from bus.ledger.state import LedgerState
from contracts.decisions import Placement
from contracts.priorities import priority_of
from contracts.units import RequestKey, request_key
from contracts.workloads import Job, JobStatus


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a job may change."""

    grow_after_ms: int = 15_000
    """It grows when its number has not changed for so long."""
    shrink_after_ms: int = 30_000
    """It shrinks for load alone when its number has not changed for so long; for somebody who waits, at once."""
    patience_ms: int = 120_000
    """Trainers above the minimum that wait for so long are given up."""


class Entry(msgspec.Struct, frozen=True):
    """A job and how far it is."""

    job: Job
    status: JobStatus

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return request_key(self.status.namespace, self.status.name)

    @property
    def takes_part(self) -> bool:
        """Whether its number of trainers may be another one."""
        status = self.status
        return status.phase in ("running", "scaling") and not status.succeeded and not self.job.stopped


class _Trainers(msgspec.Struct):
    """The trainers of one job that stay, lowest index first."""

    placed: dict[int, Placement]
    waiting: list[int]

    def leaving_order(self) -> tuple[Seat, ...]:
        """Those that wait first, then the youngest; the leader is left out."""
        everyone = sorted([*self.placed, *self.waiting])[1:]
        order = sorted(everyone, key=lambda index: (index in self.placed, -index))
        return tuple(Seat(index=index, placement=self.placed.get(index)) for index in order)


def dry_run(state: LedgerState, entries: Sequence[Entry], limits: Limits, wanting: Sequence[Waiting] = ()) -> Plan:
    """What every job that takes part should do.

    `wanting` wait for room as well, and in no queue: functions, whose replicas are asked for once there is a place.
    """
    taking = [entry for entry in entries if entry.takes_part]
    found = {entry.name: _trainers(state, entry.status) for entry in entries}
    above = {entry.name: _above(entry, found[entry.name]) for entry in entries}
    told = [key for entry in entries for key in _told(entry)]
    queued = waiting_of(state, frozenset([*told, *(key for keys in above.values() for key in keys)]))
    waiting = [*queued, *wanting]
    room, load = room_of(state), load_of(state, waiting, limits)
    for key in told:
        _free(state, room, load, key)
    for entry in taking:
        _reserve(room, load, entry, len(above[entry.name]))
    pressed = bool(waiting)
    return plan(room, load, [_runner(entry, found[entry.name], pressed=pressed) for entry in taking], waiting)


def _trainers(state: LedgerState, status: JobStatus) -> _Trainers:
    found = _Trainers(placed={}, waiting=[])
    for index in staying(unpack(status)):
        request = state.find(request_key(status.namespace, trainer_name(status.name, index)))
        if request is not None and request.live and request.placement is not None:
            found.placed[index] = request.placement
        else:
            found.waiting.append(index)
    return found


def _above(entry: Entry, trainers: _Trainers) -> list[RequestKey]:
    """Waiting trainers that the job can do without."""
    needed = max(0, entry.job.min_trainers - len(trainers.placed))
    names = [trainer_name(entry.status.name, index) for index in trainers.waiting[needed:]]
    return [request_key(entry.status.namespace, name) for name in names]


def _told(entry: Entry) -> Iterator[RequestKey]:
    """Trainers that are told to go: their seats are free soon, though the ledger does not know it yet."""
    for index, trainer in unpack(entry.status).items():
        if trainer.state == "leaving":
            yield request_key(entry.status.namespace, trainer_name(entry.status.name, index))


def _free(state: LedgerState, room: Room, load: Load, key: RequestKey) -> None:
    request = state.find(key)
    if request is not None and request.live and not request.leaving and request.placement is not None:
        load.count(request.placement, -1)
        room.give(request.placement)


def _reserve(room: Room, load: Load, entry: Entry, count: int) -> None:
    """Trainers on their way get free room as if they were there."""
    shape = shape_of(probe_of(entry.job))
    for _ in range(count):
        room.take(shape)
        load.add(shape, 1)


def _runner(entry: Entry, trainers: _Trainers, *, pressed: bool) -> Runner:
    job, status = entry.job, entry.status
    runs = status.phase == "running"
    return Runner(
        name=entry.name,
        shape=shape_of(probe_of(job)),
        minimum=job.min_trainers,
        maximum=job.max_trainers,
        planned=status.target,
        seats=trainers.leaving_order(),
        priority=priority_of(probe_of(job)),
        may_grow=runs and not job.paused,
        may_shrink=(runs or pressed) and not job.paused,
    )


def inputs_of(
    entry: Entry, change: Change | None, *, pace: Pace, now_ms: int, ledger: int, frozen: bool = False
) -> Inputs:
    """What the decision about a job is made from, before the scheduler has been asked.

    Args:
        entry: the job; it takes part.
        change: what the dry run found; None: there was none.
        pace: cool-downs and patience.
        now_ms: wall clock.
        ledger: sequence that the dry run looked at.
        frozen: an operator has stopped all scaling.
    """
    job, status = entry.job, entry.status
    left = len(change.left) if change is not None else 0
    given_up = impatient(job, status, now_ms, pace.patience_ms)
    return Inputs(
        generation=status.generation,
        present=status.target,
        minimum=job.min_trainers,
        maximum=job.max_trainers,
        wish=change.planned if change is not None else None,
        yields=int(change is not None and change.rule == "yields"),
        moves=max(0, left + change.delta) if change is not None and change.rule == "yields" else 0,
        given_up=status.target - given_up if given_up is not None else 0,
        since_change_ms=max(0, now_ms - status.changed_ms),
        grow_after_ms=pace.grow_after_ms,
        shrink_after_ms=pace.shrink_after_ms,
        paused=int(job.paused),
        frozen=int(frozen),
        ledger=ledger,
    )


def leaving(change: Change | None, rule: str) -> frozenset[int]:
    """Who was chosen to leave, when the decision follows the dry run in that."""
    return frozenset(change.left) if change is not None and rule in ("yields", "moves", "overload") else frozenset()


def answered(inputs: Inputs, more: int | None) -> Inputs:
    """With the scheduler's answer; None: there was none."""
    return msgspec.structs.replace(inputs, placeable=more)
