"""The trainers of a job: their names, their requests, and how a status writes them down.

A trainer is a pod request named `<job>-t<index>`. An index is never used again, so that a name tells one trainer for
ever and what the ledger says of an older one is never taken for it. The leader is the living trainer with the lowest
index; it leaves last. A status holds runs of equal trainers: ten thousand that run are one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from contracts.requests import EnvVar, GangRef, PodRequest
from contracts.workloads import Job, JobStatus, TrainerSpan

MAX_GANG = 256
"""Members that a gang may begin with."""
MAX_NAME = 50
MAX_ENV = 124
"""Variables of its own: a request may have four more."""
JOB_VARIABLE, INDEX_VARIABLE, SPACE_VARIABLE = "JOB_NAME", "TRAINER_INDEX", "JOB_NAMESPACE"
URLS_VARIABLE = "WORKER_NATS_URLS"
"""What a trainer is told of itself. Not how many there are: that changes while it runs."""


class Trainer(msgspec.Struct, frozen=True):
    """One trainer as the status has it."""

    state: Literal["asked", "known", "leaving"]
    deadline_ms: int = 0


Trainers = dict[int, Trainer]


def unpack(status: JobStatus) -> Trainers:
    """The trainers of a status by index."""
    return {
        index: Trainer(span.state, span.deadline_ms)
        for span in status.trainers
        for index in range(span.first, span.last + 1)
    }


def pack(trainers: Mapping[int, Trainer]) -> tuple[TrainerSpan, ...]:
    """Runs of equal trainers, by index."""
    spans: list[TrainerSpan] = []
    for index in sorted(trainers):
        one = trainers[index]
        last = spans[-1] if spans else None
        if last and last.last == index - 1 and (last.state, last.deadline_ms) == (one.state, one.deadline_ms):
            spans[-1] = msgspec.structs.replace(last, last=index)
        else:
            spans.append(TrainerSpan(first=index, last=index, state=one.state, deadline_ms=one.deadline_ms))
    return tuple(spans)


def staying(trainers: Mapping[int, Trainer]) -> list[int]:
    """Indexes of those that are not leaving, lowest first: the first one leads."""
    return sorted(index for index, trainer in trainers.items() if trainer.state != "leaving")


def is_leaving(status: JobStatus | None, index: int) -> bool:
    """Whether a trainer has been told to go."""
    one = unpack(status).get(index) if status is not None else None
    return one is not None and one.state == "leaving"


def trainer_name(job: str, index: int) -> str:
    """The name of its request."""
    return f"{job}-t{index}"


def cause_of(job: str) -> str:
    """What stands in the request of a trainer: a request of somebody else with such a name has another one."""
    return f"job {job}"


def trainer_index(job: str, name: str) -> int | None:
    """The index in the name of a request, or None when it is no trainer of that job."""
    head, _, tail = name.rpartition("-t")
    return int(tail) if head == job and tail.isascii() and tail.isdigit() and str(int(tail)) == tail else None


def request_of(job: Job, status: JobStatus, index: int) -> PodRequest:
    """What is asked for a trainer: the same for every attempt to ask."""
    gang = None
    if status.gang_first <= index < status.gang_first + status.gang_size:
        gang = GangRef(name=f"{job.name}-g{status.gang_first}", size=status.gang_size)
    return PodRequest(
        name=trainer_name(job.name, index),
        pod=msgspec.structs.replace(job.pod, env=_told(job, status.namespace, index), restart_policy="Never"),
        gpu=job.gpu,
        priority=job.priority,
        gang=gang,
        node_selector=job.node_selector,
        tolerations=job.tolerations,
        cause=cause_of(job.name),
    )


def probe_of(job: Job) -> PodRequest:
    """One more trainer, for asking where it would go; its name is nobody's."""
    return PodRequest(
        name=f"{job.name}-t",
        pod=job.pod,
        gpu=job.gpu,
        priority=job.priority,
        node_selector=job.node_selector,
        tolerations=job.tolerations,
    )


def _told(job: Job, namespace: str, index: int) -> tuple[EnvVar, ...]:
    told = (
        EnvVar(name=JOB_VARIABLE, value=job.name),
        EnvVar(name=INDEX_VARIABLE, value=str(index)),
        EnvVar(name=SPACE_VARIABLE, value=namespace),
    )
    return _with(job.pod.env, told)


def reaching(request: PodRequest, urls: str) -> PodRequest:
    """The same with where its pod finds the bus; empty: its image knows."""
    if not urls:
        return request
    env = _with(request.pod.env, (EnvVar(name=URLS_VARIABLE, value=urls),))
    return msgspec.structs.replace(request, pod=msgspec.structs.replace(request.pod, env=env))


def _with(env: tuple[EnvVar, ...], told: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """What its owner has set stands."""
    own = {variable.name for variable in env}
    return (*env, *(variable for variable in told if variable.name not in own))


def faults(job: Job) -> Iterable[str]:
    """What is wrong with a job: field, value, bound."""
    if job.min_trainers > job.max_trainers:
        yield f"min_trainers {job.min_trainers}: at most max_trainers, {job.max_trainers}"
    if job.min_trainers > MAX_GANG:
        yield f"min_trainers {job.min_trainers}: at most {MAX_GANG} trainers can be started together"
    if job.fault_tolerant is False and job.min_trainers < job.max_trainers:
        yield "fault_tolerant false: a job that changes its number of trainers loses some while it runs"
    longest = len(trainer_name(job.name, 10**5 - 1))
    if longest > MAX_NAME:
        yield f"name of {len(job.name)} characters: its trainers' names would have {longest}, at most {MAX_NAME}"
    if len(job.pod.env) > MAX_ENV:
        yield f"pod.env of {len(job.pod.env)} variables: at most {MAX_ENV}, four are added"
