"""How late the event loop is: a task that sleeps and looks how much too late it woke.

A loop that is late answers late: heartbeats are judged stale, leases are lost. It is a gauge, and a liveness check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from bus.runtime import semconv

PERIOD_S = 0.25


class LoopLag:
    """The lag in seconds, now and at its worst since the last scrape."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = 0.0
        self._last_s = 0.0
        self._worst_s = 0.0

    async def watch(self) -> None:
        """Measure for ever."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._due = self._loop.time() + self._period_s
            await asyncio.sleep(self._period_s)
            self._last_s = max(0.0, self._loop.time() - self._due)
            self._worst_s = max(self._worst_s, self._last_s)

    def now_s(self) -> float:
        """Of the last measurement, or how late the running one already is; 0 before the first."""
        if self._loop is None:
            return 0.0
        return max(self._last_s, self._loop.time() - self._due)

    def check(self, limit_s: float) -> str:
        """For /healthz."""
        lag_s = self.now_s()
        return f"the event loop is {lag_s:.2f} s late, the limit is {limit_s:g} s" if lag_s > limit_s else ""

    def export(self, meter: Meter) -> None:
        """As a gauge, the worst since the last scrape."""

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            worst, self._worst_s = max(self._worst_s, self.now_s()), 0.0
            yield Observation(worst)

        meter.create_observable_gauge(
            semconv.LOOP_LAG_S,
            [observe],
            unit="s",
            description="worst lateness of the event loop since the last scrape",
        )
