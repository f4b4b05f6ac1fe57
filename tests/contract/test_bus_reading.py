"""Reading, on both buses: in order, without gaps, for ever, and the end of it when the stream is another one."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from bus.protocol import Batch, Bus, Outgoing, StreamMismatch
from tests.contract.bus_worlds import HEAD, LEDGER_STREAM, World, collect, numbers


async def test_reading_everything_in_order(bus: Bus) -> None:
    """From the first message on, without gaps, in batches of at most the size asked for; the last one is caught up."""
    await numbers(bus, 25)
    batches: list[Batch] = []
    async with contextlib.aclosing(bus.read(LEDGER_STREAM, batch=10)) as reading:
        async for batch in reading:
            batches.append(batch)
            if batch.caught_up:
                break

    assert list(range(1, 26)) == [m.sequence for b in batches for m in b.messages]
    assert [b"%d" % i for i in range(25)] == [m.data for b in batches for m in b.messages]
    assert all(0 < len(b.messages) <= 10 for b in batches)
    assert [False] * (len(batches) - 1) == [b.caught_up for b in batches[:-1]]


@pytest.mark.parametrize("already", [0, 3])
async def test_at_the_end_the_first_batch_is_empty_and_caught_up(bus: Bus, already: int) -> None:
    """A reader at the end of a stream says so at once."""
    await numbers(bus, already)
    async with contextlib.aclosing(bus.read(LEDGER_STREAM, from_sequence=already + 1)) as reading, asyncio.timeout(5):
        assert await anext(reading) == Batch(messages=(), caught_up=True)


async def test_reading_goes_on_for_ever(bus: Bus) -> None:
    """What is stored later comes later, and each batch at the end is caught up."""
    await numbers(bus, 2)
    async with contextlib.aclosing(bus.read(LEDGER_STREAM)) as reading, asyncio.timeout(10):
        assert len((await anext(reading)).messages) == 2
        for number in range(3, 20):
            await bus.store(HEAD, b"x")
            batch = await anext(reading)
            assert ([number], True) == ([m.sequence for m in batch.messages], batch.caught_up)


async def test_reading_from_the_middle(bus: Bus) -> None:
    """`from_sequence` is the first one wanted."""
    await numbers(bus, 5)

    assert [m.sequence for m in await collect(bus, LEDGER_STREAM, from_sequence=4)] == [4, 5]


async def test_reading_one_subject(bus: Bus) -> None:
    """A pattern selects; the first batch of a pattern without messages is empty and caught up."""
    for number in range(6):
        await bus.store(f"gpubus.v1.events.ns{number % 2}.r{number}", b"")

    assert [m.sequence for m in await collect(bus, "GPUBUS_EVENTS", subject="gpubus.v1.events.ns1.*")] == [2, 4, 6]
    assert [m.sequence for m in await collect(bus, "GPUBUS_EVENTS", subject="gpubus.v1.events.ns1.r3")] == [4]
    assert await collect(bus, "GPUBUS_EVENTS", subject="gpubus.v1.events.ns9.>") == []


async def test_readers_are_independent(world: World, bus: Bus) -> None:
    """Several readers, also of one client, each get everything."""
    await numbers(bus, 50)
    other = await world.client("two")

    found = await asyncio.gather(*(collect(b, LEDGER_STREAM, batch=7) for b in (bus, bus, other)))

    assert [list(range(1, 51))] * 3 == [[m.sequence for m in one] for one in found]


async def test_a_slow_reader_gets_everything(bus: Bus) -> None:
    """Storing goes on while a batch is in work; nothing is lost or doubled."""
    await bus.store_many([Outgoing(subject=HEAD, data=b"%d" % i) for i in range(300)])
    seen: list[int] = []
    async with contextlib.aclosing(bus.read(LEDGER_STREAM, batch=20)) as reading, asyncio.timeout(20):
        async for batch in reading:
            seen += [m.sequence for m in batch.messages]
            if len(seen) < 600:
                await bus.store_many([Outgoing(subject=HEAD, data=b"x") for _ in range(20)])
            if batch.caught_up and len(seen) >= 600:
                break

    assert list(range(1, len(seen) + 1)) == seen


async def test_a_position_behind_the_end_is_another_stream(bus: Bus) -> None:
    """Who has read up to 10 and finds an end at 2 must not wait for 11."""
    await numbers(bus, 2)
    with pytest.raises(StreamMismatch) as caught:
        await anext(bus.read(LEDGER_STREAM, from_sequence=11))

    assert (
        caught.value.stream,
        caught.value.field,
        caught.value.wanted,
        caught.value.found,
    ) == (LEDGER_STREAM, "last_seq", 10, 2)


async def test_a_stream_made_again_ends_its_readers(world: World, bus: Bus) -> None:
    """The sequences begin anew, so whoever folds the stream must as well."""
    await numbers(bus, 2)
    async with contextlib.aclosing(bus.read(LEDGER_STREAM)) as reading, asyncio.timeout(20):
        assert len((await anext(reading)).messages) == 2
        await world.recreate(LEDGER_STREAM)
        await numbers(bus, 5)
        with pytest.raises(StreamMismatch):
            await anext(reading)


async def test_leaving_a_reader_that_waits(bus: Bus) -> None:
    """A reader that waits for the next message ends at once when its task is cancelled."""

    async def follow() -> None:
        async with contextlib.aclosing(bus.read(LEDGER_STREAM)) as reading:
            async for _ in reading:
                started.set()

    started = asyncio.Event()
    task = asyncio.create_task(follow())
    await started.wait()
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=2)

    assert done == {task}
    assert task.cancelled()
