"""Handlers and responders at work: bounded, tracked, and never ended by what they raise. Used by every bus.

In: messages, put in by a plain call from whoever receives them. `OrderedHandler` runs one handler at a time in the
order of arrival (a heartbeat must not overtake its successor) and drops the oldest when too many wait: core
messages may be lost. `ResponderPool` gives each request a task of its own, because a submit waits for a commit, and
answers with the reply, or with a header that says why there is none, so that nobody who asks is left hanging.
Leaving either stops taking, lets the work in hand finish for a short while, then cancels it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from bus.protocol import NO_HEADERS, Handler, Headers, Received, Responder

log = logging.getLogger(__name__)

ERROR = "Gpubus-Error"
"""Header of a reply that carries no answer: why the responder failed."""

WAITING_LIMIT = 8192
"""Core messages that may wait for one handler: 4 seconds of heartbeats and usage from 1,000 nodes."""

RESPONDERS_LIMIT = 1024
"""Requests in work at once for one responder; the next is told to come back."""

GRACE_S = 2.0

Reply = Callable[[bytes, Headers], None]


class OrderedHandler:
    """One subscription's worker: in order, one at a time."""

    def __init__(self, name: str, handler: Handler, counts: Counter[str], *, grace_s: float = GRACE_S) -> None:
        self._name = name
        self._handler = handler
        self._counts = counts
        self._grace_s = grace_s
        self._waiting: deque[Received] = deque(maxlen=WAITING_LIMIT)
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def put(self, message: Received) -> None:
        """Hand a message over; never blocks."""
        if len(self._waiting) == WAITING_LIMIT:
            self._counts["handler-overrun"] += 1
        self._waiting.append(message)
        self._wake.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"handle {self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._waiting.clear()
        self._wake.set()
        if self._task is not None:
            await finish({self._task}, self._grace_s if kind is None else 0.0)

    async def _run(self) -> None:
        while not self._stopping:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._handle(self._waiting.popleft())

    async def _handle(self, message: Received) -> None:
        try:
            await self._handler(message)
        except Exception:
            self._counts["handler-failed"] += 1
            log.exception("the handler of %s failed on a message of %s", self._name, message.subject)


class ResponderPool:
    """One responder's tasks: each request in its own."""

    def __init__(self, name: str, responder: Responder, counts: Counter[str], *, grace_s: float = GRACE_S) -> None:
        self._name = name
        self._responder = responder
        self._counts = counts
        self._grace_s = grace_s
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, message: Received, reply: Reply) -> None:
        """Start answering; never blocks."""
        if len(self._tasks) >= RESPONDERS_LIMIT:
            self._counts["responder-busy"] += 1
            reply(b"", {ERROR: f"busy: {RESPONDERS_LIMIT} requests are in work"})
            return
        task = asyncio.create_task(self._answer(message, reply), name=f"respond {self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await finish(set(self._tasks), self._grace_s if kind is None else 0.0)

    async def _answer(self, message: Received, reply: Reply) -> None:
        data, headers = b"", NO_HEADERS
        try:
            data = await self._responder(message)
        except asyncio.CancelledError:
            self._send(reply, b"", {ERROR: "stopping"})
            raise
        except Exception as error:
            self._counts["responder-failed"] += 1
            log.exception("the responder of %s failed on %s", self._name, message.subject)
            headers = {ERROR: f"{type(error).__name__}: {error}"[:512]}
        self._send(reply, data, headers)

    def _send(self, reply: Reply, data: bytes, headers: Headers) -> None:
        try:
            reply(data, headers)
        except Exception as error:  # noqa: BLE001 - an answer that cannot be sent must not end the pool
            self._counts["reply-failed"] += 1
            log.warning("an answer on %s could not be sent: %s", self._name, error)


async def finish(tasks: set[asyncio.Task[None]], grace_s: float) -> None:
    """Wait for tasks for a while, then cancel and await the rest."""
    if tasks and grace_s > 0:
        await asyncio.wait(tasks, timeout=grace_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
