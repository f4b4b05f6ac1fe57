"""Reading without a consumer, on both buses: the same messages in the same order as `read`, live ones at once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from bus.perusing import peruse
from bus.protocol import Bus, Received, StreamMismatch
from tests.contract.bus_worlds import FACTS_STREAM, World

pytestmark = pytest.mark.nats

PATTERN = "gpubus.v1.nodes.n1.cordon.*"


def subject(card: int) -> str:
    return f"gpubus.v1.nodes.n1.cordon.GPU-{card}"


async def to_the_end(bus: Bus, from_sequence: int = 1) -> list[Received]:
    found: list[Received] = []
    async with contextlib.aclosing(peruse(bus, FACTS_STREAM, PATTERN, from_sequence=from_sequence)) as batches:
        async for batch in batches:
            found += batch.messages
            if batch.caught_up:
                return found
    raise AssertionError("it ended by itself")


async def test_what_is_kept_is_read_in_order_and_what_is_of_others_left_out(bus: Bus) -> None:
    """Replaced messages are skipped, other subjects too, and a later position begins there."""
    for card, data in ((1, b"a"), (2, b"b"), (1, b"c")):
        await bus.store(subject(card), data)
    await bus.store("gpubus.v1.nodes.n2.cordon.GPU-1", b"another's")
    assert [(m.subject, m.data, m.sequence) for m in await to_the_end(bus)] == [
        (subject(2), b"b", 2),
        (subject(1), b"c", 3),
    ]
    assert [m.data for m in await to_the_end(bus, from_sequence=3)] == [b"c"]


async def test_a_live_message_comes_at_once_with_its_sequence(bus: Bus) -> None:
    """Long before the next look of its own."""
    async with contextlib.aclosing(peruse(bus, FACTS_STREAM, PATTERN, poll_s=3600)) as batches:
        assert (await anext(batches)).caught_up
        coming = asyncio.create_task(anext(batches))
        await asyncio.sleep(0.05)
        await bus.store(subject(1), b"now")
        (message,) = (await asyncio.wait_for(coming, 10)).messages
        assert (message.data, message.sequence) == (b"now", 1)


class SlowDisk:
    """A bus whose stream has a message only at the third look after it was sent."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self.hidden = bus, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def next(self, *args: Any, **more: Any) -> Received | None:
        found = await self._bus.next(*args, **more)
        if found is None or self.hidden == 2:
            return found
        self.hidden += 1
        return None


async def test_a_copy_that_comes_before_its_message_is_on_disk_is_looked_for_again(bus: Bus) -> None:
    """The server hands copies out first: long before the next look of its own, the message is there."""
    slow = SlowDisk(bus)
    async with contextlib.aclosing(peruse(slow, FACTS_STREAM, PATTERN, poll_s=3600)) as batches:  # type: ignore[arg-type]
        assert (await anext(batches)).caught_up
        coming = asyncio.create_task(anext(batches))
        await asyncio.sleep(0.05)
        await bus.store(subject(1), b"late")
        (message,) = (await asyncio.wait_for(coming, 20)).messages
        assert (message.data, slow.hidden) == (b"late", 2)


async def test_a_copy_that_was_missed_is_made_good(bus: Bus, world: World) -> None:
    """The position is the reader's own: a look without any live copy finds what is there."""
    other = await world.client("other")
    async with contextlib.aclosing(peruse(bus, FACTS_STREAM, PATTERN, poll_s=0.05)) as batches:
        assert (await anext(batches)).caught_up
        await other.store(subject(1), b"missed")
        async with asyncio.timeout(10):
            while not (batch := await anext(batches)).messages:
                pass
        assert batch.messages[0].data == b"missed"


async def test_another_stream_is_not_gone_on_with(bus: Bus, world: World) -> None:
    for card in range(3):
        await bus.store(subject(card), b"x")
    await world.recreate(FACTS_STREAM)
    with pytest.raises(StreamMismatch):
        await to_the_end(bus, from_sequence=4)
