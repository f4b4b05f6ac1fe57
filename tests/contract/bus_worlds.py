"""Both buses for the tests: a world is a server and its clients, in memory or real. And reading a stream to its end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

from bus.client import connect
from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import Bus, Received
from contracts.subjects import LEDGER

LEDGER_STREAM, REQUESTS_STREAM, FACTS_STREAM = "GPUBUS_LEDGER", "GPUBUS_REQUESTS", "GPUBUS_FACTS"
HEAD = LEDGER.subject(pool="p")


class World(Protocol):
    """A server and its clients, whichever."""

    async def client(self, name: str) -> Bus: ...

    async def recreate(self, stream: str) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.server = MemoryServer()

    async def client(self, name: str) -> Bus:
        return InMemoryBus(self.server, name)

    async def recreate(self, stream: str) -> None:
        del self.server.streams[stream]
        self.server.create_streams()
        self.server.notify()


class NatsWorld:
    def __init__(self, url: str, stack: contextlib.AsyncExitStack) -> None:
        self.url, self.stack = url, stack

    async def client(self, name: str) -> Bus:
        return await self.stack.enter_async_context(connect(self.url, name=name))

    async def recreate(self, stream: str) -> None:
        bus = await self.client("operator")
        await bus.request(f"$JS.API.STREAM.DELETE.{stream}", b"")
        await bus.ensure_streams()


async def collect(bus: Bus, stream: str, **options: Any) -> list[Received]:
    """Everything up to the end."""
    found: list[Received] = []
    async with contextlib.aclosing(bus.read(stream, **options)) as batches, asyncio.timeout(10):
        async for batch in batches:
            found += batch.messages
            if batch.caught_up:
                return found
    raise AssertionError("a reader ended by itself")


async def numbers(bus: Bus, count: int, subject: str = HEAD) -> None:
    for number in range(count):
        await bus.store(subject, b"%d" % number)
