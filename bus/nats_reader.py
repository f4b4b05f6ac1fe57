"""Reading a stream: every message from a sequence on, in order, once, for ever.

In: a connection, a stream, where to begin. Out: batches. The position is a sequence that the reader itself keeps;
the consumer on the server is a throw-away (ephemeral, no acks) that is made again, from the sequence after the last
message seen, whenever anything looks odd: the connection was lost, heartbeats stopped, the consumer is gone, a
delivery is missing in the count. `bus.cursor` holds that decision. A stream that is another one than before
(made again, or its end went back) is not continued: StreamMismatch, so that whoever folds it starts anew.

Demand: pulls are asked for while fewer than two batches are asked for and not yet taken, so that the server always
has one to serve while the previous is on its way (30,000 messages/s), and memory is bounded by three batches when
the caller is slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from bus.cursor import MISSING_S, judge, same_stream
from bus.frames import ACK_PREFIX, Header, parse_ack_reply, parse_header, publish_frame, received
from bus.nats_api import StreamMissing, create_consumer, stream_info
from bus.nats_client import SafeClient
from bus.protocol import Batch, BusUnavailable, Received, StreamMismatch

log = logging.getLogger(__name__)

EXPIRES_S = 5.0
HEARTBEAT_S = 1.0
PATIENCE_S = 2.5
"""Two heartbeats missed and half a second for the way."""

INACTIVE_S = 10.0
"""The server forgets a consumer that nobody pulls from for so long; nothing deletes them otherwise."""

PULL_BYTES = 8 * 1024 * 1024
"""A pull ends at this many bytes: 500 commits of 1 MiB must not arrive in one burst. Above any max_payload we allow."""

_NANO = 1_000_000_000
_IDLE = 100
_TIMED_OUT = 408
_CONFLICT = 409


def consumer_config(name: str, position: int, subject: str) -> dict[str, Any]:
    """An ephemeral consumer from `position` on: kept in memory, no acks."""
    config: dict[str, Any] = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": position,
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": int(INACTIVE_S * _NANO),
        "mem_storage": True,
        "num_replicas": 1,
    }
    return config if subject == ">" else {**config, "filter_subject": subject}


class Reader:
    """One reader's position; `batches` goes on from it for ever."""

    def __init__(self, client: SafeClient, stream: str, *, subject: str, from_sequence: int, batch: int) -> None:
        self.client = client
        self.stream = stream
        self.subject = subject
        self.position = max(1, from_sequence)
        self.batch = batch
        self.created = ""
        self.told_caught_up = False

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """The iteration behind `Bus.read`."""
        while True:
            consumption = await self._begin()
            try:
                async with contextlib.aclosing(consumption.batches()) as batches:
                    async for one in batches:
                        self.told_caught_up = one.caught_up
                        yield one
            finally:
                consumption.close()

    async def _begin(self) -> Consumption:
        """Make a consumer at the position; tried until it succeeds, the stream is another, or the bus is closed."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(BusUnavailable),
            wait=wait_random_exponential(multiplier=0.02, max=0.5),
            stop=self._give_up,
            before_sleep=self._log_retry,
            reraise=True,
        )
        try:
            return await retrying(self._try_begin)
        except StreamMissing as error:
            raise StreamMismatch(f"{self.stream} is gone: {error}", stream=self.stream) from error

    async def _try_begin(self) -> Consumption:
        consumption = Consumption(self)
        try:
            await consumption.open()
        except BaseException:
            consumption.close()
            raise
        return consumption

    def _give_up(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        missing = isinstance(error, StreamMissing) and (state.seconds_since_start or 0.0) > MISSING_S
        return self.client.is_closed or missing

    def _log_retry(self, state: RetryCallState) -> None:
        level = logging.WARNING if state.attempt_number % 20 == 0 else logging.DEBUG
        error = state.outcome.exception() if state.outcome else None
        log.log(level, "reading %s from %d, try %d: %s", self.stream, self.position, state.attempt_number, error)


class Consumption:
    """The life of one consumer on the server: pulls, deliveries, and what ended it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._client = reader.client
        self._name = self._client.new_inbox().rsplit(".", 1)[-1]
        self._inbox = self._client.new_inbox()
        self._generation = self._client.generation
        self._wake = asyncio.Event()
        self._client.listeners.add(self._wake.set)
        self._route = self._client.route(self._inbox, self._on_frame)
        self._buffer: deque[Received] = deque()
        self._deliveries = 0
        self._asked = 0
        self._behind = 0
        self._heard = 0.0
        self._odd = ""

    async def open(self) -> None:
        """Create the consumer, then see whether the stream around it is still the same one (in this order)."""
        reader = self._reader
        config = consumer_config(self._name, reader.position, reader.subject)
        created = await create_consumer(self._client, reader.stream, config)
        info = await stream_info(self._client, reader.stream)
        same_stream(
            reader.stream,
            known=reader.created,
            created=info.created,
            position=reader.position,
            last=info.state.last_seq,
        )
        reader.created = info.created
        self._behind = created.num_pending
        self._heard = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Forget the consumer; the server does so by itself."""
        self._client.listeners.discard(self._wake.set)
        self._client.unroute(self._route)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Batches until something is odd."""
        while True:
            self._pull()
            if self._buffer:
                yield self._take()
            elif self._behind == 0 and not self._reader.told_caught_up:
                yield Batch(messages=(), caught_up=True)
            elif self._ended():
                self._client.counts["read-again"] += 1
                log.info("reading %s: %s; going on from %d", self._reader.stream, self._odd, self._reader.position)
                return
            else:
                await self._wait()

    def _take(self) -> Batch:
        count = min(len(self._buffer), self._reader.batch)
        messages = tuple(self._buffer.popleft() for _ in range(count))
        return Batch(messages=messages, caught_up=not self._buffer and self._behind == 0)

    def _pull(self) -> None:
        batch = self._reader.batch
        if self._odd or self._asked > batch or len(self._buffer) > batch:
            return
        body = {
            "batch": batch,
            "max_bytes": PULL_BYTES,
            "expires": int(EXPIRES_S * _NANO),
            "idle_heartbeat": int(HEARTBEAT_S * _NANO),
        }
        subject = f"{self._client.api_prefix}.CONSUMER.MSG.NEXT.{self._reader.stream}.{self._name}"
        try:
            self._client.send(publish_frame(subject, self._inbox, b"", msgspec.json.encode(body)))
        except BusUnavailable as error:
            self._odd = str(error)
            return
        if self._asked == 0:
            self._heard = asyncio.get_running_loop().time()  # no heartbeats were due while nothing was asked for
        self._asked += batch

    async def _wait(self) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._heard + PATIENCE_S):
                await self._wake.wait()

    def _ended(self) -> bool:
        if not self._odd and self._generation != self._client.generation:
            self._odd = "connected again"
        if not self._odd and not self._client.is_connected:
            self._odd = "connection lost"
        if not self._odd and asyncio.get_running_loop().time() - self._heard > PATIENCE_S:
            self._odd = "no heartbeat"
        return bool(self._odd)

    # --- from the read loop ----------------------------------------------------------------------------------------

    def _on_frame(self, subject: bytes, reply: bytes, data: bytes, header: bytes | None) -> None:
        self._heard = asyncio.get_running_loop().time()
        if reply.startswith(ACK_PREFIX):
            self._on_delivery(subject, reply, data, header)
        else:
            self._on_status(parse_header(header))
        self._wake.set()

    def _on_delivery(self, subject: bytes, reply: bytes, data: bytes, header: bytes | None) -> None:
        ack = parse_ack_reply(reply)
        if ack is None:
            self._odd = self._odd or f"unreadable ack subject {reply!r}"
            return
        verdict = judge(self._reader.position, self._deliveries, ack)
        if self._odd or verdict == "odd":
            self._odd = self._odd or f"delivery {ack.consumer_sequence} after {self._deliveries}"
            return
        self._deliveries += 1
        self._asked -= 1
        self._behind = ack.pending
        if verdict == "take":
            self._reader.position = ack.sequence + 1
            message = received(subject, data, parse_header(header), sequence=ack.sequence, stored_ns=ack.stored_ns)
            self._buffer.append(message)

    def _on_status(self, header: Header) -> None:
        if header.status == _IDLE:
            self._behind = 0  # the server has nothing to deliver, or it would not call itself idle
            return
        left = header.headers.get("Nats-Pending-Messages", "")
        ends = ("maxbytes", "batch completed")  # how a pull ends that was served in full
        expected = header.status == _TIMED_OUT or (
            header.status == _CONFLICT and any(end in header.description.lower() for end in ends)
        )
        if expected and left.isdigit():
            self._asked -= int(left)
        else:
            self._odd = self._odd or f"status {header.status} {header.description}"
