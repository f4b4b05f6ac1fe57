"""A steady beat on the event loop's clock: no drift, no bursts, and an extra tick when somebody wakes it.

    ticks = Ticks(1.0, wake)
    while True:
        await ticks.next()        # at 1, 2, 3, ... seconds after the start, and at once when `wake` is set

A tick that comes late does not move the later ones, and those that were missed are left out: after 3.2 s of sleep the
next tick is at 4.0. An extra tick does not move them either.
"""

from __future__ import annotations

import asyncio
import math


def next_due(due: float, now: float, period: float) -> float:
    """The first time after `now` on the grid of `due` and `period`, and never `due` again."""
    return due + period * (1 + max(0, math.floor((now - due) / period)))


class Ticks:
    """Made inside the event loop; the first tick is one period later."""

    def __init__(self, period_s: float, wake: asyncio.Event | None = None) -> None:
        self._period_s = period_s
        self._wake = wake or asyncio.Event()
        self._due = asyncio.get_running_loop().time()

    async def next(self) -> None:
        """Wait for the next tick."""
        due = next_due(self._due, asyncio.get_running_loop().time(), self._period_s)
        try:
            async with asyncio.timeout_at(due):
                await self._wake.wait()
        except TimeoutError:
            self._due = due
        else:
            self._wake.clear()
