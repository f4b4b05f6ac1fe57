"""What monitors say, as last heard: one usage message per node, the newest of each life of its monitor.

In: a bus. Out: the last `NodeUsage` of every node that has spoken since. A node that is silent is not in it: unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection

import msgspec

from bus.protocol import Bus, Received
from contracts import subjects
from contracts.usage import NodeUsage

LISTEN_S = 2.5
"""How long a single look listens: monitors speak every one or two seconds."""


class Hearing:
    """Made in the event loop; hears while `listening` is open."""

    def __init__(self, bus: Bus) -> None:
        self.usage: dict[str, NodeUsage] = {}
        """By node."""
        self._bus = bus
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear the monitors while the context is open."""
        async with self._bus.subscribe(subjects.USAGE.wildcard, self._hear):
            yield

    async def heard(self, nodes: Collection[str], timeout_s: float) -> None:
        """Wait until all of these have spoken, or the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.usage.keys() >= set(nodes):
                    self._news.clear()
                    await self._news.wait()

    async def _hear(self, message: Received) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            usage = msgspec.json.decode(message.data, type=NodeUsage)
            before = self.usage.get(usage.node)
            if before is None or before.incarnation != usage.incarnation or before.sequence < usage.sequence:
                self.usage[usage.node] = usage
                self._news.set()
