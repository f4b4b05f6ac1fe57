"""When the next checkpoint is due, and writing it beside the work.

In: the ledger that grows, and the time. Out: now and then a checkpoint. It belongs to whoever writes the ledger; a
second one does no harm, it wastes a copy. The event loop pays for that copy only: the rest runs in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from copy import copy

from bus.ledger import snapshot
from bus.ledger.append import Ledger, Written
from bus.ledger.shelf import newest_head, write_checkpoint
from bus.protocol import Bus
from bus.runtime.retry import retrying

RECORDS = 50_000
"""Folding as many takes half a second at a start, reading them in small commits three."""

SOONEST_S = 30.0
"""A copy stops the event loop for 0.1 s with 50,000 live requests: not more often than this, also after a failure."""

LATEST_S = 86_400.0
"""Also without a commit: commits and checkpoints age out, and the log must reach back to a checkpoint."""

BUDGET = 4
"""Bytes of log for a byte of checkpoint: the streams hold 8 and 2 GiB, so the checkpoints never fill theirs first."""

LOOK_S = 1.0
OUTAGE_S = 3600.0


def due(*, records: int, log_bytes: int, age_s: float, last_bytes: int, every_records: int = RECORDS) -> bool:
    """Whether to write one, given what came to the log since the last one, how old and how large that one is. Pure."""
    grown = records >= every_records and log_bytes >= BUDGET * last_bytes
    return age_s >= LATEST_S or (grown and age_s >= SOONEST_S)


class Checkpointer:
    """Writes checkpoints of one ledger as it grows.

    Args:
        ledger: the committed state; only read.
        every_records: records after which the next one is due.
        wall: seconds, compared with when the server stored the last one; only the age in days depends on it.
    """

    def __init__(
        self, bus: Bus, ledger: Ledger, *, every_records: int = RECORDS, wall: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._ledger = ledger
        self._every_records = every_records
        self._wall = wall
        self._seen = Written()
        self._size = 0

    async def run(self) -> None:
        """For ever. Raises GaveUp when the bus is away for an hour."""
        clock = asyncio.get_running_loop().time
        last_s = clock() - await retrying("find the newest checkpoint", deadline_s=OUTAGE_S)(self._find_last)
        tried_s = clock() - SOONEST_S
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = clock()
            if now_s - tried_s >= SOONEST_S and self._due(now_s - last_s):
                tried_s = now_s
                last_s = now_s if await self.write() else last_s

    async def write(self) -> bool:
        """Write one of the committed state as it is now; whether it is stored."""
        state, seen = snapshot.copy(self._ledger.state), copy(self._ledger.written)
        packed = await write_checkpoint(self._bus, state)
        if packed is None:
            return False
        self._seen, self._size = seen, packed.size
        return True

    def _due(self, age_s: float) -> bool:
        written = self._ledger.written
        return due(
            records=written.records - self._seen.records,
            log_bytes=written.bytes - self._seen.bytes,
            age_s=age_s,
            last_bytes=self._size,
            every_records=self._every_records,
        )

    async def _find_last(self) -> float:
        """The age of the newest checkpoint of this epoch; a day when there is none. Commits since count as records."""
        state = self._ledger.state
        found = await newest_head(self._bus, state.pool)
        if found is None or found[0].epoch != state.epoch:
            return LATEST_S
        head, stored_at = found
        self._seen = copy(self._ledger.written)
        self._seen.records -= state.number - head.number
        return max(0.0, self._wall() - stored_at)
