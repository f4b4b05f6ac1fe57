"""One node's value and usable share, asked from Python: for rules that explain, and for nodes kernels leave out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from contracts.units import WHOLE_CARD
from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.tables import GRID, Reach, ValueTables
from scheduler.core.menu.value import MAX_WHOLES


def node_value(tables: ValueTables, cpu_milli: int, idle_milli: Sequence[int]) -> int:
    """V in micro, summed over the menus. Of more than 16 cards the first 16 count."""
    row = np.zeros(k.ROW, np.int32)
    idle = idle_milli[: k.MAX_CARDS]
    row[k.CPU], row[k.CARDS], row[k.WHOLES] = cpu_milli, len(idle), sum(each == WHOLE_CARD for each in idle_milli)
    row[k.FREE : k.FREE + len(idle)] = idle
    return int(k.value_of(row, tables.v, tables.w, GRID, tables.menus))


def usable(reach: Reach, kind: int, cpu_milli: int, idle_milli: Sequence[int]) -> int:
    """U in micro, likewise."""
    level = bisect_right(reach.levels, cpu_milli)
    wholes = min(MAX_WHOLES, sum(each == WHOLE_CARD for each in idle_milli))
    parts = reach.parts[kind, level]
    return int(reach.several[kind, level, wholes]) + sum(int(parts[idle]) for idle in idle_milli[: k.MAX_CARDS])
