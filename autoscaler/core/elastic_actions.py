"""What has to be done for a status, whoever asks and however often: requests, one notice, withdrawals.

In: a job, its status, what is seen of its trainers, who has checkpointed, a wall clock. Out: messages. Doing them again
changes nothing: a request of the same name and content is accepted once, a withdrawal of one that is gone is refused,
a notice replaces its like.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from autoscaler.core.elastic_life import FINAL, Sight
from autoscaler.core.elastic_trainers import Trainer, cause_of, request_of, trainer_name, unpack
from contracts.requests import PodRequest, Withdraw
from contracts.workloads import Job, JobStatus, ShrinkNotice

MAX_TOLD = 4000
"""Trainers in one notice, by its type; more leave without one."""


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """What to publish, in this order."""

    asks: tuple[PodRequest, ...] = ()
    notice: ShrinkNotice | None = None
    withdrawals: tuple[Withdraw, ...] = ()
    again_ms: int | None = None
    """Wall clock when the next withdrawal is due, if nothing happens before."""


def actions(
    job: Job, status: JobStatus, seen: Mapping[int, Sight], checkpointed: Collection[int], now_ms: int
) -> Actions:
    """All that the status wants and that is not so yet.

    A trainer that waits is withdrawn without notice: it has nothing to save. One that was asked for and is to leave
    before the ledger has it is withdrawn once it does.
    """
    trainers = unpack(status)
    asks = [index for index, t in trainers.items() if t.state == "asked" and seen.get(index) == "absent"]
    leaving = {index: t for index, t in trainers.items() if t.state == "leaving" and index in seen}
    live = {index: t for index, t in leaving.items() if seen[index] in ("pending", "placed", "running")}
    due = [
        index
        for index, t in live.items()
        if t.deadline_ms <= now_ms or index in checkpointed or seen[index] != "running"
    ]
    told = tuple(index for index in sorted(live) if index not in due)
    return Actions(
        asks=tuple(request_of(job, status, index) for index in asks) if status.phase not in FINAL else (),
        notice=_notice(status, told, _last_deadline(live, told)) if told else None,
        withdrawals=tuple(
            Withdraw(name=trainer_name(job.name, index), reason=_why(status), cause=cause_of(job.name))
            for index in sorted(due)
        ),
        again_ms=min((live[index].deadline_ms for index in told), default=None),
    )


def _last_deadline(live: Mapping[int, Trainer], told: Collection[int]) -> int:
    """The last deadline of those that are told."""
    return max((live[index].deadline_ms for index in told), default=0)


def _notice(status: JobStatus, told: tuple[int, ...], deadline_ms: int) -> ShrinkNotice:
    return ShrinkNotice(
        namespace=status.namespace,
        name=status.name,
        generation=status.generation,
        target=status.target,
        trainers=told[:MAX_TOLD],
        deadline_ms=deadline_ms,
        rule=status.history[-1].rule if status.history else "",
    )


def _why(status: JobStatus) -> str:
    return f"job {status.name} is {status.phase}: {status.target} trainers from generation {status.generation} on"
