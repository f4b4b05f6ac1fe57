"""What is known of training jobs: as they were published, and how far each is, with the sequence that it was read at.

In: messages of the workloads stream, one after the other, our own among them. Out: `Record`s by `namespace/name`. A
status that is older than the one we have is passed over: the stream tells ours again after we have written it.
"""

from __future__ import annotations

import msgspec

from autoscaler.core.elastic_trainers import faults
from bus import codec
from bus.protocol import Received
from contracts.subjects import JOB_STATUS, WORKLOADS
from contracts.units import request_key
from contracts.workloads import Job, JobStatus


class Record(msgspec.Struct):
    """One job."""

    namespace: str
    name: str
    job: Job | None = None
    """As published last; bounds that contradict each other pause it."""
    job_sequence: int = 0
    status: JobStatus | None = None
    status_sequence: int = 0
    fault: str = ""
    """What is wrong with what was published last, while the job lives."""


class Book:
    """All jobs."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def __len__(self) -> int:
        return len(self.records)

    def in_order(self) -> list[Record]:
        """By name: the order in which everything is done."""
        return [self.records[name] for name in sorted(self.records)]

    def take(self, received: Received) -> bool:
        """Note one stored message; whether it changed anything."""
        if (where := JOB_STATUS.parse(received.subject)) is not None:
            status = codec.decode_as(JobStatus, received)
            return isinstance(status, JobStatus) and self.found(status, received.sequence)
        if (where := WORKLOADS.parse(received.subject)) is not None:
            job = codec.decode(WORKLOADS, received)
            if isinstance(job, Job) and job.name == where["name"]:
                self._publish(where["namespace"], job, received.sequence)
                return True
        return False

    def found(self, status: JobStatus, sequence: int) -> bool:
        """A status as stored, by us or by another one."""
        record = self._record(status.namespace, status.name)
        if sequence <= record.status_sequence:
            return False
        record.status, record.status_sequence = status, sequence
        return True

    def _publish(self, namespace: str, job: Job, sequence: int) -> None:
        record = self._record(namespace, job.name)
        record.fault = "; ".join(faults(job))
        record.job, record.job_sequence = job, sequence

    def _record(self, namespace: str, name: str) -> Record:
        return self.records.setdefault(request_key(namespace, name), Record(namespace=namespace, name=name))
