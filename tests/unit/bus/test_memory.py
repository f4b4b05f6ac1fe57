"""The bus in memory under faults, on a virtual clock: what is lost, what is unknown, and who hears of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import looptime
import pytest

from bus.memory import Fault, InMemoryBus, MemoryServer
from bus.protocol import BusUnavailable, Outgoing, Received, Stored
from contracts.subjects import LEDGER

pytestmark = pytest.mark.looptime

STREAM, HEAD = "GPUBUS_LEDGER", LEDGER.subject(pool="p")


async def two() -> tuple[MemoryServer, InMemoryBus, InMemoryBus]:
    server = MemoryServer()
    one, other = InMemoryBus(server, "one"), InMemoryBus(server, "other")
    await one.ensure_streams()
    return server, one, other


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(("lose", "kept"), [("before", 0), ("after", 1)])
async def test_a_lost_round_trip_is_unknown_after_its_timeout(lose: str, kept: int) -> None:
    """Lost on the way there: nothing kept. Lost on the way back: kept, but the caller cannot know."""
    server, one, _ = await two()
    server.fault = lambda client, kind, _: Fault(lose=lose if (client, kind) == ("one", "store") else "")  # type: ignore[arg-type]
    began = now()
    with pytest.raises(BusUnavailable):
        await one.store(HEAD, b"x", message_id="m", timeout_s=2.0)
    server.fault = lambda *_: Fault()

    assert now() - began == pytest.approx(2.0)
    assert await one.last_sequence(STREAM) == kept
    assert await one.store(HEAD, b"x", message_id="m") == Stored(sequence=1, duplicate=bool(kept))


async def test_delay_is_time_on_the_loops_clock() -> None:
    """A second each way; an answer later than the timeout is unknown though it took effect."""
    server, one, _ = await two()
    server.fault = lambda _client, _kind, _subject: Fault(delay_s=1.0)
    began = now()
    await one.store(HEAD, b"x", timeout_s=5.0)

    assert now() - began == pytest.approx(2.0)
    with pytest.raises(BusUnavailable):
        await one.store(HEAD, b"y", timeout_s=1.5)
    assert server.streams[STREAM].last_sequence == 2


async def test_a_lost_connection_ends_calls_and_comes_back() -> None:
    """In flight: unknown, at once. New: refused. Readers wait and go on; subscriptions hear again."""
    server, one, other = await two()
    heard: list[bytes] = []
    seen: list[int] = []

    async def handle(message: Received) -> None:
        heard.append(message.data)

    async def follow() -> None:
        async with contextlib.aclosing(one.read(STREAM)) as reading:
            async for batch in reading:
                seen.extend(m.sequence for m in batch.messages)

    following = asyncio.create_task(follow())
    async with one.subscribe("core.x", handle):
        server.fault = lambda client, kind, _: Fault(delay_s=10.0 if (client, kind) == ("one", "store") else 0.0)
        flight = asyncio.create_task(one.store(HEAD, b"in flight", timeout_s=60))
        await asyncio.sleep(1)
        one.drop()
        with pytest.raises(BusUnavailable, match="unknown"):
            await flight
        with pytest.raises(BusUnavailable, match="not connected"):
            await one.publish("core.x", b"")
        await other.publish("core.x", b"missed")
        await other.store(HEAD, b"meanwhile")
        await asyncio.sleep(1)
        assert (seen, one.connected) == ([], False)
        one.restore()
        await other.publish("core.x", b"heard")
        await asyncio.sleep(1)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

    assert (seen, heard) == ([1], [b"heard"])


async def test_a_reply_that_comes_twice_is_one_reply() -> None:
    """The second answer to a request disturbs nobody."""
    server, one, other = await two()
    server.fault = lambda _client, kind, _subject: Fault(repeat_reply=kind == "request")

    async def answer(message: Received) -> bytes:
        return message.data

    async with other.respond("ask.x", answer):
        assert [(await one.request("ask.x", data)).data for data in (b"1", b"2")] == [b"1", b"2"]


async def test_a_store_of_many_is_lost_or_kept_as_a_whole() -> None:
    """One round trip: all unknown when it is lost."""
    server, one, _ = await two()
    server.fault = lambda *_: Fault(lose="before")
    results = await one.store_many([Outgoing(subject=HEAD, data=b"x")] * 3)

    assert all(isinstance(result, BusUnavailable) for result in results)
    assert server.streams[STREAM].last_sequence == 0


async def test_a_message_id_is_forgotten_after_the_window() -> None:
    """Two minutes on the loop's clock."""
    _, one, _ = await two()
    await one.store(HEAD, b"x", message_id="m")
    await asyncio.sleep(119)
    assert (await one.store(HEAD, b"x", message_id="m")).duplicate
    await asyncio.sleep(2)
    assert await one.store(HEAD, b"x", message_id="m") == Stored(sequence=2)


async def _race() -> list[tuple[int, bytes]]:
    server, one, other = await two()
    turn = itertools.count()
    server.fault = lambda *_: Fault(delay_s=(next(turn) * 7919 % 13) / 100)

    async def author(bus: InMemoryBus, name: str) -> None:
        for number in range(20):
            await bus.store(HEAD, f"{name}-{number}".encode(), timeout_s=9)

    await asyncio.gather(*(author(bus, f"{bus.name}{i}") for i in range(2) for bus in (one, other)))
    return [(m.sequence, m.data) for m in server.streams[STREAM].page(">", 1, 1000)]


@pytest.mark.looptime(False)
def test_equal_runs_are_equal() -> None:
    """Four authors racing through faults that depend on their order give the same stream on each new loop."""
    runs = []
    for _ in range(3):
        with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
            runs.append(runner.run(_race()))

    assert len(runs[0]) == 80
    assert runs[0] == runs[1] == runs[2]
