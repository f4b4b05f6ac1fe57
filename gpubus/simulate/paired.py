"""Two policies on the same arrivals: the mean of their differences, and how sure it is. Pure.

Seeds differ more from one another than policies do (a tenth to half a point); the same seed brings the same pods in the
same order, so that the difference of a pair is far steadier than either value. The standard error is that of the mean
of the differences: spread of one difference over the root of their number. None with fewer than two pairs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from contracts.messages import Value


class Paired(Value, frozen=True, kw_only=True):
    """One value minus the other, over the seeds that both have."""

    mean: float
    error: float | None
    wins: int
    """Seeds in which it is above 0."""
    pairs: int


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Paired | None:
    """By seed; None when they have none in common."""
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not differences:
        return None
    several = len(differences) > 1
    return Paired(
        mean=statistics.fmean(differences),
        error=statistics.stdev(differences) / math.sqrt(len(differences)) if several else None,
        wins=sum(each > 0 for each in differences),
        pairs=len(differences),
    )
