"""One line of a measured table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, beside the floor of the same run; `note` says how."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    """The same work without us, or the best that could be: measured in the same run."""
    goal: str = ""
    note: str = ""


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank, of a non-empty sequence."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)
