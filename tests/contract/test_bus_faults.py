"""The bus while its server is killed, frozen, restarted: nothing hangs, is lost or doubled, and all comes back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Self

import pytest
import pytest_asyncio

from bus.client import NatsBus, connect
from bus.protocol import Bus, BusError, BusUnavailable, Outgoing, Received
from tests.contract.bus_worlds import HEAD, LEDGER_STREAM, collect
from tests.servers.natsd import NatsCluster, NatsServer
from tests.servers.process import wait_until

pytestmark = pytest.mark.nats


@pytest_asyncio.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[NatsBus]:
    async with connect(nats_server.url, name="test") as one:
        await one.ensure_streams()
        yield one


async def echo(message: Received) -> bytes:
    return b"re:" + message.data


async def until(condition: Callable[[], bool], within_s: float) -> float:
    """Wait for a condition; how long it took."""
    began = time.monotonic()

    async def holds() -> bool:
        return condition()

    await wait_until(holds, what="the condition", timeout_s=within_s, every_s=0.005)
    return time.monotonic() - began


class Follower:
    """A reader in a task, and what it has seen."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.seen: list[Received] = []
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self._follow(), name="follower")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def _follow(self) -> None:
        async with contextlib.aclosing(self.bus.read(LEDGER_STREAM)) as reading:
            async for batch in reading:
                self.seen += batch.messages

    @property
    def sequences(self) -> list[int]:
        return [m.sequence for m in self.seen]


async def store_until_kept(bus: Bus, data: bytes) -> int:
    """The caller's retry: the same message id until the outcome is known."""
    while True:
        try:
            return (await bus.store(HEAD, data, message_id=data.decode(), timeout_s=1.0)).sequence
        except BusUnavailable:
            await asyncio.sleep(0.02)


async def test_a_killed_server_costs_no_message(bus: NatsBus, nats_server: NatsServer) -> None:
    """Four times kill -9 under load: what was acknowledged is read once, in order, without a gap."""
    async with Follower(bus) as follower:
        stop = asyncio.Event()

        async def writer() -> list[int]:
            kept = []
            while not stop.is_set():
                kept.append(await store_until_kept(bus, b"m%d" % len(kept)))
            return kept

        writing = asyncio.create_task(writer())
        for _ in range(4):
            await asyncio.sleep(0.4)
            await nats_server.restart()
        await asyncio.sleep(0.3)
        stop.set()
        kept = await writing
        await until(lambda: len(follower.seen) >= kept[-1], 5)

    assert list(range(1, len(kept) + 1)) == kept
    assert kept == follower.sequences
    assert [b"m%d" % i for i in range(len(kept))] == [m.data for m in follower.seen]
    assert bus.counts["connection-lost"] == 4


async def test_messages_flow_within_five_seconds_of_a_restart(bus: NatsBus, nats_server: NatsServer) -> None:
    """From the port answering to a message stored and read, with a responder and a subscription back as well."""
    heard: list[Received] = []

    async def handle(message: Received) -> None:
        heard.append(message)

    async with Follower(bus) as follower, bus.respond("gpubus.v1.ask.x", echo), bus.subscribe("core.x", handle):
        await bus.store(HEAD, b"before")
        await nats_server.kill()
        await until(lambda: not bus.connected, 5)
        await asyncio.sleep(1.0)
        await nats_server.start()
        began = time.monotonic()
        await store_until_kept(bus, b"after")
        await until(lambda: len(follower.seen) == 2, 5)
        took = time.monotonic() - began
        assert (await bus.request("gpubus.v1.ask.x", b"?")).data == b"re:?"
        await bus.publish("core.x", b"")
        await until(lambda: len(heard) == 1, 2)

    assert took < 5.0


async def test_a_store_with_an_id_is_not_doubled_by_a_restart(bus: NatsBus, nats_server: NatsServer) -> None:
    """Dedup lives in the stream: the same id after kill -9 is a duplicate."""
    await bus.store(HEAD, b"x", message_id="m")
    await nats_server.restart()
    sequence = None
    while sequence is None:
        with contextlib.suppress(BusUnavailable):
            sequence = await bus.store(HEAD, b"x", message_id="m")
        await asyncio.sleep(0.02)

    assert (sequence.sequence, sequence.duplicate) == (1, True)
    assert await bus.last_sequence(LEDGER_STREAM) == 1


async def test_a_frozen_server_is_noticed_within_six_seconds(bus: NatsBus, nats_server: NatsServer) -> None:
    """SIGSTOP: `connected` turns false, calls fail at once; after SIGCONT all goes on by itself."""
    async with Follower(bus) as follower:
        await bus.store(HEAD, b"before")
        nats_server.freeze()
        took = await until(lambda: not bus.connected, 6)
        took += await until(lambda: not bus._client.is_connected, 6)  # a missed echo is told before the socket goes
        with pytest.raises(BusUnavailable):
            await bus.store(HEAD, b"lost")
        with pytest.raises(BusUnavailable):
            await bus.publish("core.x", b"lost")
        nats_server.thaw()
        await until(lambda: bus.connected, 5)
        await store_until_kept(bus, b"after")
        await until(lambda: len(follower.seen) >= 2, 5)

    assert took < 6.0
    assert [m.data for m in follower.seen] == [b"before", b"after"]


async def test_nothing_of_a_lost_connection_is_sent_later(bus: NatsBus, nats_server: NatsServer) -> None:
    """What was told to be unknown does not turn up minutes later, out of a buffer, on the next connection."""
    nats_server.freeze()
    with contextlib.suppress(BusUnavailable):
        for _ in range(400):
            await bus.publish(HEAD, b"x" * 100_000)
            await asyncio.sleep(0.001)
    assert bus._client._pending
    await until(lambda: not bus._client.is_connected, 6)
    await nats_server.restart()
    await until(lambda: bus.connected, 5)

    assert await bus._client.echo(1.0)
    assert await bus.last_sequence(LEDGER_STREAM) == 0


async def test_cancellation_ends_calls_towards_a_frozen_server(bus: NatsBus, nats_server: NatsServer) -> None:
    """publish, store, request, last, subscribe, read: each ends within a moment when it is cancelled."""

    async def keep_publishing() -> None:
        while True:
            await bus.publish("core.x", b"x" * 100_000)
            await asyncio.sleep(0)

    async def subscribe() -> None:
        async with bus.subscribe("core.x", echo):
            pass

    async def read() -> None:
        await anext(bus.read(LEDGER_STREAM))

    calls = [
        bus.store(HEAD, b"", timeout_s=60),
        bus.request("core.y", b"", timeout_s=60),
        bus.last(LEDGER_STREAM, HEAD),
        keep_publishing(),
        subscribe(),
        read(),
    ]
    nats_server.freeze()
    tasks = {asyncio.create_task(call) for call in calls}
    await asyncio.sleep(0.3)
    for task in tasks:
        task.cancel()
    done, pending = await asyncio.wait(tasks, timeout=0.5)

    assert not pending
    assert all(task.cancelled() or isinstance(task.exception(), BusError) for task in done)
    assert sum(task.cancelled() for task in done) >= 5


async def test_calls_in_flight_hear_of_a_lost_connection(bus: NatsBus, nats_server: NatsServer) -> None:
    """Unknown, at once: nobody waits out a timeout for an answer that cannot come."""
    nats_server.freeze()
    calls = [asyncio.create_task(call) for call in (bus.store(HEAD, b"", timeout_s=60), bus.last(LEDGER_STREAM, HEAD))]
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await nats_server.kill()
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(result) for result in results] == [BusUnavailable, BusUnavailable]
    assert "unknown" in str(results[0])
    assert time.monotonic() - began < 5.0


async def test_a_reader_that_was_busy_during_a_restart(bus: NatsBus, nats_server: NatsServer) -> None:
    """Lost and connected again while a batch was in work: the next message comes at once, not after the heartbeats."""
    await bus.store(HEAD, b"before")
    async with contextlib.aclosing(bus.read(LEDGER_STREAM)) as reading:
        await anext(reading)
        await nats_server.restart()
        await until(lambda: bus._client.generation == 1 and bus.connected, 5)
        await store_until_kept(bus, b"after")
        began = time.monotonic()
        batch = await anext(reading)

    assert [m.data for m in batch.messages] == [b"after"]
    assert time.monotonic() - began < 3.0


async def test_a_deadline_of_the_caller_holds(bus: NatsBus, nats_server: NatsServer) -> None:
    """`asyncio.timeout` around a call towards a frozen server raises TimeoutError in time, not success."""
    nats_server.freeze()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await bus.store(HEAD, b"", timeout_s=60)

    assert time.monotonic() - began < 5.0


async def test_closing_does_not_wait_for_a_frozen_server(nats_server: NatsServer) -> None:
    """Leaving `connect` takes a second or so, with unsent bytes in every buffer."""
    async with connect(nats_server.url, name="t") as bus:
        nats_server.freeze()
        with contextlib.suppress(BusUnavailable):
            for _ in range(400):
                await bus.publish("core.x", b"x" * 100_000)
        began = time.monotonic()

    assert time.monotonic() - began < 4.0
    assert bus.closed.is_set()


async def test_the_last_publish_before_closing_is_sent(nats_server: NatsServer, bus: NatsBus) -> None:
    """Leaving `connect` lets out what was published just before."""
    async with connect(nats_server.url, name="t") as leaving:
        for number in range(100):
            await leaving.publish(HEAD, b"%d" % number)

    async def kept() -> bool:
        return len(await collect(bus, LEDGER_STREAM)) == 100

    await wait_until(kept, what="all hundred in the stream", timeout_s=5.0)


@pytest.mark.parametrize("dead", [["_reading_task"], ["_flusher_task"], ["_reading_task", "_ping_interval_task"]])
async def test_dead_tasks_at_the_socket_are_replaced(bus: NatsBus, dead: list[str]) -> None:
    """The stock client stays "connected" without a read loop; ours says no and connects again."""
    for name in dead:
        getattr(bus._client, name).cancel()
    await until(lambda: not bus.connected, 1)
    await until(lambda: bus.connected, 6)

    assert (await bus.store(HEAD, b"x")).sequence == 1
    assert bus.counts["connection-lost"] == 1


async def test_reading_in_bulk_needs_one_consumer(bus: NatsBus) -> None:
    """Pulls that end because they were served, by number or by bytes, are no reason to begin again."""
    await bus.store_many([Outgoing(subject=HEAD, data=b"x" * 100) for _ in range(2500)])
    await bus.store_many([Outgoing(subject=HEAD, data=b"x" * 900_000) for _ in range(30)])
    found = await collect(bus, LEDGER_STREAM)

    assert [m.sequence for m in found] == list(range(1, 2531))
    assert bus.counts["read-again"] == 0


async def test_a_consumer_deleted_under_a_reader(bus: NatsBus) -> None:
    """The server's consumer is a throw-away: the reader makes another and goes on without a gap."""
    async with Follower(bus) as follower:
        for number in range(30):
            await bus.store(HEAD, b"%d" % number)
            if number % 10 == 5:
                await until(lambda n=number: len(follower.seen) == n + 1, 5)
                listed = json.loads((await bus.request(f"$JS.API.CONSUMER.NAMES.{LEDGER_STREAM}", b"")).data)
                for name in listed["consumers"]:
                    await bus.request(f"$JS.API.CONSUMER.DELETE.{LEDGER_STREAM}.{name}", b"")
        await until(lambda: len(follower.seen) >= 30, 10)

    assert list(range(1, 31)) == follower.sequences
    assert bus.counts["read-again"] == 3


async def test_waiting_for_a_server_costs_little(bus: NatsBus, nats_server: NatsServer) -> None:
    """Half a second between tries, not a busy loop, and no growing table."""
    await nats_server.kill()
    await until(lambda: not bus.connected, 2)
    errors, cpu = bus.counts["error"], time.process_time()
    await asyncio.sleep(3.0)

    assert 3 <= bus.counts["error"] - errors <= 20
    assert time.process_time() - cpu < 0.5


async def test_calls_without_an_answer_leave_nothing_behind(bus: NatsBus, nats_server: NatsServer) -> None:
    """Timed out, refused while disconnected, cancelled: no entry stays in the table of calls."""
    await nats_server.kill()
    for number in itertools.count():
        with contextlib.suppress(BusUnavailable):
            await bus.store(HEAD, b"x", timeout_s=0.001)
        if number > 3000 and not bus.connected:
            break

    assert bus._client._calls == {}
    assert bus._client._pending_data_size == 0


@pytest.mark.slow
async def test_a_killed_leader_of_three_costs_no_message(nats_cluster: NatsCluster) -> None:
    """R3: kill -9 of the ledger's leader; stores go on after the election, readers see no gap and no double."""
    async with connect(nats_cluster.urls, name="t") as bus:
        await bus.ensure_streams(replicas=3)
        async with Follower(bus) as follower:
            kept = [await store_until_kept(bus, b"m%d" % i) for i in range(50)]
            info = json.loads((await bus.request(f"$JS.API.STREAM.INFO.{LEDGER_STREAM}", b"")).data)
            leader = next(s for s in nats_cluster.servers if s.name == info["cluster"]["leader"])
            await leader.kill()
            async with asyncio.timeout(30):
                kept += [await store_until_kept(bus, b"m%d" % i) for i in range(50, 100)]
            await leader.start()
            await until(lambda: len(follower.seen) >= 100, 20)
            again = await bus.store(HEAD, b"m99", message_id="m99", expected_last=kept[-2], timeout_s=10)

    assert list(range(1, 101)) == kept
    assert (again.sequence, again.duplicate) == (100, True)  # unreplicated it would be a conflict
    assert kept == follower.sequences
