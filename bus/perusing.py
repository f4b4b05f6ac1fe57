"""Reading a few stored messages without a consumer: for those who may fetch single messages and hear live copies.

In: a stream, a subject pattern of it, where to begin. Out: batches of one, as `Bus.read` yields them, in order and
without gaps, for ever. Each message costs a round trip, so this is for channels with a message a second at most.

A live copy says only that there is something to fetch; what is read comes from the stream, with its sequence. A copy
that was missed is made good at the next reconnect, or after `poll_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from bus.protocol import Batch, Bus, Handler, Received, StreamMismatch
from bus.runtime.retry import retrying

POLL_S = 60.0
PATIENCE_S = 600.0
"""Longest silence of the server; then the caller ends, and whoever supervises it starts it again."""
LOOK_S = 1.0
"""Seconds between looks at the connection, which cost nothing."""


async def peruse(
    bus: Bus, stream: str, subject: str, *, from_sequence: int = 1, poll_s: float = POLL_S
) -> AsyncGenerator[Batch, None]:
    """Every stored message of a pattern from `from_sequence` on; an empty batch, caught up, at each end.

    Raises:
        StreamMismatch: the stream ends before the position: it was made again.
        GaveUp: nothing was answered for `PATIENCE_S`.
        NotPermitted: the pattern may not be heard, or the stream not looked at.
    """
    woken = asyncio.Event()

    async def wake(_: Received) -> None:
        woken.set()

    position = max(1, from_sequence)
    async with contextlib.AsyncExitStack() as stack:
        await _patiently("subscribe")(_entered, stack, bus, subject, wake)
        while True:
            woken.clear()
            message = await _patiently("fetch")(bus.next, stream, subject, position)
            if message is not None:
                position = message.sequence + 1
                yield Batch(messages=(message,), caught_up=False)
                continue
            await _same(bus, stream, position)
            yield Batch(messages=(), caught_up=True)
            await _woken(bus, woken, poll_s)


async def _entered(stack: contextlib.AsyncExitStack, bus: Bus, subject: str, wake: Handler) -> None:
    await stack.enter_async_context(bus.subscribe(subject, wake))


async def _same(bus: Bus, stream: str, position: int) -> None:
    end = await _patiently("ask for the end of the stream")(bus.last_sequence, stream)
    if end + 1 < position:
        raise StreamMismatch(f"stream {stream} ends at {end}, before {position}: it is another one", stream=stream)


async def _woken(bus: Bus, woken: asyncio.Event, poll_s: float) -> None:
    """Until a copy came, the connection is another one, or it is time to look anyway."""
    generation, loop = bus.generation, asyncio.get_running_loop()
    until = loop.time() + poll_s
    while not woken.is_set() and bus.generation == generation and loop.time() < until:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), min(LOOK_S, max(0.0, until - loop.time())))


def _patiently(what: str) -> retrying:
    return retrying(f"peruse: {what}", deadline_s=PATIENCE_S)
