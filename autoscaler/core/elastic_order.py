"""Which job grows first and which one shrinks first.

Fulfillment is how far a job has come from its least to its most trainers: (present - minimum) / (maximum - minimum), 1
for a job that cannot change. Ascending order, for growing: fulfillment, then cards, CPU and memory of one trainer, then
the name. Descending order, for shrinking, is the same list from its end. The order is made once for a dry run, from
what runs now, so that every pass goes around all jobs: one each.
"""

from __future__ import annotations

import msgspec

SCALE = 1_000_000_000
"""Two different fulfillments of jobs of at most 10,000 trainers are at least 10^-8 apart: in billionths they differ."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the place of a job in the order depends on."""

    name: str
    minimum: int
    maximum: int
    present: int
    gpu: int = 0
    """Cards of one trainer; thousandths serve as well, for all jobs alike."""
    cpu: int = 0
    memory: int = 0


def fulfillment(minimum: int, maximum: int, present: int) -> int:
    """In billionths, rounded down; above 10^9 or negative when the job is out of its bounds."""
    return SCALE if minimum == maximum else (present - minimum) * SCALE // (maximum - minimum)


def ascending(job: Standing) -> tuple[int, int, int, int, str]:
    """The sort key."""
    return fulfillment(job.minimum, job.maximum, job.present), job.gpu, job.cpu, job.memory, job.name
