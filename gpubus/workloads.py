"""Functions and training jobs from the front door: publish one, find one, see how jobs stand.

In: a `gpubus.client.Client`. Out: workloads, jobs with their status, and orders stored in the workloads stream.
"""

from __future__ import annotations

from bus import codec
from bus.protocol import BusError, NotPermitted
from contracts.functions import FunctionStatus
from contracts.messages import Value
from contracts.subjects import JOB_STATUS, WORKLOADS
from contracts.workloads import Function, Job, JobStatus
from gpubus.client import Client
from gpubus.errors import NoAnswer, UsageError
from gpubus.functions import status_of as function_status


class JobView(Value, frozen=True, kw_only=True):
    """One job as it was asked for, and how far it is; None = the autoscaler has not said yet."""

    namespace: str
    job: Job
    status: JobStatus | None = None


async def publish(client: Client, workload: Function | Job, namespace: str) -> int:
    """Say how a workload should be; the sequence under which that is kept. Raises NoAnswer, UsageError."""
    try:
        stored = await codec.store(client.bus, WORKLOADS, workload, namespace=namespace, name=workload.name)
    except ValueError as error:
        raise UsageError(str(error)) from error
    except BusError as error:
        raise NoAnswer("the workloads stream", str(error)) from error
    return stored.sequence


async def workload_of(client: Client, namespace: str, name: str) -> Function | Job | None:
    """A workload as it was asked for last; None = there is none of that name."""
    kept = await client.bus.last(WORKLOADS.stream, WORKLOADS.subject(namespace=namespace, name=name))
    found = codec.decode(WORKLOADS, kept) if kept is not None else None
    return found if isinstance(found, Function | Job) else None


async def status_of(client: Client, namespace: str, name: str) -> JobStatus | None:
    """How far a job is; None = the autoscaler has not said yet."""
    kept = await client.bus.last(JOB_STATUS.stream, JOB_STATUS.subject(namespace=namespace, name=name))
    found = codec.decode_as(JobStatus, kept) if kept is not None else None
    return found if isinstance(found, JobStatus) else None


async def standing(client: Client, namespace: str, name: str) -> FunctionStatus | JobStatus | None:
    """How a function or job stands; None = nobody has said, or one may not read it."""
    try:
        job = await status_of(client, namespace, name)
        return job if job is not None else await function_status(client, namespace, name)
    except NotPermitted:
        return None


async def jobs(client: Client, namespace: str = "") -> list[JobView]:
    """All jobs of one namespace, or of all, by name. Raises NotPermitted: only who may read streams."""
    pattern = WORKLOADS.wildcard.replace("*", namespace, 1) if namespace else WORKLOADS.wildcard
    wanted = await client.stored(WORKLOADS.stream, Job, subject=pattern)
    told = await client.stored(JOB_STATUS.stream, JobStatus, subject=JOB_STATUS.wildcard)
    by_name = {(status.namespace, status.name): status for _, status in told}
    views = []
    for kept, job in wanted:
        where = WORKLOADS.parse(kept.subject) or {"namespace": ""}
        views.append(JobView(namespace=where["namespace"], job=job, status=by_name.get((where["namespace"], job.name))))
    return sorted(views, key=lambda view: (view.namespace, view.job.name))
