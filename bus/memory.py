"""The bus in one process, for simulation and tests: the port of `bus.protocol`, many clients of one `MemoryServer`.

In: the port's calls, and a fault for each round trip, chosen by whoever drives the test (`server.fault`). Out: what
the real bus would do, on the event loop's clock alone: a virtual clock drives it, and equal runs are equal.
`drop()` and `restore()` lose and give back a client's connection, `server.wipe()` loses the disk. It passes the
suite of the real one (tests/contract/test_bus.py); what that suite does not ask is not promised.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from bus.cursor import MISSING_S, same_stream
from bus.frames import encode_header, store_header
from bus.memory_server import Fault, FaultChooser, MemoryServer, as_core, as_received
from bus.memory_stream import MemoryStream
from bus.patterns import check_subject
from bus.protocol import (
    NO_HEADERS,
    Batch,
    BusError,
    BusUnavailable,
    Delivery,
    Handler,
    Headers,
    Outgoing,
    PayloadTooLarge,
    QueueState,
    Received,
    Responder,
    Settlement,
    Stored,
    StreamMismatch,
    Taking,
)
from bus.serving import ERROR, OrderedHandler, Reply, ResponderPool

__all__ = ["Fault", "FaultChooser", "InMemoryBus", "MemoryServer"]

API_TIMEOUT_S = 2.0

_T = TypeVar("_T")


class InMemoryBus:
    """One client of a `MemoryServer`; the port."""

    def __init__(self, server: MemoryServer, name: str) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.closed = asyncio.Event()
        self._server = server
        self._lost = asyncio.Event()
        self.generation = 0
        """Counts `restore`."""

    def __repr__(self) -> str:
        return f"<InMemoryBus {self.name} connected={self.connected} {dict(self.counts)}>"

    @property
    def connected(self) -> bool:
        """False between `drop` and `restore`."""
        return not self._lost.is_set()

    def drop(self) -> None:
        """Lose the connection: calls in flight end as unknown, new ones are refused, readers wait."""
        self._lost.set()

    def restore(self) -> None:
        """Connect again."""
        self._lost.clear()
        self.generation += 1
        self._server.notify()

    # --- sending ---------------------------------------------------------------------------------------------------

    async def publish(self, subject: str, data: bytes, *, headers: Headers = NO_HEADERS) -> None:
        """Core publish; a fault that loses it is not told."""
        message = self._outgoing(Outgoing(subject=subject, data=data, headers=headers))
        self._check_connected()
        if self._server.fault(self.name, "publish", subject).lose:
            return
        if isinstance(self._server.store(message), BusUnavailable):
            self._server.deliver(as_core(message))

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
        """JetStream publish, one try."""
        message = self._outgoing(
            Outgoing(
                subject=subject,
                data=data,
                headers=headers,
                message_id=message_id,
                expected_last=expected_last,
                stream=stream,
            )
        )
        result = await self._round_trip("store", subject, lambda: self._server.store(message), timeout_s)
        if isinstance(result, BusError):
            raise result
        return result

    async def store_many(self, messages: Sequence[Outgoing], *, timeout_s: float = 5.0) -> list[Stored | BusError]:
        """Each on its own, in order; one round trip in all."""
        if not messages:
            return []
        try:
            return await self._round_trip(
                "store", messages[0].subject, lambda: [self._store_one(m) for m in messages], timeout_s
            )
        except BusUnavailable as error:
            return [error] * len(messages)

    async def store_together(self, messages: Sequence[Outgoing], *, timeout_s: float = 5.0) -> Stored:
        """All or none, in one round trip."""
        together = [self._outgoing(m) for m in messages]
        result = await self._round_trip(
            "store", messages[0].subject, lambda: self._server.store_together(together), timeout_s
        )
        if isinstance(result, BusError):
            raise result
        return result

    def _store_one(self, m: Outgoing) -> Stored | BusError:
        try:
            return self._server.store(self._outgoing(m))
        except BusError as error:
            return error

    async def request(
        self, subject: str, data: bytes, *, headers: Headers = NO_HEADERS, timeout_s: float = 2.0
    ) -> Received:
        """Ask and wait for the first reply."""
        message = as_core(self._outgoing(Outgoing(subject=subject, data=data, headers=headers)))
        answer: asyncio.Future[tuple[bytes, Headers]] = asyncio.get_running_loop().create_future()
        fault = self._server.fault(self.name, "request", subject)

        def reply(content: bytes, reply_headers: Headers) -> None:
            for _ in range(2 if fault.repeat_reply else 1):
                if not answer.done():
                    answer.set_result((content, as_received(reply_headers)))

        asked = await self._round_trip(
            "request", subject, lambda: self._server.deliver(message, reply), timeout_s, fault
        )
        if not asked:
            raise BusUnavailable(f"{subject}: nobody answers there")
        await self._or_lost(answer, timeout_s, subject)
        content, reply_headers = answer.result()
        if ERROR in reply_headers:
            raise BusUnavailable(f"{subject}: {reply_headers[ERROR]}")
        return Received(subject=subject, data=content, headers=reply_headers)

    # --- receiving -------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def subscribe(self, pattern: str, handler: Handler, *, queue: str = "") -> AsyncIterator[None]:
        """Call `handler` for each message, one at a time in order."""
        worker = OrderedHandler(pattern, handler, self.counts)

        def take(message: Received, _reply: Reply | None) -> None:
            if self.connected:
                worker.put(message)

        self._check_connected()
        async with worker:
            with self._server.interest(pattern, queue, take):
                yield

    @contextlib.asynccontextmanager
    async def respond(self, pattern: str, responder: Responder, *, queue: str = "") -> AsyncIterator[None]:
        """Answer requests, each in a task of its own."""
        pool = ResponderPool(pattern, responder, self.counts)

        def take(message: Received, reply: Reply | None) -> None:
            if self.connected:
                pool.put(message, lambda data, headers: self._reply(reply, data, headers))

        self._check_connected()
        async with pool:
            with self._server.interest(pattern, queue, take):
                yield

    def _reply(self, reply: Reply | None, data: bytes, headers: Headers) -> None:
        self._check_connected()
        self._check_size(len(encode_header(headers)) + len(data))
        if reply is not None:
            reply(data, headers)

    # --- streams ---------------------------------------------------------------------------------------------------

    async def read(
        self, stream: str, *, subject: str = ">", from_sequence: int = 1, batch: int = 500
    ) -> AsyncGenerator[Batch, None]:
        """Every stored message from `from_sequence` on, for ever."""
        position, known, told = max(1, from_sequence), "", False
        with self._server.watched() as changed:
            while True:
                await asyncio.sleep(self._server.fault(self.name, "read", stream).delay_s)
                changed.clear()
                if self.connected:
                    kept = await self._find(stream)
                    same_stream(stream, known=known, created=kept.created, position=position, last=kept.last_sequence)
                    known = kept.created
                    messages = kept.page(subject, position, batch)
                    if messages or not told:
                        position = messages[-1].sequence + 1 if messages else position
                        told = not kept.page(subject, position, 1)
                        yield Batch(messages=messages, caught_up=told)
                        continue
                await changed.wait()

    async def _find(self, stream: str) -> MemoryStream:
        """The stream, waited for as long as the real reader does."""
        deadline = asyncio.get_running_loop().time() + MISSING_S
        while (kept := self._server.streams.get(stream)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise StreamMismatch(f"{stream} is gone", stream=stream)
            await asyncio.sleep(0.5)
        return kept

    async def last(self, stream: str, subject: str) -> Received | None:
        """The last stored message of a literal subject."""
        return await self._ask(stream, lambda kept: kept.last(subject))

    async def next(self, stream: str, subject: str, sequence: int) -> Received | None:
        """The oldest stored message from `sequence` on that matches."""
        return await self._ask(stream, lambda kept: next(iter(kept.page(subject, max(1, sequence), 1)), None))

    async def last_sequence(self, stream: str) -> int:
        """The sequence of the last message, 0 when there was never one."""
        return await self._ask(stream, lambda kept: kept.last_sequence)

    async def first_sequence(self, stream: str) -> int:
        """The oldest sequence kept, last + 1 when empty."""
        return await self._ask(stream, lambda kept: kept.first_sequence)

    # --- work queues -----------------------------------------------------------------------------------------------

    async def ensure_queue(self, stream: str, queue: str, *, subject: str, ack_wait_s: float) -> None:
        """Make a work queue, or find it there."""
        make = self._server.make_queue
        await self._round_trip("api", stream, lambda: make(stream, queue, subject, ack_wait_s), API_TIMEOUT_S)

    async def queue_state(self, stream: str, queue: str) -> QueueState | None:
        """How a work queue stands."""
        found = await self._round_trip("api", stream, lambda: self._server.queues.get((stream, queue)), API_TIMEOUT_S)
        return found.state() if found else None

    @contextlib.asynccontextmanager
    async def take(self, stream: str, queue: str) -> AsyncIterator[Taking]:
        """Take from a work queue that somebody has made, or will make."""
        yield _Taking(self, self._server, (stream, queue))

    def settle(self, delivery: Delivery, how: Settlement) -> None:
        """Say what became of a message; a fault that loses it is not told."""
        self._check_connected()
        if self._server.fault(self.name, "publish", delivery.receipt).lose:
            return
        queue, _, sequence = delivery.receipt.partition(" ")
        for (_, name), found in self._server.queues.items():
            if name == queue:
                found.settle(int(sequence), how, asyncio.get_running_loop().time())
        self._server.notify()

    async def ensure_streams(self, *, replicas: int = 1, create: bool = True) -> None:
        """Create what is missing; there is nothing that could differ. `replicas` has no meaning here."""
        del replicas
        if create:
            await self._round_trip("api", "streams", self._server.create_streams, API_TIMEOUT_S)
        elif not self._server.streams:
            raise StreamMismatch("the streams are missing")

    async def _ask(self, stream: str, what: Callable[[MemoryStream], _T]) -> _T:
        def look() -> _T:
            kept = self._server.streams.get(stream)
            if kept is None:
                raise BusUnavailable(f"{stream}: there is no such stream")
            return what(kept)

        return await self._round_trip("api", stream, look, API_TIMEOUT_S)

    # --- the way there and back ------------------------------------------------------------------------------------

    async def _round_trip(
        self, kind: str, subject: str, effect: Callable[[], _T], timeout_s: float, fault: Fault | None = None
    ) -> _T:
        """Go there, take effect, come back; the connection may be lost and the fault may strike on either way."""
        self._check_connected()
        fault = fault or self._server.fault(self.name, kind, subject)
        await self._travel(timeout_s if fault.lose == "before" else fault.delay_s)
        if fault.lose == "before":
            raise BusUnavailable(f"{subject}: no reply within {timeout_s:g} s")
        result = effect()
        await self._travel(timeout_s if fault.lose == "after" else fault.delay_s)
        if fault.lose == "after" or 2 * fault.delay_s > timeout_s:
            raise BusUnavailable(f"{subject}: no reply within {timeout_s:g} s")
        return result

    async def _travel(self, seconds: float) -> None:
        """Let time pass; the connection may be lost meanwhile."""
        await asyncio.sleep(0)
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._lost.wait()
        if not self.connected:
            raise BusUnavailable("connection lost; whether it took effect is unknown")

    async def _or_lost(self, answer: asyncio.Future[tuple[bytes, Headers]], timeout_s: float, subject: str) -> None:
        """Wait for an answer, unless the connection is lost or time is up."""
        lost = asyncio.create_task(self._lost.wait(), name=f"{self.name} watches its connection")
        try:
            waiting: set[asyncio.Future[Any]] = {answer, lost}
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)
        if not answer.done():
            raise BusUnavailable(f"{subject}: no reply within {timeout_s:g} s, or the connection is lost")

    def _outgoing(self, m: Outgoing) -> Outgoing:
        check_subject(m.subject)
        self._check_size(len(store_header(m)) + len(m.data))
        return m

    def _check_size(self, size: int) -> None:
        if size > self._server.max_payload:
            raise PayloadTooLarge(size, self._server.max_payload)

    def _check_connected(self) -> None:
        if not self.connected:
            raise BusUnavailable("not connected")


class _Taking:
    """The port's `Taking`: nothing is ever on its way, a message is handed over in the instant it is asked for."""

    def __init__(self, bus: InMemoryBus, server: MemoryServer, queue: tuple[str, str]) -> None:
        self._bus = bus
        self._server = server
        self._queue = queue

    async def next(self) -> Delivery:
        """The oldest that nobody has."""
        loop = asyncio.get_running_loop()
        with self._server.watched() as changed:
            while True:
                changed.clear()
                await asyncio.sleep(0)
                queue = self._server.queues.get(self._queue)
                delivery = queue.take(loop.time()) if queue and self._bus.connected else None
                if delivery is not None:
                    return delivery
                due_s = queue.next_due_s() if queue else math.inf
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due_s if due_s < math.inf else None):
                        await changed.wait()

    async def rest(self) -> Delivery | None:
        """Nothing."""
        return None
