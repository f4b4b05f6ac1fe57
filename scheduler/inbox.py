"""What waits to be decided: inputs in arrival order, and the pressure they put back on whoever reads them.

An input is kept until the commit that answers it is stored; when that commit is lost, its inputs go back to the front
in their old order and are decided again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from bus.protocol import Received
from contracts.decisions import HealthSet
from contracts.inventory import CordonCard, NodeFacts, NodeInventory
from contracts.outcomes import Outcome
from contracts.quotas import NamespaceQuota
from scheduler.core.engine import Answer


class FromStream(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the requests stream; its sequence moves the committed position."""

    namespace: str
    message: Received


class FromCaller(msgspec.Struct, frozen=True, kw_only=True):
    """A submit; `answer` is set after the commit."""

    namespace: str
    message: Received
    answer: asyncio.Future[Answer]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something seen, in Kubernetes, on a node or by our own watch."""

    seen: Outcome | NodeInventory | NodeFacts | CordonCard | HealthSet | NamespaceQuota


class StillHere(msgspec.Struct, frozen=True):
    """Write a commit even if it is empty.

    After a day without one, so that the log never ages out whole; and every few seconds while somebody has a place in
    sight, because the clock of decisions is that of the last commit.
    """


Input = FromStream | FromCaller | Fact | StillHere


class Inbox:
    """A queue that tells when there is something, and when there is room."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._items: deque[Input] = deque()
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Inbox({len(self._items)} of {self.limit})"

    @property
    def full(self) -> bool:
        """Whether a new caller should come back later."""
        return len(self._items) >= self.limit

    def put(self, item: Input) -> None:
        """Append; never refuses, because facts must not be lost. Readers ask `room()` first."""
        self._items.append(item)
        self._something.set()
        if self.full:
            self._room.clear()

    def put_back(self, items: Iterable[Input]) -> None:
        """To the front again, in their order."""
        self._items.extendleft(reversed(list(items)))
        if self._items:
            self._something.set()

    async def something(self) -> None:
        """Wait until there is an input."""
        await self._something.wait()

    async def room(self) -> None:
        """Wait until there is room for another batch of reading."""
        await self._room.wait()

    def take(self, most: int) -> list[Input]:
        """The oldest inputs, at most so many."""
        count = min(most, len(self._items))
        taken = [self._items.popleft() for _ in range(count)]
        if not self._items:
            self._something.clear()
        if len(self._items) < self.limit:
            self._room.set()
        return taken

    def clear(self) -> list[Input]:
        """Everything that waits, taken out."""
        return self.take(len(self._items))
