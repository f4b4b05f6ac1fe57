"""How blocking card calls are made from the event loop: each lane in a thread of its own, or straight in the loop.

A call into a driver can hang for minutes and cannot be interrupted. Who waits then gives up waiting, not the call: the
thread is left behind with it, and its lane takes no further call until it comes back. So a hanging card costs one
thread and no pile of them, and the lanes of other cards go on. The threads are daemons: they do not hold up the end of
the process.

`Inline` is for providers that never block, above all on virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Lane = str | int
"""`driver` and the like, or a seat."""


class Runner(Protocol):
    """Makes calls; one after the other in each lane."""

    def start(self, lane: Lane, function: Callable[[], T]) -> asyncio.Future[T]:
        """What the function will return or raise. The caller waits for it before it starts the lane's next one."""
        ...

    def stop(self) -> None:
        """No more calls; those that still hang are left behind."""
        ...


class Inline:
    """Calls at once, in the event loop."""

    def start(self, lane: Lane, function: Callable[[], T]) -> asyncio.Future[T]:  # noqa: ARG002 - the port's name
        """The result is there when this returns."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieved)
        _outcome(function, answer)()
        return answer

    def stop(self) -> None:
        """Nothing to stop."""


class CardThreads:
    """One daemon thread per lane, made at its first call."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, _LaneThread] = {}

    def start(self, lane: Lane, function: Callable[[], T]) -> asyncio.Future[T]:
        """As the port says."""
        if lane not in self._lanes:
            self._lanes[lane] = _LaneThread(f"cards {lane}")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieved)
        self._lanes[lane].jobs.put((function, answer))
        return answer

    def stop(self) -> None:
        """Each thread ends when its present call comes back."""
        for lane in self._lanes.values():
            lane.jobs.put(None)
        self._lanes.clear()


class _LaneThread:
    def __init__(self, name: str) -> None:
        self.jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
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
