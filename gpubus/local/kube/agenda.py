"""What is to happen later: steps by time, those of the same time in the order they were planned."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import msgspec

__all__ = ["Agenda", "Step"]

Key = tuple[str, str]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do on a node, about a pod where `uid` is not empty. `act(step, now)` does it."""

    act: Callable[[Step, float], None]
    node: str
    uid: str = ""
    key: Key = ("", "")


class Agenda:
    """A queue of steps."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, Step]] = []
        self._order = itertools.count()

    @property
    def next_at(self) -> float | None:
        """When the next step is due; None when nothing is planned."""
        return self._queue[0][0] if self._queue else None

    def plan(self, at: float, step: Step) -> None:
        """Do this then."""
        heapq.heappush(self._queue, (at, next(self._order), step))

    def due(self, now: float) -> Step | None:
        """Take the next step whose time has come."""
        if self._queue and self._queue[0][0] <= now:
            return heapq.heappop(self._queue)[2]
        return None
