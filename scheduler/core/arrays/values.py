"""One node's value and usable share, asked from Python: for rules that explain, and for nodes kernels leave out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from contracts.units import WHOLE_CARD
from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.tables import GRID, Reach, ValueTables
from scheduler.core.menu.value import MAX_WHOLES

_GRID = np.concatenate([np.zeros(k.CONSTANTS, np.int64), GRID])
"""A mix of nothing but prices."""


def node_value(tables: ValueTables, cpu_milli: int, idle_milli: Sequence[int]) -> int:
    """V in micro, summed over the menus. Of more than 16 cards the first 16 count."""
    rows = np.zeros((1, k.ROW), np.int32)
    idle = idle_milli[: k.MAX_CARDS]
    rows[0, k.CPU], rows[0, k.CARDS], rows[0, k.WHOLES] = cpu_milli, len(idle), idle_milli.count(WHOLE_CARD)
    rows[0, k.FREE : k.FREE + len(idle)] = idle
    return int(k.value_of(rows, 0, tables.t, _GRID))


def usable(reach: Reach, kind: int, cpu_milli: int, idle_milli: Sequence[int]) -> int:
    """U in micro, likewise."""
    level = bisect_right(reach.levels, cpu_milli)
    wholes = min(MAX_WHOLES, sum(each == WHOLE_CARD for each in idle_milli))
    parts = reach.parts[kind, level]
    return int(reach.several[kind, level, wholes]) + sum(int(parts[idle]) for idle in idle_milli[: k.MAX_CARDS])
