"""The unbounded knapsack: the most that items are worth together that fit a room. Pure; exact, by dynamic programming.

In: room and sizes in whole steps, sizes ascending and distinct; what each item is worth. Out: the best value, and which
items make it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


def filled(room: int, sizes: NDArray[np.int64], gains: Vector) -> tuple[float, list[int]]:
    """Unbounded knapsack: the best of `room` steps, and by number of steps which item came last (-1: none)."""
    best = np.zeros(room + 1)
    last = [-1] * (room + 1)
    for r in range(1, room + 1):
        fitting = int(np.searchsorted(sizes, r, side="right"))
        best[r] = best[r - 1]
        if fitting:
            options = best[r - sizes[:fitting]] + gains[:fitting]
            top = int(np.argmax(options))
            if options[top] > best[r]:
                best[r], last[r] = options[top], top
    return float(best[room]), last


def counted(last: list[int], sizes: NDArray[np.int64], best_of: dict[int, int]) -> dict[int, int]:
    """The items of the best filling."""
    found: dict[int, int] = {}
    r = len(last) - 1
    while r > 0:
        if last[r] < 0:
            r -= 1
            continue
        size = int(sizes[last[r]])
        found[best_of[size]] = found.get(best_of[size], 0) + 1
        r -= size
    return found
