"""Events out: what commits mean for users, stored in order, never lost.

The ledger is the outbox. The projector's position stands in a header of every event that it stores, and whoever becomes
active reads it from the newest one and goes on exactly behind it. Message ids make the stream drop what two of them
store at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from bus.ledger.state import LedgerState
from bus.protocol import (
    NO_HEADERS,
    Bus,
    BusError,
    BusUnavailable,
    Headers,
    NotTogether,
    Outgoing,
    PayloadTooLarge,
    Received,
)
from bus.runtime.retry import retrying
from contracts import subjects
from contracts.decisions import Commit
from contracts.messages import encode
from contracts.outcomes import RequestEvent
from scheduler import events

WINDOW = 512
TOGETHER = 16
"""Events that are worth being stored as one: a batch costs the server as many syncs as six single messages."""
PATIENCE_S = 3600.0
"""A bus that is away for an hour: the process ends and is started again; the ledger still has everything."""

STEP = "Gpubus-Step"
"""Header of an event, `<epoch>-<ledger sequence>-<index of the record>`: all steps up to this one are stored with it.

For an event of a commit that is its own step; the reasons of a pending request stand in no commit and repeat the last.
"""

Step = tuple[int, int]
"""Ledger sequence and index of the record."""

NO_STEP: Step = (0, -1)
_STEP = re.compile(r"([^-]+)-([0-9]{1,16})-([0-9]{1,6})")

_log = logging.getLogger(__name__)
_commits = msgspec.json.Decoder(Commit)


@lru_cache(maxsize=4096)
def _before(namespace: str) -> str:
    """The subject of a namespace's events up to the name, which is a token by its type."""
    return subjects.EVENTS.subject(namespace=namespace, name="x")[:-1]


def outgoing(event: RequestEvent, identity: str, headers: Headers = NO_HEADERS) -> Outgoing:
    """One event as a message; `identity` makes a repetition recognisable."""
    return Outgoing(
        subject=f"{_before(event.namespace)}{event.name}",
        data=encode(event),
        headers=headers,
        message_id=identity,
        stream=subjects.EVENTS.stream,
    )


def newest_step(messages: Iterable[Received], epoch: str) -> Step | None:
    """The latest step that stored events tell of; `NO_STEP` if they are of another epoch, None if they tell of none."""
    found = [step for message in messages if (step := _STEP.fullmatch(message.headers.get(STEP, "")))]
    ours = [(int(step[2]), int(step[3])) for step in found if step[1] == epoch]
    return max(ours, default=NO_STEP if found else None)


class Projector:
    """Stores events behind the commits of one term."""

    def __init__(self, bus: Bus, state: LedgerState) -> None:
        self.bus = bus
        self.state = state
        self.queue: deque[Outgoing] = deque()
        self._something = asyncio.Event()
        self._together = True
        self.stored = 0
        self.position: Headers = NO_HEADERS
        """The last step that is known to be stored, as a header."""

    def commit(self, commit: Commit, sequence: int, *, after: int = -1) -> None:
        """Queue the events of a commit that is folded into the state, from index `after` + 1 on."""
        for index, event in events.of_commit(self.state, commit, sequence):
            if index > after:
                step = f"{commit.epoch}-{sequence}-{index}"
                # One record may have events of several requests: an id of the record alone would drop all but one.
                self.queue.append(outgoing(event, f"{step}-{event.namespace}/{event.name}", {STEP: step}))
        self._something.set()

    def tell(self, event: RequestEvent, identity: str) -> None:
        """Queue an event that is no part of a commit, as the reasons of a pending request."""
        self.queue.append(outgoing(event, identity, self.position))
        self._something.set()

    async def run(self) -> None:
        """Store what is queued, for ever."""
        while True:
            await self._something.wait()
            await self.flush()
            self._something.clear()

    async def flush(self) -> None:
        """Store everything queued so far, in order."""
        while self.queue:
            window = [self.queue[i] for i in range(min(WINDOW, len(self.queue)))]
            await retrying("store events", deadline_s=PATIENCE_S)(self._store, window)
            for _ in window:
                self.queue.popleft()
            self.stored += len(window)
            self.position = next((m.headers for m in reversed(window) if m.headers), self.position)

    async def _store(self, window: list[Outgoing]) -> None:
        """Many as one if the stream takes them so, else each by itself: message ids make a repetition harmless."""
        if len(window) >= TOGETHER and self._together:
            try:
                await self.bus.store_together(window)
            except (NotTogether, PayloadTooLarge) as why:
                self._together = not (isinstance(why, NotTogether) and why.never)
                _log.info("events are stored one by one", extra={"reason": str(why)})
            else:
                return
        await store_all(self.bus, window)

    async def catch_up(self) -> None:
        """Project again what is behind the newest stored step, to the state's head."""
        newest, index = await self._newest()
        if newest:
            self.position = {STEP: f"{self.state.epoch}-{newest}-{index}"}
        if newest > self.state.sequence or not self.state.sequence:
            return
        reading = self.bus.read(subjects.LEDGER.stream, from_sequence=max(1, newest))
        async with contextlib.aclosing(reading) as batches:
            async for batch in batches:
                for message in batch.messages:
                    if message.sequence <= self.state.sequence:
                        after = index if message.sequence == newest else -1
                        self.commit(_commits.decode(message.data), message.sequence, after=after)
                if batch.caught_up or (batch.messages and batch.messages[-1].sequence >= self.state.sequence):
                    return

    async def _newest(self) -> Step:
        """The newest stored step: nearly always among the last events."""
        end = await self.bus.last_sequence(subjects.EVENTS.stream)
        while end > 0:
            start = max(1, end - WINDOW + 1)
            step = newest_step(await self._between(start, end), self.state.epoch)
            if step is not None:
                return step
            end = start - 1
        return NO_STEP

    async def _between(self, start: int, end: int) -> list[Received]:
        """The stored events from sequence `start` to `end`, as far as the stream still holds them."""
        found: list[Received] = []
        async with contextlib.aclosing(self.bus.read(subjects.EVENTS.stream, from_sequence=start)) as batches:
            async for batch in batches:
                found += [message for message in batch.messages if message.sequence <= end]
                if batch.caught_up or (batch.messages and batch.messages[-1].sequence >= end):
                    break
        return found


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
