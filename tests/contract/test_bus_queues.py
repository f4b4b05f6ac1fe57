"""Work queues, on both buses: kept without a taker, oldest first, one taker at a time, again when nobody settles."""

from __future__ import annotations

import asyncio

import pytest

from bus.client import connect
from bus.protocol import Bus, Delivery, Taking
from contracts.subjects import CALLS
from tests.contract.bus_worlds import World
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

CALL, QUEUE = CALLS.subject(namespace="ns", function="f"), "ns_f"


async def queue(bus: Bus, *, ack_wait_s: float = 30.0) -> None:
    await bus.ensure_queue(CALLS.stream, QUEUE, subject=CALL, ack_wait_s=ack_wait_s)


async def state(bus: Bus) -> tuple[int, int]:
    """Waiting and outstanding."""
    found = await bus.queue_state(CALLS.stream, QUEUE)
    assert found is not None
    return found.waiting, found.outstanding


async def taken(taking: Taking) -> Delivery:
    async with asyncio.timeout(10):
        return await taking.next()


async def becomes(bus: Bus, waiting: int, outstanding: int) -> None:
    async def so() -> bool:
        return await state(bus) == (waiting, outstanding)

    await wait_until(so, what=f"{waiting} waiting, {outstanding} outstanding", timeout_s=10.0)


async def test_what_was_stored_before_there_was_a_queue_is_handed_out_oldest_first(bus: Bus) -> None:
    """And of other subjects nothing."""
    for number in range(3):
        await bus.store(CALL, b"%d" % number)
        await bus.store(CALLS.subject(namespace="ns", function="g"), b"other")
    assert await bus.queue_state(CALLS.stream, QUEUE) is None
    await queue(bus)
    await queue(bus)
    assert await state(bus) == (3, 0)
    async with bus.take(CALLS.stream, QUEUE) as taking:
        found = [await taken(taking) for _ in range(3)]
    assert [(d.message.data, d.attempt, d.message.subject) for d in found] == [(b"%d" % n, 1, CALL) for n in range(3)]
    assert found[0].message.stored_at > 0
    assert await state(bus) == (0, 3)


async def test_settled_is_gone_and_the_rest_comes_back_before_what_is_new(bus: Bus) -> None:
    """`done` and `never` end it, `again` hands it out at once, counted."""
    await queue(bus)
    for number in range(4):
        await bus.store(CALL, b"%d" % number)
    async with bus.take(CALLS.stream, QUEUE) as taking:
        first, second, third = [await taken(taking) for _ in range(3)]
        bus.settle(first, "done")
        bus.settle(second, "again")
        bus.settle(third, "never")
        await becomes(bus, 1, 1)
        again, fourth = await taken(taking), await taken(taking)
    assert (again.message.data, again.attempt) == (b"1", 2)
    assert (fourth.message.data, fourth.attempt) == (b"3", 1)
    kept = await bus.queue_state(CALLS.stream, QUEUE)
    assert kept is not None
    assert kept.delivered == 5


async def test_what_a_taker_dies_over_goes_to_another(world: World, bus: Bus) -> None:
    """Its time is up; one that says that it is still working keeps it."""
    await queue(bus, ack_wait_s=1.0)
    await bus.store(CALL, b"heavy")
    await bus.store(CALL, b"long")
    other = await world.client("other")
    async with bus.take(CALLS.stream, QUEUE) as dying, other.take(CALLS.stream, QUEUE) as living:
        heavy, long = await taken(dying), await taken(living)
        assert (heavy.message.data, long.message.data) == (b"heavy", b"long")
        waiting = asyncio.create_task(living.next())
        while not waiting.done():
            other.settle(long, "working")
            await asyncio.sleep(0.1)
        again = await waiting
    assert (again.message.data, again.attempt) == (b"heavy", 2)


async def test_a_taker_waits_for_a_queue_that_is_made_later(world: World, bus: Bus) -> None:
    other = await world.client("other")
    async with other.take(CALLS.stream, QUEUE) as taking:
        waiting = asyncio.create_task(taken(taking))
        await bus.store(CALL, b"x")
        await asyncio.sleep(0)
        await queue(bus)
        assert (await waiting).message.data == b"x"


async def test_what_was_on_its_way_to_one_who_stops_is_told_and_not_lost(bus: Bus) -> None:
    """A cancelled wait leaves a question in the air; `rest` is its answer, and afterwards nothing is taken."""
    await queue(bus)
    async with bus.take(CALLS.stream, QUEUE) as taking:
        waiting = asyncio.create_task(taking.next())
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await bus.store(CALL, b"late")
        rest = await taking.rest()
        await becomes(bus, *((0, 1) if rest else (1, 0)))
        if rest is None:
            rest = await taken(taking)
        assert (rest.message.data, rest.attempt) == (b"late", 1)


@pytest.mark.nats
async def test_a_queue_survives_the_server(nats_server: NatsServer) -> None:
    """What was kept and what was handed out is known after a crash, and taking goes on by itself."""
    async with connect(nats_server.url, name="one") as bus:
        await bus.ensure_streams()
        await queue(bus, ack_wait_s=1.0)
        await bus.store(CALL, b"before")
        async with bus.take(CALLS.stream, QUEUE) as taking:
            before = await taken(taking)
            await bus.store(CALL, b"waits")
            await nats_server.kill()
            await nats_server.restart()
            found = {(await taken(taking)).message.data for _ in range(2)}
        assert found == {before.message.data, b"waits"}
