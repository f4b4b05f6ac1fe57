"""Jobs that are published again while they live, and jobs of which a trainer was refused. Status in, status out."""

from __future__ import annotations

import msgspec

from autoscaler.core.elastic_life import ended
from autoscaler.core.elastic_target import retarget
from autoscaler.core.elastic_trainers import pack, staying, unpack
from contracts.workloads import Job, JobStatus


def paused(job: Job, status: JobStatus) -> Job:
    """A job whose bounds contradict each other: it keeps the trainers that it has."""
    size = max(1, status.target)
    return msgspec.structs.replace(job, min_trainers=size, max_trainers=size, paused=True, fault_tolerant=True)


def adopted(status: JobStatus, sequence: int, fault: str) -> JobStatus:
    """The status carries out what was published last; what is wrong with that stands in front of its reason."""
    reason = f"the last change is not taken: {fault}" if fault else status.reason
    return msgspec.structs.replace(status, job_sequence=sequence, reason=reason[:1024])


def without_refused(job: Job, status: JobStatus, why: str, now_ms: int) -> JobStatus:
    """A trainer was refused for good: a job that begins has failed, a larger one goes on with those it has."""
    trainers = unpack(status)
    kept = {index: trainer for index, trainer in trainers.items() if trainer.state != "asked"}
    reason = f"a trainer was refused: {why}"[:1024]
    if status.phase == "creating" or len(staying(kept)) < job.min_trainers:
        return ended(status, "failed", reason)
    smaller = msgspec.structs.replace(status, trainers=pack(kept), reason=reason)
    return retarget(smaller, len(staying(kept)), based_on=status.generation, rule="refused", now_ms=now_ms)
