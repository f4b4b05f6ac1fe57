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

import msgspec

from bus.ledger.state import LedgerState
from bus.protocol import NO_HEADERS, Bus, BusError, BusUnavailable, Headers, Outgoing, Received
from bus.runtime.retry import retrying
from contracts import subjects
from contracts.decisions import Commit
from contracts.messages import encode
from contracts.outcomes import RequestEvent
from scheduler import events

WINDOW = 512
REFUSED_WITHIN = 4096
"""Events among which the refusals of one batch are: it has 2,000 inputs at most, and the projector writes beside it."""
PATIENCE_S = 3600.0
"""A bus that is away for an hour: the process ends and is started again; the ledger still has everything."""

STEP = "Gpubus-Step"
"""Header of an event, `<epoch>-<ledger sequence>-<index of the record>`: all steps up to this one are stored with it.

For an event of a commit that is its own step; refusals and pending reasons stand in no commit and repeat the last one.
"""

Step = tuple[int, int]
"""Ledger sequence and index of the record."""

NO_STEP: Step = (0, -1)
_STEP = re.compile(r"([^-]+)-([0-9]{1,16})-([0-9]{1,6})")

_log = logging.getLogger(__name__)
_commits = msgspec.json.Decoder(Commit)
_events = msgspec.json.Decoder(RequestEvent)


def outgoing(event: RequestEvent, identity: str, headers: Headers = NO_HEADERS) -> Outgoing:
    """One event as a message; `identity` makes a repetition recognisable."""
    return Outgoing(
        subject=subjects.EVENTS.subject(namespace=event.namespace, name=event.name),
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
        self._queue: deque[Outgoing] = deque()
        self._something = asyncio.Event()
        self.stored = 0
        self.position: Headers = NO_HEADERS
        """The last step that is known to be stored, as a header."""

    def commit(self, commit: Commit, sequence: int, *, after: int = -1) -> None:
        """Queue the events of a commit that is folded into the state, from index `after` + 1 on."""
        for index, event in events.of_commit(self.state, commit, sequence):
            if index > after:
                step = f"{commit.epoch}-{sequence}-{index}"
                # One record may have events of several requests: an id of the record alone would drop all but one.
                self._queue.append(outgoing(event, f"{step}-{event.namespace}/{event.name}", {STEP: step}))
        self._something.set()

    def tell(self, event: RequestEvent, identity: str) -> None:
        """Queue an event that is no part of a commit, as the reasons of a pending request."""
        self._queue.append(outgoing(event, identity, self.position))
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
            self.position = next((m.headers for m in reversed(window) if m.headers), self.position)

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

    async def refused_after(self, position: int) -> frozenset[int]:
        """Messages of the requests stream behind `position` that have a refusal among the last events."""
        end = await self.bus.last_sequence(subjects.EVENTS.stream)
        found: set[int] = set()
        for message in await self._between(max(1, end - REFUSED_WITHIN + 1), end) if end else ():
            with contextlib.suppress(msgspec.MsgspecError):
                event = _events.decode(message.data)
                if event.phase == "refused" and event.request_sequence > position:
                    found.add(event.request_sequence)
        return frozenset(found)

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
