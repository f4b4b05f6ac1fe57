"""Asking, subscribing, typed messages and leases, on both buses."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from bus import codec, deadletter
from bus.lease import Lease
from bus.protocol import Bus, BusUnavailable, Received, StreamMismatch
from contracts.answers import AskState, StateView
from contracts.outcomes import DeadLetter
from contracts.subjects import DEAD_LETTERS, STATE
from tests.contract.bus_worlds import HEAD, LEDGER_STREAM, REQUESTS_STREAM, World, collect


async def echo(message: Received) -> bytes:
    return b"re:" + message.data


# --- asking ------------------------------------------------------------------------------------------------


async def test_a_request_gets_its_reply(world: World, bus: Bus) -> None:
    """The responder sees subject, data and headers; the asker gets the bytes."""
    seen: list[Received] = []

    async def answer(message: Received) -> bytes:
        seen.append(message)
        return b"yes"

    async with (await world.client("server")).respond("gpubus.v1.ask.x.*", answer):
        reply = await bus.request("gpubus.v1.ask.x.ns", b"?", headers={"a": "b"})

    assert reply.data == b"yes"
    assert (seen[0].subject, seen[0].data, dict(seen[0].headers)) == ("gpubus.v1.ask.x.ns", b"?", {"a": "b"})


async def test_nobody_to_ask_is_told_at_once(bus: Bus) -> None:
    """No responder: no waiting, also right after one has left."""
    async with bus.respond("gpubus.v1.ask.x", echo):
        pass
    async with asyncio.timeout(2):
        with pytest.raises(BusUnavailable):
            await bus.request("gpubus.v1.ask.x", b"", timeout_s=60)


async def test_a_responder_that_fails_answers_with_its_reason(bus: Bus) -> None:
    """The asker does not hang and the responder lives on."""

    async def fail_once(message: Received) -> bytes:
        if message.data == b"bad":
            raise KeyError("no such pool")
        return b"fine"

    async with bus.respond("gpubus.v1.ask.x", fail_once):
        with pytest.raises(BusUnavailable, match="no such pool"):
            await bus.request("gpubus.v1.ask.x", b"bad", timeout_s=5)
        assert (await bus.request("gpubus.v1.ask.x", b"good")).data == b"fine"

    assert bus.counts["responder-failed"] == 1


async def test_a_silent_responder_is_a_timeout(bus: Bus) -> None:
    """The asker's time is its own, and a late answer disturbs nobody."""
    gate = asyncio.Event()

    async def late(_: Received) -> bytes:
        await gate.wait()
        return b"late"

    async with bus.respond("gpubus.v1.ask.x", late):
        with pytest.raises(BusUnavailable):
            await bus.request("gpubus.v1.ask.x", b"", timeout_s=0.05)
        gate.set()
        assert (await bus.request("gpubus.v1.ask.x", b"")).data == b"late"


async def test_responders_do_not_wait_for_each_other(bus: Bus) -> None:
    """The second request is answered while the first is in work (a submit waits for a commit)."""
    taken, gate = asyncio.Event(), asyncio.Event()

    async def answer(message: Received) -> bytes:
        if message.data == b"slow":
            taken.set()
            await gate.wait()
        return message.data

    async with bus.respond("gpubus.v1.ask.x", answer):
        slow = asyncio.create_task(bus.request("gpubus.v1.ask.x", b"slow", timeout_s=10))
        await taken.wait()
        assert (await bus.request("gpubus.v1.ask.x", b"fast")).data == b"fast"
        gate.set()
        assert (await slow).data == b"slow"


async def test_work_in_hand_is_finished_when_leaving(bus: Bus) -> None:
    """Leaving `respond` stops taking, not answering what was taken."""
    taken = asyncio.Event()

    async def answer(_: Received) -> bytes:
        taken.set()
        await asyncio.sleep(0.05)
        return b"done"

    async with bus.respond("gpubus.v1.ask.x", answer):
        asked = asyncio.create_task(bus.request("gpubus.v1.ask.x", b""))
        await taken.wait()

    assert (await asked).data == b"done"


async def test_a_queue_group_shares_the_work(world: World, bus: Bus) -> None:
    """Each request goes to one member of the group, and a stopped member is not asked."""
    counts = [0, 0]

    def member(index: int) -> Any:
        async def answer(_: Received) -> bytes:
            counts[index] += 1
            return b""

        return answer

    two = await world.client("two")
    async with two.respond("gpubus.v1.ask.x", member(1), queue="q"):
        async with bus.respond("gpubus.v1.ask.x", member(0), queue="q"):
            for _ in range(40):
                await bus.request("gpubus.v1.ask.x", b"")
        assert sum(counts) == 40
        assert min(counts) > 0
        await bus.request("gpubus.v1.ask.x", b"")

    assert sum(counts) == 41


async def test_cancelling_a_request_ends_it(bus: Bus) -> None:
    """A cancelled call raises CancelledError in its task, at once."""

    async def never(_: Received) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with asyncio.timeout(5), bus.respond("gpubus.v1.ask.x", never):
        task = asyncio.create_task(bus.request("gpubus.v1.ask.x", b"", timeout_s=60))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait({task}, timeout=1)
        assert task.cancelled()


# --- subscribing -------------------------------------------------------------------------------------------


async def test_a_subscription_hears_its_pattern_in_order(world: World, bus: Bus) -> None:
    """From the moment the context is entered until it is left."""
    heard: list[tuple[str, bytes]] = []
    done = asyncio.Event()

    async def handle(message: Received) -> None:
        await asyncio.sleep(0)
        heard.append((message.subject, message.data))
        if message.data == b"last":
            done.set()

    two = await world.client("two")
    async with bus.subscribe("gpubus.v1.nodes.*.heartbeat", handle):
        for number in range(50):
            await two.publish(f"gpubus.v1.nodes.n{number % 3}.heartbeat", b"%d" % number)
        await two.publish("gpubus.v1.nodes.n0.usage", b"not this")
        await two.publish("gpubus.v1.nodes.n0.heartbeat", b"last")
        async with asyncio.timeout(5):
            await done.wait()
    await two.publish("gpubus.v1.nodes.n0.heartbeat", b"too late")

    assert [(f"gpubus.v1.nodes.n{n % 3}.heartbeat", b"%d" % n) for n in range(50)] == heard[:-1]


async def test_a_handler_that_raises_is_counted_and_called_again(bus: Bus) -> None:
    """One bad message does not end the subscription."""
    done = asyncio.Event()

    async def handle(message: Received) -> None:
        if message.data == b"bad":
            raise RuntimeError("boom")
        done.set()

    async with bus.subscribe("gpubus.v1.nodes.*.usage", handle), asyncio.timeout(5):
        await bus.publish("gpubus.v1.nodes.a.usage", b"bad")
        await bus.publish("gpubus.v1.nodes.a.usage", b"good")
        await done.wait()

    assert bus.counts["handler-failed"] == 1


# --- streams, typed messages, leases -----------------------------------------------------------------------


async def test_streams_are_created_once_and_only_when_asked(world: World) -> None:
    """Without `create`, missing streams are an error; creating twice changes nothing."""
    bus = await world.client("one")
    with pytest.raises(StreamMismatch):
        await bus.ensure_streams(create=False)
    await bus.ensure_streams()
    await bus.store(HEAD, b"x")
    await bus.ensure_streams()
    await bus.ensure_streams(create=False)

    assert await bus.last_sequence(LEDGER_STREAM) == 1


async def test_a_typed_question_gets_a_typed_answer(bus: Bus) -> None:
    """`ask` encodes, decodes, and names what it cannot decode."""

    async def answer(message: Received) -> bytes:
        assert isinstance(codec.decode(STATE, message), AskState)
        return b'{"type":"nonsense"}' if bad else msgspec.json.encode(view)

    view = StateView(epoch="e", ledger_sequence=1)
    bad = False
    async with bus.respond(STATE.subject(), answer):
        assert await codec.ask(bus, STATE, AskState(what="summary"), StateView) == view
        bad = True
        with pytest.raises(codec.MalformedReply, match="nonsense"):
            await codec.ask(bus, STATE, AskState(what="summary"), StateView)


async def test_a_dead_letter_is_kept_once(bus: Bus) -> None:
    """Reason, origin and capped bytes are kept; the same origin again is a duplicate."""
    received = Received(subject="gpubus.v1.requests.a", data=b"\xff" * 20_000, sequence=7, headers={"a": "b"})
    first = await deadletter.keep(bus, stream=REQUESTS_STREAM, received=received, reason="bad")
    again = await deadletter.keep(bus, stream=REQUESTS_STREAM, received=received, reason="bad")

    (kept,) = await collect(bus, "GPUBUS_DEADLETTERS")
    letter = codec.decode(DEAD_LETTERS, kept)

    assert (first.duplicate, again.duplicate) == (False, True)
    assert isinstance(letter, DeadLetter)
    assert (
        letter.origin_stream,
        letter.origin_sequence,
        letter.reason,
        letter.truncated,
    ) == (REQUESTS_STREAM, 7, "bad", True)


async def test_a_lease_has_one_holder_and_is_handed_over_when_given_back(world: World, bus: Bus) -> None:
    """The second party waits while the first is alive and takes over within a moment when it leaves."""
    two = await world.client("two")
    async with asyncio.timeout(10), Lease(two, "scheduler", "b-1") as second:
        first_term = await second.wait_acquired()
        async with Lease(bus, "scheduler", "a-1") as first:
            await asyncio.sleep(1.6)
            assert (second.held, first.held) == (True, False)
            await second.__aexit__(None, None, None)
            assert not second.held
            term = await first.wait_acquired()

    assert term > first_term
