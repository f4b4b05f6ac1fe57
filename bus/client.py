"""The bus over a real nats-server: the port of `bus.protocol` on one hardened connection.

In: the port's calls. Out: frames on one connection, replies matched to their calls, typed errors. No call retries
inside and none hides a lost connection: what could not be sent fails at once, what was sent and not answered is
"unknown". The process watches `closed`: a connection that ended for good is a reason to exit and be started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from bus import nats_api, nats_queue, storing, streams, together
from bus.frames import encode_header, parse_header, publish_frame, received
from bus.nats_client import SafeClient
from bus.nats_reader import Reader
from bus.opening import open_client, shut_client
from bus.protocol import (
    NO_HEADERS,
    Batch,
    BusError,
    BusUnavailable,
    Delivery,
    Handler,
    Headers,
    NotPermitted,
    Outgoing,
    QueueState,
    Received,
    Responder,
    Settlement,
    Stored,
    StreamMismatch,
    Taking,
)
from bus.serving import ERROR, OrderedHandler, ResponderPool
from bus.watchdog import Pulse, watch
from contracts import identities
from contracts.subjects import STREAMS

log = logging.getLogger(__name__)

BARRIER_S = 2.0

_NO_RESPONDERS = 503

_OURS = ("gpubus.", "$JS.")
"""Subjects that mean something: no inbox begins so."""


class NatsBus:
    """The port over one connection; made by `connect`."""

    def __init__(self, client: SafeClient, pulse: Pulse, closed: asyncio.Event) -> None:
        self._client = client
        self._pulse = pulse
        self.closed = closed
        """Set when the connection has ended for good: the process should exit."""

    @property
    def connected(self) -> bool:
        """True while the last round trip succeeded; a frozen server is noticed within 4 s."""
        fresh = self._pulse.generation != self._client.generation  # connecting again was a round trip as well
        return self._client.is_connected and self._client.reading and (self._pulse.alive or fresh)

    @property
    def generation(self) -> int:
        """Number of reconnects so far."""
        return self._client.generation

    @property
    def counts(self) -> Counter[str]:
        """What went wrong so far, by kind."""
        return self._client.counts

    def __repr__(self) -> str:
        return f"<NatsBus connected={self.connected} {dict(self.counts)}>"

    async def log_in_again(self) -> None:
        """Leave the server and come back with a fresh token; calls in flight fail as they do on a lost connection."""
        await self._client.force_reconnect()

    # --- sending ---------------------------------------------------------------------------------------------------

    async def publish(self, subject: str, data: bytes, *, headers: Headers = NO_HEADERS) -> None:
        """Core publish: may be lost. A forbidden subject raises NotPermitted once the server has said so."""
        header = encode_header(headers)
        storing.check_size(self._client, header, data)
        if self._client.denied("publish", subject):
            raise NotPermitted(f"{subject}: the server refused this subject a moment ago")
        if not self._client.is_connected:
            await asyncio.sleep(0)  # as in `ask`: repeating without a pause must not starve the reconnect
        self._client.send(publish_frame(subject, "", header, data))

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
        """JetStream publish, one try. Raises as the port says."""
        message = Outgoing(
            subject=subject,
            data=data,
            headers=headers,
            message_id=message_id,
            expected_last=expected_last,
            stream=stream,
        )
        return await storing.store(self._client, message, timeout_s)

    async def store_many(self, messages: Sequence[Outgoing], *, timeout_s: float = 5.0) -> list[Stored | BusError]:
        """Pipelined stores, one result each; see the port."""
        return await storing.store_many(self._client, messages, timeout_s)

    async def store_together(self, messages: Sequence[Outgoing], *, timeout_s: float = 5.0) -> Stored:
        """All or none; see the port."""
        return await together.store_together(self._client, messages, timeout_s)

    async def request(
        self, subject: str, data: bytes, *, headers: Headers = NO_HEADERS, timeout_s: float = 2.0
    ) -> Received:
        """Ask and wait for one reply. A responder that failed is BusUnavailable with its reason."""
        header = encode_header(headers)
        storing.check_size(self._client, header, data)
        _, reply, block = await self._client.ask(subject, data, header, timeout_s=timeout_s)
        parsed = parse_header(block)
        if parsed.status == _NO_RESPONDERS:
            raise BusUnavailable(f"{subject}: nobody answers there")
        if ERROR in parsed.headers:
            raise BusUnavailable(f"{subject}: {parsed.headers[ERROR]}")
        return received(subject.encode(), reply, parsed)

    # --- receiving -------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def subscribe(self, pattern: str, handler: Handler, *, queue: str = "") -> AsyncIterator[None]:
        """Call `handler` for each message, one at a time in order; in force when the context is entered."""
        worker = OrderedHandler(pattern, handler, self.counts)

        def sink(subject: bytes, _reply: bytes, data: bytes, header: bytes | None) -> None:
            worker.put(received(subject, data, parse_header(header)))

        async with worker, self._routed(pattern, queue, sink):
            yield

    @contextlib.asynccontextmanager
    async def respond(self, pattern: str, responder: Responder, *, queue: str = "") -> AsyncIterator[None]:
        """Answer requests, each in a task of its own; a responder that raises is answered with an error header."""
        pool = ResponderPool(pattern, responder, self.counts)

        def sink(subject: bytes, reply: bytes, data: bytes, header: bytes | None) -> None:
            inbox = reply.decode("ascii", "replace")
            pool.put(received(subject, data, parse_header(header)), lambda d, h: self._reply(inbox, d, h))

        async with pool, self._routed(pattern, queue, sink):
            yield

    def _reply(self, inbox: str, data: bytes, headers: Headers) -> None:
        if not inbox:
            return
        if inbox.startswith(_OURS):
            # We may publish where the asker may not: an answer must not become a commit or a fact by its address.
            self.counts["reply-refused"] += 1
            return
        header = encode_header(headers)
        storing.check_size(self._client, header, data)
        self._client.send(publish_frame(inbox, "", header, data))

    @contextlib.asynccontextmanager
    async def _routed(
        self, pattern: str, queue: str, sink: Callable[[bytes, bytes, bytes, bytes | None], None]
    ) -> AsyncIterator[None]:
        route = self._client.route(pattern, sink, queue=queue)
        try:
            if not await self._client.echo(BARRIER_S):
                raise BusUnavailable(f"{pattern}: the server did not confirm the subscription")
            if self._client.denied("subscription", pattern):
                raise NotPermitted(f"{pattern}: the server refuses this subscription")
            yield
        finally:
            self._client.unroute(route)

    # --- streams ---------------------------------------------------------------------------------------------------

    def read(
        self, stream: str, *, subject: str = ">", from_sequence: int = 1, batch: int = 500
    ) -> AsyncGenerator[Batch, None]:
        """Every stored message from `from_sequence` on. Raises StreamMismatch when it is another stream by now."""
        return Reader(self._client, stream, subject=subject, from_sequence=from_sequence, batch=batch).batches()

    async def last(self, stream: str, subject: str) -> Received | None:
        """The last stored message of a literal subject, from the leader."""
        return await nats_api.last_message(self._client, stream, subject)

    async def next(self, stream: str, subject: str, sequence: int) -> Received | None:
        """The oldest stored message from `sequence` on that matches, from the leader."""
        return await nats_api.next_message(self._client, stream, subject, sequence)

    async def last_sequence(self, stream: str) -> int:
        """The sequence of the last message, 0 when there was never one."""
        return (await nats_api.stream_info(self._client, stream)).state.last_seq

    async def first_sequence(self, stream: str) -> int:
        """The oldest sequence kept, last + 1 when empty."""
        state = (await nats_api.stream_info(self._client, stream)).state
        return state.first_seq if state.messages else state.last_seq + 1

    async def ensure_queue(self, stream: str, queue: str, *, subject: str, ack_wait_s: float) -> None:
        """Make a work queue, or find it there."""
        config = nats_queue.queue_config(queue, subject, ack_wait_s)
        await nats_api.create_consumer(self._client, stream, config)

    async def queue_state(self, stream: str, queue: str) -> QueueState | None:
        """How a work queue stands, from its leader."""
        info = await nats_api.consumer_info(self._client, stream, queue)
        if info is None:
            return None
        delivered = info.delivered.consumer_seq
        return QueueState(waiting=info.num_pending, outstanding=info.num_ack_pending, delivered=delivered)

    @contextlib.asynccontextmanager
    async def take(self, stream: str, queue: str) -> AsyncIterator[Taking]:
        """Take from a work queue that somebody has made, or will make."""
        async with nats_queue.NatsTaking(self._client, stream, queue).open() as taking:
            yield taking

    def settle(self, delivery: Delivery, how: Settlement) -> None:
        """Say what became of a message."""
        nats_queue.settle(self._client, delivery, how)

    async def ensure_streams(self, *, replicas: int = 1, create: bool = True) -> None:
        """Create what is missing of our streams, read all back and compare. Raises StreamMismatch, BusUnavailable."""
        for stream in STREAMS:
            refused = None
            if create:
                refused = await nats_api.create_stream(self._client, streams.wire_config(stream, replicas=replicas))
            try:
                info = await nats_api.stream_info(self._client, stream.name)
            except nats_api.StreamMissing as error:
                reason = f" ({refused.description})" if refused else ""
                raise StreamMismatch(f"stream {stream.name} is missing{reason}", stream=stream.name) from error
            streams.verify(stream, info.config, replicas=replicas)


@contextlib.asynccontextmanager
async def connect(
    urls: str | Sequence[str],
    *,
    name: str,
    connect_timeout_s: float = 5.0,
    user: str | None = None,
    password: str | None = None,
    token: str | Callable[[], str] | None = None,
    credentials_file: str | None = None,
    nkey_seed: str | None = None,
    tls: ssl.SSLContext | None = None,
    tls_hostname: str | None = None,
    inbox_prefix: str = "_INBOX",
    identity: str = "",
) -> AsyncIterator[NatsBus]:
    """Connect, keep the connection alive while the context is open, close it within a second.

    `tls`: the handshake comes first, so a server without TLS is refused instead of spoken to in clear.
    `credentials_file` and `nkey_seed` need the package nkeys. `inbox_prefix`: where replies come to; it must match
    the user's permissions. `identity`: who we are by the table of `contracts.identities`, as `tenant/team-a`; it
    replaces `inbox_prefix` and says where the account has the stream API. Empty: a server without accounts.

    Raises:
        UnknownIdentity: the table has no such role.
        BusUnavailable: not connected within `connect_timeout_s`, with the last reason (also for refused credentials).
    """
    who = identities.identity(identity) if identity else None
    options: dict[str, Any] = {
        "servers": [urls] if isinstance(urls, str) else list(urls),
        "name": name,
        "user": user,
        "password": password,
        "token": token,
        "user_credentials": credentials_file,
        "nkeys_seed_str": nkey_seed,
        "tls": tls,
        "tls_hostname": tls_hostname,
        "tls_handshake_first": tls is not None,
        "inbox_prefix": identities.inbox_prefix(who) if who else inbox_prefix,
    }
    client, closed, pulse = SafeClient(), asyncio.Event(), Pulse()
    client.api_prefix = identities.api_prefix(who) if who else identities.CORE_API
    await open_client(client, closed, timeout_s=connect_timeout_s, options=options)
    watchdog = asyncio.create_task(watch(client, pulse), name=f"watchdog of the connection {name}")
    try:
        yield NatsBus(client, pulse, closed)
    finally:
        watchdog.cancel()
        await asyncio.gather(watchdog, return_exceptions=True)
        await shut_client(client)
