"""Taking from a work queue: one message at a time, from a consumer that somebody else has made.

In: a connection, a stream, the name of its consumer. Out: deliveries with their receipts. One pull is in the air at
most and asks for one message, so that whoever stops holds nothing back but the one that may be on its way; each pull
ends by itself after a second. A pull to a consumer that does not exist, to a server that is gone, or whose answer was
lost is asked again, for ever: a worker has nothing better to do than to wait for calls.

The answer to a pull is a service response, and the receipt is a subject of the stream API; both cross from one account
to another by `contracts.identities.crossings`, so that a worker needs no right to make consumers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from bus.frames import ACK_PREFIX, parse_ack_reply, parse_header, publish_frame, received
from bus.nats_client import SafeClient
from bus.protocol import BusUnavailable, Delivery, Settlement

EXPIRES_S = 1.0
"""How long a pull waits at the server; leaving takes no longer than this."""
PATIENCE_S = 2.0
"""Silence after which a pull counts as lost."""
PAUSE_S = 0.2
"""Before asking again a server that had nothing to say: no consumer, no connection."""

_NANO = 1_000_000_000
_EMPTY = (404, 408)
_PULL = msgspec.json.encode({"batch": 1, "expires": int(EXPIRES_S * _NANO)})
_WORDS: dict[Settlement, bytes] = {"done": b"+ACK", "again": b"-NAK", "working": b"+WPI", "never": b"+TERM"}


def queue_config(queue: str, subject: str, ack_wait_s: float) -> dict[str, Any]:
    """A durable consumer that hands out without end; how often is too often is for the taker to say."""
    return {
        "durable_name": queue,
        "name": queue,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_s * _NANO),
        "max_deliver": -1,
        "max_ack_pending": -1,
        "max_waiting": 4096,
        "replay_policy": "instant",
        "filter_subject": subject,
    }


def settle(client: SafeClient, delivery: Delivery, how: Settlement) -> None:
    """Say what became of it. Raises BusUnavailable when nothing was sent."""
    client.send(publish_frame(delivery.receipt, "", b"", _WORDS[how]))


class NatsTaking:
    """The port's `Taking`."""

    def __init__(self, client: SafeClient, stream: str, queue: str) -> None:
        self._client = client
        self._subject = f"{client.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{queue}"
        self._inbox = client.new_inbox()
        self._here: deque[Delivery] = deque()
        self._asked_until_s = 0.0
        self._generation = -1
        self._pause_s = 0.0
        self._wake = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[NatsTaking]:
        """Listen while the context is open."""
        route = self._client.route(self._inbox, self._on_frame)
        self._client.listeners.add(self._wake.set)
        try:
            yield self
        finally:
            self._client.listeners.discard(self._wake.set)
            self._client.unroute(route)

    async def next(self) -> Delivery:
        """The oldest that nobody has."""
        while not self._here:
            await self._rest_a_moment()
            self._pull()
            await self._wait()
        return self._here.popleft()

    async def rest(self) -> Delivery | None:
        """The one that was on its way."""
        while not self._here and self._asked:
            await self._wait()
        return self._here.popleft() if self._here else None

    @property
    def _asked(self) -> bool:
        """Whether an answer may still come."""
        return self._generation == self._client.generation and self._now() < self._asked_until_s

    def _pull(self) -> None:
        if self._asked or self._here:
            return
        self._asked_until_s, self._generation = self._now() + PATIENCE_S, self._client.generation
        try:
            self._client.send(publish_frame(self._subject, self._inbox, b"", _PULL))
        except BusUnavailable:
            self._nothing(PAUSE_S)

    async def _rest_a_moment(self) -> None:
        pause_s, self._pause_s = self._pause_s, 0.0
        await asyncio.sleep(pause_s)

    async def _wait(self) -> None:
        self._wake.clear()
        if self._here or not self._asked:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._asked_until_s):
                await self._wake.wait()

    def _nothing(self, pause_s: float) -> None:
        self._asked_until_s, self._pause_s = 0.0, pause_s

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- from the read loop ----------------------------------------------------------------------------------------

    def _on_frame(self, subject: bytes, reply: bytes, data: bytes, header: bytes | None) -> None:
        ack = parse_ack_reply(reply) if reply.startswith(ACK_PREFIX) else None
        if ack is None:
            self._nothing(0.0 if parse_header(header).status in _EMPTY else PAUSE_S)
        else:
            self._nothing(0.0)
            message = received(subject, data, parse_header(header), sequence=ack.sequence, stored_ns=ack.stored_ns)
            self._here.append(
                Delivery(message=message, attempt=ack.delivered, receipt=reply.decode("ascii", "replace"))
            )
        self._wake.set()
