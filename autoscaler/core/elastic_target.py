"""A job's number of trainers: how it begins, how it changes, and when a change is given up.

In: a status and a target. Out: the status with it. A target is absolute and names the generation that it was computed
from: one that comes too late is refused, one that comes twice changes nothing. Who leaves is chosen here: first those
that the dry run chose for their seats, then the youngest, and the leader never, as long as anybody stays.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from autoscaler.core.elastic_trainers import Trainer, Trainers, faults, pack, staying, unpack
from contracts.workloads import Job, JobStatus, ScaleRecord

HISTORY = 20
PATIENCE_MS = 120_000
"""A trainer above the minimum that waits for so long is given up: there is no room, whatever was said before."""


class Stale(Exception):  # noqa: N818 - named by what is the case
    """The target was computed from generation `based_on`, the job is at `present`."""

    def __init__(self, based_on: int, present: int) -> None:
        super().__init__(f"a target made from generation {based_on}, the job is at {present}")
        self.based_on = based_on
        self.present = present


def begun(job: Job, namespace: str, sequence: int, before: JobStatus | None, now_ms: int) -> JobStatus:
    """The first status of a job that is published for the first time, or again after its end."""
    first = before.next_index if before else 0
    history = before.history if before else ()
    base = JobStatus(
        namespace=namespace,
        name=job.name,
        phase="failed",
        generation=before.generation if before else 0,
        next_index=first,
        history=history,
        trainers=before.trainers if before else (),
        job_sequence=sequence,
        cause=job.cause,
    )
    if wrong := "; ".join(faults(job)):
        return msgspec.structs.replace(base, reason=wrong)
    if job.stopped:
        return msgspec.structs.replace(base, phase="stopped", reason="published as stopped")
    size = job.min_trainers if job.min_trainers > 1 else 0
    started = msgspec.structs.replace(base, phase="creating", gang_first=first, gang_size=size)
    return retarget(started, job.min_trainers, based_on=base.generation, rule="begin", now_ms=now_ms)


def retarget(
    status: JobStatus,
    target: int,
    *,
    based_on: int,
    rule: str,
    now_ms: int,
    notice_ms: int = 0,
    leave: Collection[int] = (),
) -> JobStatus:
    """Another number of trainers: some are asked for, or some are told to leave.

    Args:
        status: not final.
        target: absolute, so that doing it twice changes nothing.
        based_on: the generation that it was computed from.
        rule: why, for the history.
        now_ms: wall clock.
        notice_ms: what those who leave are given.
        leave: who should leave, as far as they are still there; the rest is chosen, the leader last.

    Raises:
        Stale: the job has moved on since.
    """
    if based_on != status.generation:
        raise Stale(based_on, status.generation)
    trainers = unpack(status)
    present = staying(trainers)
    chosen = [index for index in present[1:] if index in set(leave)]
    rest = [index for index in present if index not in chosen]
    chosen += reversed(rest[max(target, 0) :])
    _tell(trainers, chosen, now_ms + notice_ms)
    count = target - len(staying(trainers))
    for index in range(status.next_index, status.next_index + count):
        trainers[index] = Trainer("asked")
    record = ScaleRecord(at_ms=now_ms, generation=status.generation + 1, before=status.target, after=target, rule=rule)
    return msgspec.structs.replace(
        status,
        phase=status.phase if status.phase in ("creating", "stopping") else "scaling",
        generation=status.generation + 1,
        target=target,
        trainers=pack(trainers),
        next_index=status.next_index + max(0, count),
        changed_ms=now_ms,
        history=(*status.history, record)[-HISTORY:],
    )


def _tell(trainers: Trainers, leaving: Collection[int], deadline_ms: int) -> None:
    for index in leaving:
        trainers[index] = Trainer("leaving", deadline_ms)


def impatient(job: Job, status: JobStatus, now_ms: int, patience_ms: int = PATIENCE_MS) -> int | None:
    """The target without the trainers that have waited too long, or None: nothing to give up.

    At least the minimum is wanted however long it takes.
    """
    if status.phase != "scaling" or not status.waiting_since_ms or now_ms - status.waiting_since_ms < patience_ms:
        return None
    target = max(job.min_trainers, status.target - status.waiting)
    return target if target < status.target else None
