"""What the clients of `bus.memory` share: streams, interests, and the faults that a test chooses.

In: stores and core messages of its clients. Out: results, and messages put in the hands of whoever is interested,
at once and in the order of subscription, so that equal runs are equal. No tasks, no waiting: those are the
clients'.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from bus.frames import encode_header, parse_header, received, store_header
from bus.memory_queue import MemoryQueue
from bus.memory_stream import MemoryStream
from bus.patterns import covers
from bus.protocol import BusError, BusUnavailable, Headers, Outgoing, Received, Stored
from bus.serving import Reply
from contracts.subjects import STREAMS


class Fault(msgspec.Struct, frozen=True):
    """What happens to one round trip: it takes `delay_s` each way, and is lost before or after it took effect."""

    delay_s: float = 0.0
    lose: Literal["", "before", "after"] = ""
    repeat_reply: bool = False
    """The answer to a request comes twice."""


NO_FAULT = Fault()

FaultChooser = Callable[[str, str, str], Fault]
"""(client name, "store" | "publish" | "request" | "api" | "read", subject or stream) -> what happens to it."""

Take = Callable[[Received, Reply | None], None]


class _Interest(msgspec.Struct, frozen=True, eq=False):
    pattern: str
    queue: str
    take: Take


def as_received(headers: Headers) -> Headers:
    """What a receiver sees of headers: through the same bytes and the same judgement as on the wire."""
    return received(b"", b"", parse_header(encode_header(headers))).headers if headers else headers


def as_core(m: Outgoing) -> Received:
    """What a core receiver sees of a message."""
    return Received(subject=m.subject, data=m.data, headers=as_received(m.headers))


class MemoryServer:
    """Streams and interests. `wall` is the clock of `stored_at`, which is for people only."""

    def __init__(self, *, max_payload: int = 1024 * 1024, wall: Callable[[], float] = time.time) -> None:
        self.max_payload = max_payload
        self.streams: dict[str, MemoryStream] = {}
        self.queues: dict[tuple[str, str], MemoryQueue] = {}
        self.fault: FaultChooser = lambda _client, _kind, _subject: NO_FAULT
        self._wall = wall
        self._interests: list[_Interest] = []
        self._turns = itertools.count()
        self._identities = itertools.count(1)
        self._watchers: list[asyncio.Event] = []

    def create_streams(self) -> None:
        """Create what is missing of our streams."""
        for stream in STREAMS:
            if stream.name not in self.streams:
                self.streams[stream.name] = MemoryStream(stream, f"life {next(self._identities)}")

    def wipe(self) -> None:
        """Lose the disk: there are no streams any more."""
        self.streams.clear()
        self.queues.clear()
        self.notify()

    def store(self, m: Outgoing) -> Stored | BusError:
        """Store where a stream takes the subject, and hand it to core subscribers too, as a real server does."""
        m = msgspec.structs.replace(m, headers=as_received(m.headers))
        stream = next((s for s in self.streams.values() if s.takes(m.subject)), None)
        if stream is None:
            return BusUnavailable(f"{m.subject}: no stream takes it now")
        now_s = asyncio.get_running_loop().time()
        result = stream.store(m, header_bytes=len(store_header(m)), now_s=now_s, wall_s=self._wall())
        self.deliver(Received(subject=m.subject, data=m.data, headers=m.headers))
        self.notify()
        return result

    def store_together(self, messages: Sequence[Outgoing]) -> Stored | BusError:
        """All of them, or none."""
        stream = next((s for s in self.streams.values() if s.takes(messages[0].subject)), None)
        if stream is None:
            return BusUnavailable(f"{messages[0].subject}: no stream takes it now")
        now_s = asyncio.get_running_loop().time()
        refused = stream.refuses_together(messages, now_s=now_s)
        return refused or [self.store(message) for message in messages][-1]

    def make_queue(self, stream: str, queue: str, subject: str, ack_wait_s: float) -> None:
        """Make a work queue, if there is none of that name."""
        kept = self.streams.get(stream)
        if kept is None:
            raise BusUnavailable(f"{stream}: there is no such stream")
        if (stream, queue) not in self.queues:
            self.queues[stream, queue] = MemoryQueue(kept, queue, subject=subject, ack_wait_s=ack_wait_s)
        self.notify()

    def deliver(self, message: Received, reply: Reply | None = None) -> int:
        """Hand a message to each plain interest and to one of each queue group; how many got it."""
        groups: dict[str, list[_Interest]] = {}
        for index, interest in enumerate(self._interests):
            if covers(interest.pattern, message.subject):
                key = f"{interest.pattern} {interest.queue}" if interest.queue else f"{index}"
                groups.setdefault(key, []).append(interest)
        for members in groups.values():
            members[next(self._turns) % len(members)].take(message, reply)
        return len(groups)

    @contextlib.contextmanager
    def interest(self, pattern: str, queue: str, take: Take) -> Iterator[None]:
        """Be handed what is sent on a pattern while the context is open."""
        one = _Interest(pattern=pattern, queue=queue, take=take)
        self._interests.append(one)
        try:
            yield
        finally:
            self._interests.remove(one)

    @contextlib.contextmanager
    def watched(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever something changed for readers."""
        event = asyncio.Event()
        self._watchers.append(event)
        try:
            yield event
        finally:
            self._watchers.remove(event)

    def notify(self) -> None:
        """Wake the readers."""
        for event in self._watchers:
            event.set()
