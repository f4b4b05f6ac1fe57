"""Where the embedded cluster takes its time from."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "ScaledClock"]


class Clock(Protocol):
    """Seconds since the epoch, and a way to wait for some of them."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of this clock."""
        ...


class ScaledClock:
    """The machine's clock, running `speed` times as fast from the moment it is made. 1 is real time."""

    def __init__(self, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be positive, not {speed}")
        self.speed = speed
        self._began, self._mark = time.time(), time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._began + (time.monotonic() - self._mark) * self.speed

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds / speed` of real time."""
        await asyncio.sleep(max(seconds, 0.0) / self.speed)


class ManualClock:
    """Time that moves only when it is told to: for simulations and tests that advance the world themselves."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Move on; the new time."""
        self._now += seconds
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Never returns: whoever moves this clock also advances the world."""
        del seconds
        await asyncio.Event().wait()
