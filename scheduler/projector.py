"""Events out: what commits mean for users, stored in order, never lost.

The ledger is the outbox. The projector's position is the newest event in the stream: whoever becomes active projects
again from the commit of that event on, under the same message ids, so that the stream drops what it has already.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque

import msgspec

from bus.ledger.state import LedgerState
from bus.protocol import Bus, BusError, BusUnavailable, Outgoing
from bus.runtime.retry import retrying
from contracts import subjects
from contracts.decisions import Commit
from contracts.messages import encode
from contracts.outcomes import RequestEvent
from scheduler import events

WINDOW = 512
PATIENCE_S = 3600.0
"""A bus that is away for an hour: the process ends and is started again; the ledger still has everything."""

_log = logging.getLogger(__name__)
_commits = msgspec.json.Decoder(Commit)


def outgoing(event: RequestEvent, identity: str) -> Outgoing:
    """One event as a message; `identity` makes a repetition recognisable."""
    return Outgoing(
        subject=subjects.EVENTS.subject(namespace=event.namespace, name=event.name),
        data=encode(event),
        message_id=identity,
        stream=subjects.EVENTS.stream,
    )


class Projector:
    """Stores events behind the commits of one term."""

    def __init__(self, bus: Bus, state: LedgerState) -> None:
        self.bus = bus
        self.state = state
        self._queue: deque[Outgoing] = deque()
        self._something = asyncio.Event()
        self.stored = 0

    @property
    def backlog(self) -> int:
        """Events that wait to be stored."""
        return len(self._queue)

    def commit(self, commit: Commit, sequence: int) -> None:
        """Queue the events of a commit that is folded into the state."""
        for index, event in enumerate(events.of_commit(self.state, commit, sequence)):
            self._queue.append(outgoing(event, f"{commit.epoch}-{sequence}-{index}"))
        self._something.set()

    def tell(self, event: RequestEvent, identity: str) -> None:
        """Queue an event that is no part of a commit, as the reasons of a pending request."""
        self._queue.append(outgoing(event, identity))
        self._something.set()

    async def run(self) -> None:
        """Store what is queued, for ever."""
        while True:
            await self._something.wait()
            await self.flush()
            self._something.clear()

    async def flush(self) -> None:
        """Store everything queued so far, in order."""
        while self._queue:
            window = [self._queue[i] for i in range(min(WINDOW, len(self._queue)))]
            await retrying("store events", deadline_s=PATIENCE_S)(store_all, self.bus, window)
            for _ in window:
                self._queue.popleft()
            self.stored += len(window)

    async def catch_up(self) -> None:
        """Project again from the commit of the newest event to the state's head."""
        newest = await self._newest()
        if newest >= self.state.sequence:
            return
        reading = self.bus.read(subjects.LEDGER.stream, from_sequence=max(1, newest))
        async with contextlib.aclosing(reading) as batches:
            async for batch in batches:
                for message in batch.messages:
                    if message.sequence <= self.state.sequence:
                        self.commit(_commits.decode(message.data), message.sequence)
                if batch.caught_up or (batch.messages and batch.messages[-1].sequence >= self.state.sequence):
                    return

    async def _newest(self) -> int:
        """Ledger sequence of the newest event that stands in a commit."""
        last = await self.bus.last_sequence(subjects.EVENTS.stream)
        if last == 0:
            return 0
        newest = 0
        reading = self.bus.read(subjects.EVENTS.stream, from_sequence=max(1, last - WINDOW))
        async with contextlib.aclosing(reading) as batches:
            async for batch in batches:
                for message in batch.messages:
                    with contextlib.suppress(msgspec.MsgspecError):
                        newest = max(newest, msgspec.json.decode(message.data, type=RequestEvent).ledger_sequence)
                if batch.caught_up:
                    return newest
        return newest


async def store_all(bus: Bus, window: list[Outgoing]) -> None:
    """Store a window; a message that the stream refuses for good is logged and passed by.

    Raises:
        BusUnavailable: some were not stored and are worth another try.
    """
    results = await bus.store_many(window)
    for message, result in zip(window, results, strict=True):
        if isinstance(result, BusUnavailable):
            raise result
        if isinstance(result, BusError):
            _log.error("event refused by its stream", extra={"subject": message.subject, "reason": str(result)})
