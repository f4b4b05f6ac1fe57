"""The hardened connection: nats-py for connecting, TLS, login, pings and parsing; everything else is ours.

What flows in: frames to send, and routes (a subject, and a plain function that gets the raw parts of each message,
called from the read loop). What flows out: raw messages to routes, replies to calls, `counts` of what went wrong.

Why not nats-py's own publish, request and subscriptions: they swallow cancellation, raise into the read loop on
hostile bytes, leak entries while disconnected, and cost three times the CPU. Here sending is one synchronous append
that fails at once when not connected, a call is a future that is failed when the connection is lost, and a message
that cannot be handled is counted. A connection is thrown away by abort, because closing a socket towards a frozen
peer waits for it. The overridden methods are private to nats-py, hence its tight version range.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import re
from collections import Counter
from collections.abc import Callable

from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from bus.frames import publish_frame
from bus.protocol import BusError, BusUnavailable, NotPermitted

log = logging.getLogger(__name__)

Sink = Callable[[bytes, bytes, bytes, bytes | None], None]
"""(subject, reply, payload, header block). Must not block; what it raises is logged and counted."""

Answer = tuple[bytes, bytes, bytes | None]
"""Subject, payload and header block of a reply."""

OUTBOUND_LIMIT = 16 * 1024 * 1024
"""Bytes that may wait for the socket. More means that the server does not read: fail instead of growing."""

ECHO = "gpubus.v1.echo"
"""Nobody answers here: the server's own "no responders" proves the way out, the server and the way back."""

DENIAL_MEMORY_S = 10.0
"""How long a denied publish is remembered: core publishes to that subject fail at once, and are tried again later."""

_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
_TROUBLES = 3
_BACKOFF_S = (0.0, 0.05, 0.1, 0.2, 0.4)


class Route(Subscription):
    """A subscription without queue and task: the read loop calls `sink`. nats-py replays it after a reconnect."""

    def __init__(self, client: SafeClient, sid: int, subject: str, queue: str, sink: Sink) -> None:
        super().__init__(client, sid, subject, queue)
        self.sid = sid
        self.sink = sink


class SafeClient(Client):
    """One connection that hostile bytes, frozen servers and raising callbacks do not kill."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.generation = 0
        """Number of reconnects: whoever remembers it knows whether the connection is still the one it used."""
        self.listeners: set[Callable[[], None]] = set()
        """Called when the connection is lost and when it is back."""
        self.denials: dict[tuple[str, str], float] = {}
        self.api_prefix = "$JS.API"
        """Where the account of this connection has the stream API."""
        self.troubles: list[str] = []
        """The last distinct error texts: a refused login shows as a refusal or as a reset, as the race goes."""
        self._calls: dict[bytes, tuple[asyncio.Future[Answer], str]] = {}
        self._tokens = itertools.count()
        self._reply_prefix = ""
        self._failures = 0

    # --- sending ---------------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue a frame for the socket.

        Raises:
            BusUnavailable: not connected, or the server has not read for a while.
        """
        if not self.is_connected:
            raise BusUnavailable("not connected")
        if self._pending_data_size + len(frame) > OUTBOUND_LIMIT:
            raise BusUnavailable(f"{self._pending_data_size} bytes wait for the server already")
        self._pending.append(frame)
        self._pending_data_size += len(frame)
        if self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    def call(self, subject: str, header: bytes, data: bytes) -> asyncio.Future[Answer]:
        """Send a request; the future gets the reply, or the reason why there will be none. Cancel it to give up.

        Raises:
            BusUnavailable: nothing was sent.
        """
        if not self._reply_prefix:
            self._open_replies()
        token = b"%x" % next(self._tokens)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.send(publish_frame(subject, self._reply_prefix + token.decode(), header, data))
        self._calls[token] = (future, subject)
        future.add_done_callback(lambda _: self._calls.pop(token, None))
        return future

    async def ask(self, subject: str, data: bytes = b"", header: bytes = b"", *, timeout_s: float = 2.0) -> Answer:
        """Send a request and wait. Truly ends when cancelled.

        Raises:
            BusUnavailable: not connected, connection lost, or no reply in time.
            NotPermitted: the server refused the subject.
        """
        if not self.is_connected:
            await asyncio.sleep(0)  # a caller that repeats without a pause must not keep the reconnect from running
        future = self.call(subject, header, data)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise BusUnavailable(f"{subject}: no reply within {timeout_s:g} s") from None
        finally:
            future.cancel()

    async def echo(self, timeout_s: float) -> bool:
        """Whether the server answered a round trip in time. Also a barrier: what was sent before has been processed."""
        try:
            await self.ask(ECHO, timeout_s=timeout_s)
        except NotPermitted:
            return True
        except BusUnavailable:
            return False
        return True

    def _open_replies(self) -> None:
        prefix = f"{self.new_inbox()}."
        self.route(f"{prefix}*", self._on_reply)
        self._reply_prefix = prefix

    def _on_reply(self, subject: bytes, _reply: bytes, data: bytes, header: bytes | None) -> None:
        entry = self._calls.get(subject[len(self._reply_prefix) :])
        if entry is not None and not entry[0].done():
            entry[0].set_result((subject, data, header))

    # --- receiving -------------------------------------------------------------------------------------------------

    def route(self, subject: str, sink: Sink, *, queue: str = "") -> Route:
        """Ask the server for a subject. In force after the next round trip, and again after each reconnect.

        Raises:
            BusUnavailable: not connected.
        """
        self._sid += 1
        route = Route(self, self._sid, subject, queue, sink)
        self.send(b"SUB %b %b %d\r\n" % (subject.encode(), queue.encode(), route.sid))
        self._subs[route.sid] = route
        return route

    def unroute(self, route: Route) -> None:
        """Stop a route at once; the server is told if there is one."""
        self._subs.pop(route.sid, None)
        with contextlib.suppress(BusUnavailable):
            self.send(b"UNSUB %d\r\n" % route.sid)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        route = self._subs.get(sid)
        if not isinstance(route, Route):
            return
        try:
            route.sink(subject, reply, data, headers)
        except Exception:
            self.counts["sink-failed"] += 1
            log.exception("a message on %r could not be taken in", subject)

    # --- what the server reports -----------------------------------------------------------------------------------

    async def on_error(self, error: Exception) -> None:
        """The error callback: never raises. Permission texts come in lower case and are mapped back to their calls."""
        self.counts["error"] += 1
        text = str(error) or type(error).__name__
        denied = _DENIED.search(text)
        if denied is None:
            log.log(logging.DEBUG if text in self.troubles else logging.INFO, "connection: %s", text)
            self.troubles = [*(known for known in self.troubles if known != text), text][-_TROUBLES:]
            return
        self.counts["denied"] += 1
        log.warning("the server refused: %s", text)
        self.denials[denied[1], denied[2]] = asyncio.get_running_loop().time()
        if denied[1] == "publish":
            self._fail_calls(NotPermitted(text), subject=denied[2])

    def denied(self, kind: str, subject: str) -> bool:
        """Whether the server refused this `publish` or `subscription` a short while ago."""
        if not self.denials:
            return False
        since = self.denials.get((kind, subject.lower()))
        if since is None:
            return False
        if asyncio.get_running_loop().time() - since > DENIAL_MEMORY_S:
            del self.denials[kind, subject.lower()]
            return False
        return True

    async def on_reconnected(self) -> None:
        """The reconnected callback."""
        self.generation += 1
        self.denials.clear()
        self.troubles.clear()
        log.info("connected again to %s", self.connected_url.netloc if self.connected_url else "?")
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    def _fail_calls(self, error: BusError, *, subject: str | None = None) -> None:
        for future, called in tuple(self._calls.values()):
            if not future.done() and (subject is None or called.lower() == subject):
                future.set_exception(error)
                future.exception()  # whoever waits still gets it; nobody waiting is no event-loop warning

    # --- connecting, losing, closing -------------------------------------------------------------------------------

    def abort(self) -> None:
        """Drop the socket without waiting for a peer that may be frozen."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    def _forget_connection(self, why: str) -> None:
        """Nothing of the old connection may leak into the next: unsent frames go, callers hear of it."""
        self._pending.clear()
        self._pending_data_size = 0
        self._fail_calls(BusUnavailable(f"{why}; whether it took effect is unknown"))
        self.abort()

    async def _attempt_reconnect(self) -> None:
        self.counts["connection-lost"] += 1
        self._forget_connection("connection lost")
        self._tell_listeners()
        await super()._attempt_reconnect()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        self._forget_connection("closed")
        await super()._close(status, do_cbs)
        self._tell_listeners()

    async def _connect_to_server(self, s: Srv) -> None:
        """One try, after a pause that grows with the tries in vain; nats-py's own pause has no jitter."""
        self.abort()
        longest = _BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)]
        self._failures += 1
        await asyncio.sleep(random.uniform(0.5, 1.0) * longest)
        await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        """A login that got neither PONG nor error is no connection, though nats-py goes on with it."""
        await super()._process_connect_init()
        if self._status != Client.CONNECTED:
            for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
                if task is not None:
                    task.cancel()
            raise NatsError("nats: the server did not confirm the login")
        self._failures = 0

    async def _process_pong(self) -> None:
        """As in nats-py, but a PONG for a caller that gave up must not end the read loop."""
        self._pings_outstanding = 0
        if self._pongs:
            future = self._pongs.pop(0)
            if not future.done():
                future.set_result(True)

    @property
    def reading(self) -> bool:
        """Whether the tasks that read and write the socket are alive."""
        tasks = (self._reading_task, self._flusher_task)
        return all(task is not None and not task.done() for task in tasks)

    @property
    def reconnect_stuck(self) -> bool:
        """Whether it says it is reconnecting, but nothing does that any more."""
        return self.is_reconnecting and (self._reconnection_task is None or self._reconnection_task.done())
