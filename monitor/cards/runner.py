"""How blocking card calls are made from the event loop: in one thread, each with a deadline, or straight in the loop.

A call into a driver can hang for minutes and cannot be interrupted. `CardThread` then gives up waiting, not the call:
the next caller waits for the same thread and is told how long it has been silent. There is never a second thread, so
a hanging driver costs one thread and no pile of them. The thread is a daemon, so it does not hold up the process's end.

`Inline` is for providers that never block, above all on virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from monitor.cards.protocol import DriverSilent

T = TypeVar("T")


class Runner(Protocol):
    """Makes one call after the other."""

    async def call(self, function: Callable[[], T], *, deadline_s: float) -> T:
        """What the function returns or raises; DriverSilent when it has not come back by the deadline."""
        ...

    def stop(self) -> None:
        """No more calls; one that still hangs is left behind."""
        ...


class Inline:
    """Calls at once, in the event loop."""

    async def call(self, function: Callable[[], T], *, deadline_s: float) -> T:  # noqa: ARG002 - the port's name
        """The result; there is no deadline to miss."""
        return function()

    def stop(self) -> None:
        """Nothing to stop."""


class CardThread:
    """One daemon thread. `call` is for one caller at a time."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._out: asyncio.Future[Any] | None = None
        self._out_since = 0.0
        threading.Thread(target=self._work, name="cards", daemon=True).start()

    async def call(self, function: Callable[[], T], *, deadline_s: float) -> T:
        """As the port says; a call of before that is still out is waited for first, within the same deadline."""
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline_s
        if self._out is not None:
            await self._returned(self._out, until)
        answer: asyncio.Future[T] = loop.create_future()
        answer.add_done_callback(_retrieved)
        self._out, self._out_since = answer, loop.time()
        self._jobs.put((function, answer))
        await self._returned(answer, until)
        return answer.result()

    async def _returned(self, answer: asyncio.Future[Any], until: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.wait({answer}, timeout=max(0.0, until - loop.time()))
        if not answer.done():
            raise DriverSilent(loop.time() - self._out_since)

    def stop(self) -> None:
        """The thread ends when its present call comes back."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, answer = job
            settle = _outcome(function, answer)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                answer.get_loop().call_soon_threadsafe(settle)


def _outcome(function: Callable[[], Any], answer: asyncio.Future[Any]) -> Callable[[], None]:
    """Make the call; what comes back settles the future in its loop."""
    try:
        result = function()
    except Exception as error:  # noqa: BLE001 - it is raised where the call was awaited
        return _settle(answer, answer.set_exception, error)
    return _settle(answer, answer.set_result, result)


def _settle(answer: asyncio.Future[Any], setter: Callable[[Any], None], value: object) -> Callable[[], None]:
    return lambda: None if answer.done() else setter(value)


def _retrieved(answer: asyncio.Future[Any]) -> None:
    """A late error of an abandoned call is nobody's: mark it as seen."""
    if not answer.cancelled():
        answer.exception()
