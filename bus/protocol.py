"""The port: what services need of a bus, whoever carries it.

Two implementations pass one suite: `bus.client` over a real nats-server, `bus.memory` in one process for simulation.
Errors are drawn here, split by who is at fault:

    BusError
    ├── BusUnavailable    the world's: not connected, timed out, no responder. The outcome is unknown; retry is for it
    ├── SequenceConflict  the compare-and-set lost: somebody wrote the subject first. Fold what you have not seen
    ├── StreamFull        a limit of the stream refused the message; nothing was stored
    ├── PayloadTooLarge   ours: payload and headers exceed what the server or stream takes
    ├── NotTogether       the stream does not take these as one: one is there already, or it never does (`never`)
    ├── StreamMismatch    an operator's: a stream exists with a configuration that breaks a promise
    └── NotPermitted      an operator's: the server's permissions refuse the subject; nothing was sent on
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

Headers = Mapping[str, str]
NO_HEADERS: Headers = {}

MALFORMED = "Gpubus-Malformed"
"""Header set by the client on a message that could not be parsed as sent (subject, header or status bytes)."""


class BusError(Exception):
    """Anything the bus could not do."""


class BusUnavailable(BusError):  # noqa: N818 - named by what is the case, as the drawing above
    """Not connected, timed out or nobody there. Whether it took effect is unknown."""


class SequenceConflict(BusError):  # noqa: N818
    """Another write came first; `last` is the subject's present sequence where the server told it."""

    def __init__(self, subject: str, expected: int, last: int | None) -> None:
        super().__init__(
            f"{subject}: expected last sequence {expected}, found {last if last is not None else 'another'}"
        )
        self.subject = subject
        self.expected = expected
        self.last = last


class StreamFull(BusError):  # noqa: N818
    """A byte or message limit refused the message."""


class PayloadTooLarge(BusError):  # noqa: N818
    """Payload plus headers are larger than allowed."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"message of {size} bytes (payload and headers), the limit is {limit}")
        self.size = size
        self.limit = limit


class NotTogether(BusError):  # noqa: N818
    """Several messages were not taken as one and none is stored; each alone may be. `never`: no use to try again."""

    def __init__(self, text: str, *, never: bool = False) -> None:
        super().__init__(text)
        self.never = never


class StreamMismatch(BusError):  # noqa: N818
    """A stream is not what the code declares (`field`, `wanted`, `found`), or not the one that was read before."""

    def __init__(
        self, text: str, *, stream: str = "", field: str = "", wanted: object = None, found: object = None
    ) -> None:
        super().__init__(text)
        self.stream = stream
        self.field = field
        self.wanted = wanted
        self.found = found


class NotPermitted(BusError):  # noqa: N818
    """The server's permissions refuse this subject."""


class Received(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message as it came: from a stream (with its sequence) or from core NATS (sequence 0)."""

    subject: str
    data: bytes
    headers: Headers = {}
    sequence: int = 0
    stored_at: float = 0.0
    """Server wall clock in seconds, for people; 0 for core messages."""

    @property
    def malformed(self) -> str:
        """What was wrong with the frame, or an empty string."""
        return self.headers.get(MALFORMED, "")


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A publish acknowledgement."""

    sequence: int
    duplicate: bool = False


class Outgoing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message for `store_many`; the fields are the arguments of `store`."""

    subject: str
    data: bytes
    headers: Headers = {}
    message_id: str | None = None
    expected_last: int | None = None
    stream: str | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a reader yields: one or more messages in order; `caught_up` when nothing newer was stored behind them.

    The first batch of a reader at the end of a stream is empty and caught up, so that a start-up can know it is done.
    """

    messages: tuple[Received, ...]
    caught_up: bool


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a work queue in the hands of one who took it, until it is settled or its time is up."""

    message: Received
    attempt: int
    """The how-manieth time it was handed out: 1 = the first."""
    receipt: str
    """Where it is settled."""


Settlement = Literal["done", "again", "working", "never"]
"""done: it is gone. again: hand it out once more, now. working: keep it mine, its time begins anew. never: it is gone
and was not done."""


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """How a work queue stands."""

    waiting: int
    """Kept and not handed out yet."""
    outstanding: int
    """Handed out and not settled; also those whose time is up and whom nobody has taken again."""
    delivered: int = 0
    """Handed out since the queue was made, repeats included."""


class Taking(Protocol):
    """One who takes messages from a work queue, one after the other."""

    async def next(self) -> Delivery:
        """The oldest that nobody has; waits for ever, also over reconnects and where the queue does not exist yet.

        At most one is on its way to us; when the wait is cancelled it stays for the next call, or for `rest`.
        """
        ...

    async def rest(self) -> Delivery | None:
        """Ask for no more; the one that was on its way already, if there was one. Takes two seconds at most."""
        ...


Handler = Callable[[Received], Awaitable[None]]
Responder = Callable[[Received], Awaitable[bytes]]


class Bus(Protocol):
    """What services use. All names are literal subjects; wildcards only where a pattern is asked for."""

    @property
    def connected(self) -> bool:
        """True while the last round trip to the server succeeded."""
        ...

    @property
    def generation(self) -> int:
        """Number of reconnects so far: another one than before means that core messages may have been missed."""
        ...

    async def publish(self, subject: str, data: bytes, *, headers: Headers = NO_HEADERS) -> None:
        """Core publish: may be lost. Raises BusUnavailable at once when not connected."""
        ...

    async def store(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Headers = NO_HEADERS,
        message_id: str | None = None,
        expected_last: int | None = None,
        stream: str | None = None,
        timeout_s: float = 2.0,
    ) -> Stored:
        """JetStream publish: returns when the server has stored (and with `sync_interval: always`, synced) it.

        `expected_last`: compare-and-set on this literal subject's last sequence (0 = none yet).
        `message_id`: dedup within the stream's window; also the safe way to repeat after an unknown outcome.
        With both, repeating what had succeeded is a SequenceConflict whose `last` is one's own first try on an
        unreplicated stream (the condition is judged first), and a duplicate on a replicated one. Expect either.
        One try, no retry inside. Raises BusUnavailable, SequenceConflict, StreamFull, PayloadTooLarge.
        """
        ...

    async def store_many(self, messages: Sequence[Outgoing], *, timeout_s: float = 5.0) -> list[Stored | BusError]:
        """Store many messages, pipelined: sent in order without waiting for each acknowledgement.

        One result per message, in order, never raised: each stands alone, and a later one may be stored though an
        earlier one was not. The wait for acknowledgements is bounded by `timeout_s` per window of in-flight
        messages.
        """
        ...

    async def store_together(self, messages: Sequence[Outgoing], *, timeout_s: float = 5.0) -> Stored:
        """Store 1..1000 messages of one stream as one: all or none, in order, for the price of one; the last sequence.

        Conditions (`expected_last`) are not for messages that stand together. A message id that is known already makes
        the server refuse all. Raises NotTogether, PayloadTooLarge: nothing is stored. BusUnavailable: all or none is.
        """
        ...

    async def request(
        self, subject: str, data: bytes, *, headers: Headers = NO_HEADERS, timeout_s: float = 2.0
    ) -> Received:
        """Ask and wait for one reply. Raises BusUnavailable (timeout, no responder, or the responder failed)."""
        ...

    def subscribe(self, pattern: str, handler: Handler, *, queue: str = "") -> AbstractAsyncContextManager[None]:
        """Call `handler` for each core message while the context is open, one at a time in order.

        A handler that raises is logged and counted; it never stops the subscription.
        """
        ...

    def respond(self, pattern: str, responder: Responder, *, queue: str = "") -> AbstractAsyncContextManager[None]:
        """Answer requests while the context is open; replies may come long after (they do not block each other)."""
        ...

    def read(
        self, stream: str, *, subject: str = ">", from_sequence: int = 1, batch: int = 500
    ) -> AsyncGenerator[Batch, None]:
        """Every stored message from `from_sequence` on, in order, without gaps, for ever, over reconnects.

        A message that the stream no longer holds (aged out, replaced by a newer one of its subject) is skipped.
        Raises StreamMismatch when it is another stream than before: made again, gone, or ending before the position.
        Stop by leaving the iteration (`aclose()`).
        """
        ...

    async def last(self, stream: str, subject: str) -> Received | None:
        """The last stored message of a literal subject, read from the leader; None if there is none."""
        ...

    async def next(self, stream: str, subject: str, sequence: int) -> Received | None:
        """The oldest stored message from `sequence` on whose subject matches the pattern; None if there is none yet."""
        ...

    async def last_sequence(self, stream: str) -> int:
        """The sequence of the last message of the stream, 0 when empty."""
        ...

    async def first_sequence(self, stream: str) -> int:
        """The sequence of the oldest message kept (last + 1 when empty)."""
        ...

    async def ensure_queue(self, stream: str, queue: str, *, subject: str, ack_wait_s: float) -> None:
        """Make a work queue over the stream's messages of a subject, or find it there; safe to repeat.

        Each message goes to one taker at a time, oldest first, and again to another when it is not settled within
        `ack_wait_s`. Two queues of one stream must not share a subject.
        """
        ...

    async def queue_state(self, stream: str, queue: str) -> QueueState | None:
        """How it stands; None when it was never made."""
        ...

    def take(self, stream: str, queue: str) -> AbstractAsyncContextManager[Taking]:
        """Take messages while the context is open. What is not settled when it closes is handed out again."""
        ...

    def settle(self, delivery: Delivery, how: Settlement) -> None:
        """Say what became of a message. May be lost; then it is handed out again. Raises BusUnavailable at once."""
        ...

    async def ensure_streams(self, *, replicas: int = 1, create: bool = True) -> None:
        """Create what is missing of `contracts.subjects.STREAMS`, read all back and compare.

        Raises StreamMismatch naming stream, field, wanted and found.
        """
        ...
