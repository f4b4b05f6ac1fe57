"""Do we know the present ledger? A process that was frozen for a minute must not act on what it knew before.

What flows in: the end of the log, asked for twice a second. What flows out: `fresh`, true while everything that was
stored up to a moment at most three seconds ago has been folded. Asking comes before folding, and the time counts from
before the question, so a pause anywhere makes it false by the clock alone. Nothing is created, bound, deleted or said
while it is false. It is not a fence (only the preconditions of each write are), it makes the window small.
"""

from __future__ import annotations

import asyncio
import logging

from bus.ledger.state import LedgerState
from bus.protocol import Bus, BusError
from contracts.subjects import LEDGER

LIMIT_S = 3.0
EVERY_S = 0.5

_log = logging.getLogger(__name__)


class Freshness:
    """Asks; whoever folds calls `folded()`."""

    def __init__(self, bus: Bus, state: LedgerState, *, limit_s: float = LIMIT_S, every_s: float = EVERY_S) -> None:
        self._bus = bus
        self._state = state
        self._limit_s = limit_s
        self._every_s = every_s
        self._confirmed_s = float("-inf")
        self._step = asyncio.Event()

    @property
    def fresh(self) -> bool:
        """Whether we may act now. Ask it right before acting."""
        return asyncio.get_running_loop().time() - self._confirmed_s < self._limit_s

    def folded(self) -> None:
        """A commit was folded."""
        self._step.set()

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            try:
                await self._confirm()
            except BusError as error:
                _log.debug("the end of the ledger is not known", extra={"reason": str(error)})
            await asyncio.sleep(self._every_s)

    async def _confirm(self) -> None:
        asked_s = asyncio.get_running_loop().time()
        end = await self._end()
        while self._state.sequence < end:
            self._step.clear()
            await self._step.wait()
        self._confirmed_s = asked_s

    async def _end(self) -> int:
        """Of our pool's log. The stream's end is cheap to ask, and enough unless another pool wrote last."""
        end = await self._bus.last_sequence(LEDGER.stream)
        if end <= self._state.sequence:
            return end
        last = await self._bus.last(LEDGER.stream, LEDGER.subject(pool=self._state.pool))
        return last.sequence if last else 0
