"""Handlers and responders at work: order, bounds, failures, and leaving."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from bus.protocol import Headers, Received
from bus.serving import ERROR, RESPONDERS_LIMIT, WAITING_LIMIT, OrderedHandler, ResponderPool

pytestmark = pytest.mark.looptime


def message(data: bytes = b"") -> Received:
    return Received(subject="a.b", data=data)


async def test_the_oldest_are_dropped_when_a_handler_is_too_slow() -> None:
    """Core messages may be lost; the newest are worth most, and the loss is counted."""
    handled: list[bytes] = []
    gate = asyncio.Event()

    async def handle(received: Received) -> None:
        await gate.wait()
        handled.append(received.data)

    counts: Counter[str] = Counter()
    async with OrderedHandler("x", handle, counts) as worker:
        for number in range(WAITING_LIMIT + 10):
            worker.put(message(b"%d" % number))
        gate.set()
        await asyncio.sleep(1)

    assert [b"%d" % n for n in range(10, WAITING_LIMIT + 10)] == handled
    assert counts["handler-overrun"] == 10


async def test_leaving_waits_a_while_for_the_message_in_hand() -> None:
    """Two seconds at most; then the handler is cancelled."""
    ended: list[str] = []

    async def handle(received: Received) -> None:
        try:
            await asyncio.sleep(float(received.data))
            ended.append("finished")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    for data, took in ((b"1.5", 1.5), (b"60", 2.0)):
        began = asyncio.get_running_loop().time()
        async with OrderedHandler("x", handle, Counter()) as worker:
            worker.put(message(data))
            worker.put(message(b"0"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() - began == pytest.approx(took)

    assert ended == ["finished", "cancelled"]


async def test_requests_above_the_bound_are_told_to_come_back() -> None:
    """Nobody hangs, and no request starts work that would not end."""
    replies: list[tuple[bytes, Headers]] = []
    gate = asyncio.Event()

    async def answer(received: Received) -> bytes:
        await gate.wait()
        return received.data

    counts: Counter[str] = Counter()
    async with ResponderPool("x", answer, counts) as pool:
        for number in range(RESPONDERS_LIMIT + 3):
            pool.put(message(b"%d" % number), lambda data, headers: replies.append((data, headers)))
        assert len(replies) == 3
        assert all("busy" in headers[ERROR] for _, headers in replies)
        gate.set()

    assert len(replies) == RESPONDERS_LIMIT + 3
    assert counts["responder-busy"] == 3


async def test_a_responder_that_is_cancelled_says_so() -> None:
    """Leaving with work that does not end: the asker hears "stopping" instead of nothing."""
    replies: list[Headers] = []

    async def answer(_: Received) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with ResponderPool("x", answer, Counter()) as pool:
        pool.put(message(), lambda _, headers: replies.append(headers))
        await asyncio.sleep(0)

    assert replies == [{ERROR: "stopping"}]


async def test_a_reply_that_cannot_be_sent_is_counted() -> None:
    """The connection went away meanwhile: the pool lives on."""

    async def answer(_: Received) -> bytes:
        return b""

    def lost(_data: bytes, _headers: Headers) -> None:
        raise RuntimeError("not connected")

    counts: Counter[str] = Counter()
    async with ResponderPool("x", answer, counts) as pool:
        pool.put(message(), lost)

    assert counts["reply-failed"] == 1
