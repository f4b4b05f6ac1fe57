"""X: what free CPU is worth to pods without cards, which compete for it.

X(c) = mean over 64 menus of two such classes of the largest sum of their requests, copies unlimited, that is at most c:
a knapsack in steps of 100 milli-cores. Kept as the sum over the menus.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.menu.classes import PodClass
from scheduler.core.menu.draw import strata

CPU_STEP_MILLI = 100
CPU_MENUS = 64
CPU_STEPS = 4096
"""409 cores; a node with more is worth as much as one with so many."""


def cpu_menus(classes: Sequence[PodClass], seed: int) -> list[tuple[int, int]]:
    """Two sizes for each menu, in steps, rounded up; none when no class asks for CPU alone."""
    alone = [each for each in classes if not each.cards and each.cpu_milli and each.weight]
    if not alone:
        return []
    drawn = [strata(alone, CPU_MENUS, position, seed) for position in range(2)]
    sizes = [[-(-each.cpu_milli // CPU_STEP_MILLI) for each in column] for column in drawn]
    return list(zip(*sizes, strict=True))


def fillings(sizes: Sequence[tuple[int, int]], steps: int) -> list[int]:
    """X x 64 by steps of free CPU, in milli-cores; plain Python, the reference of the compiled one."""
    sums = [0] * steps
    for one, other in sizes:
        best = [0] * steps
        for here in range(1, steps):
            found = best[here - 1]
            for size in (one, other):
                if size <= here:
                    found = max(found, best[here - size] + size)
            best[here] = found
        sums = [total + CPU_STEP_MILLI * more for total, more in zip(sums, best, strict=True)]
    return sums
