"""The life of a training job: a status, what is seen of its trainers, and the next status.

In: the job as published, its status, what the ledger says of each trainer, a wall clock. Out: a new status; nothing is
done here. What has to be done follows from the status alone (`elastic_actions`), so that a process that is killed
between writing it and doing it, does it when it starts again.

    (none) ─▶ creating ─▶ running ⇄ scaling ─▶ succeeded
       │         │           │         │  └───▶ failed
       │         └───────────┴─────────┴──────▶ stopping ─▶ stopped
       └─────▶ failed                                        (published again, later: creating)

running: every trainer runs. scaling: some come or go. A trainer that ends with exit code 0 has finished its part of the
work: from then on none is added or replaced, and the job has succeeded when the last one has ended. One that fails is
replaced if the job is fault tolerant, `max_failures` times; one that lost its node, or was evicted, is replaced always.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from autoscaler.core.elastic_target import retarget
from autoscaler.core.elastic_trainers import Trainer, Trainers, pack, staying, unpack
from contracts.workloads import Job, JobPhase, JobStatus

FINAL: frozenset[JobPhase] = frozenset({"succeeded", "failed", "stopped"})
AFTER: dict[JobPhase, frozenset[JobPhase]] = {
    "creating": frozenset({"running", "scaling", "stopping", "succeeded", "failed"}),
    "running": frozenset({"scaling", "stopping", "succeeded", "failed"}),
    "scaling": frozenset({"running", "stopping", "succeeded", "failed"}),
    "stopping": frozenset({"stopped", "succeeded", "failed"}),
    "succeeded": frozenset({"creating", "failed", "stopped"}),
    "failed": frozenset({"creating", "failed", "stopped"}),
    "stopped": frozenset({"creating", "failed", "stopped"}),
}
"""Which phase may follow which; from a final one only when the job is published again."""

Sight = Literal["absent", "pending", "placed", "running", "going", "succeeded", "failed", "lost"]
"""What the ledger says of a trainer. absent: it has no such request. going: withdrawn or evicted, and still there.
lost: it ended, and not by itself."""


def step(job: Job, status: JobStatus, seen: Mapping[int, Sight], now_ms: int) -> JobStatus:
    """What follows from what is seen; the same again changes nothing.

    Args:
        job: as published, valid.
        status: as stored; its trainers are looked up in `seen`.
        seen: by index; one that is missing in it has not been looked at, and stays as it is.
        now_ms: wall clock.
    """
    if status.phase in FINAL:
        return _closing(status, seen)
    if job.stopped and status.phase != "stopping":
        stopping = msgspec.structs.replace(status, phase="stopping", reason="stopped on request")
        status = retarget(
            stopping, 0, based_on=status.generation, rule="stopped", now_ms=now_ms, notice_ms=job.notice_s * 1000
        )
    counted = _counted(status, seen)
    final = _ended(job, counted)
    return final if final is not None else _going_on(counted, seen, now_ms)


def _closing(status: JobStatus, seen: Mapping[int, Sight]) -> JobStatus:
    """A final job only waits for its last trainers to be gone."""
    counted = _counted(status, seen)
    return msgspec.structs.replace(status, trainers=counted.trainers, running=counted.running, waiting=0)


def _counted(status: JobStatus, seen: Mapping[int, Sight]) -> JobStatus:
    """Trainers that came, ran and ended."""
    trainers = unpack(status)
    succeeded = failed = running = waiting = 0
    for index, trainer in list(trainers.items()):
        sight = seen.get(index)
        if sight is None:
            continue
        leaving = trainer.state == "leaving"
        if sight in ("succeeded", "failed", "lost") or (sight == "absent" and trainer.state != "asked"):
            del trainers[index]
            succeeded += sight == "succeeded" and not leaving
            failed += sight == "failed" and not leaving
            continue
        if trainer.state == "asked" and sight != "absent":
            trainers[index] = Trainer("known")
        running += sight == "running"
        waiting += sight != "running" and not leaving
    return msgspec.structs.replace(
        status,
        trainers=pack(trainers),
        running=running,
        waiting=waiting,
        succeeded=status.succeeded + succeeded,
        failed=status.failed + failed,
    )


def _ended(job: Job, status: JobStatus) -> JobStatus | None:
    """The final status, if the job has come to its end."""
    tolerant = job.fault_tolerant if job.fault_tolerant is not None else job.min_trainers < job.max_trainers
    most = (job.max_failures if job.max_failures is not None else job.max_trainers) if tolerant else 0
    if status.phase == "stopping":
        return None if status.trainers else ended(status, "stopped", status.reason)
    if status.failed > most:
        why = f"{status.failed} trainers failed, at most {most} may"
        return ended(status, "failed", why if tolerant else "a trainer failed and the job is not fault tolerant")
    if status.succeeded and not status.trainers:
        return ended(status, "succeeded", f"{status.succeeded} trainers have finished")
    return None


def ended(status: JobStatus, phase: JobPhase, reason: str) -> JobStatus:
    """Whoever is left leaves at once."""
    trainers: Trainers = {index: Trainer("leaving", 0) for index in unpack(status)}
    return msgspec.structs.replace(
        status, phase=phase, reason=reason, target=0, trainers=pack(trainers), waiting=0, waiting_since_ms=0
    )


def _going_on(status: JobStatus, seen: Mapping[int, Sight], now_ms: int) -> JobStatus:
    status = _replaced(status)
    trainers = unpack(status)
    settled = not any(t.state == "leaving" for t in trainers.values()) and status.waiting == 0
    full = settled and all(seen.get(index) == "running" for index in trainers)
    phase: JobPhase = status.phase
    if phase != "stopping":
        phase = "running" if full else "creating" if phase == "creating" else "scaling"
    waits = status.waiting > 0 and phase != "stopping"
    since_ms = (status.waiting_since_ms or now_ms) if waits else 0
    return msgspec.structs.replace(status, phase=phase, reason=_reason(status, phase), waiting_since_ms=since_ms)


def _reason(status: JobStatus, phase: JobPhase) -> str:
    if phase == "running":
        return "all trainers are running"
    return status.reason if phase == "stopping" else f"{status.running} of {status.target} trainers are running"


def _replaced(status: JobStatus) -> JobStatus:
    """As many as the target says; when some have finished their work, those that are left are enough."""
    trainers = unpack(status)
    missing = status.target - len(staying(trainers))
    if status.phase == "stopping" or missing <= 0:
        return status
    if status.succeeded:
        return msgspec.structs.replace(status, target=status.target - missing)
    first = status.next_index
    trainers.update({index: Trainer("asked") for index in range(first, first + missing)})
    return msgspec.structs.replace(
        status, trainers=pack(trainers), next_index=first + missing, waiting=status.waiting + missing
    )
