"""Reading a few stored messages without a consumer: for those who may fetch single messages and hear live copies.

In: a stream, a subject pattern of it, where to begin. Out: batches of one, as `Bus.read` yields them, in order and
without gaps, for ever. Each message costs a round trip, so this is for channels with a message a second at most.

A live copy says only that there is something to fetch; what is read comes from the stream, with its sequence. The
server hands out the copy before the stream has the message on its disk, so one look after a copy is not enough. A copy
that was missed is made good at the next reconnect, or after `poll_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator

from bus.protocol import Batch, Bus, Handler, Received, StreamMismatch
from bus.runtime.retry import retrying

POLL_S = 60.0
SETTLE_S = (0.02, 0.1, 0.5, 2.0)
"""Pauses between looks after a copy whose message is not there yet: a synced write takes as long as the disk takes."""
PATIENCE_S = 600.0
"""Longest silence of the server; then the caller ends, and whoever supervises it starts it again."""
TICK_S = 0.001
"""What is left of a pause below this is no pause: a clock may be too coarse to wait for it."""
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

    position, ended = max(1, from_sequence), False
    looks: Iterator[float] = iter(())
    async with contextlib.AsyncExitStack() as stack:
        await _patiently("subscribe")(_entered, stack, bus, subject, wake)
        while True:
            if woken.is_set():
                looks = iter(SETTLE_S)
            woken.clear()
            generation = bus.generation
            message = await _patiently("fetch")(bus.next, stream, subject, position)
            if message is not None:
                position, ended = message.sequence + 1, False
                yield Batch(messages=(message,), caught_up=False)
                continue
            if not ended:
                await _same(bus, stream, position)
                ended = True
                yield Batch(messages=(), caught_up=True)
            pause = next(looks, None)
            await _woken(bus, woken, poll_s if pause is None else pause)
            ended = (pause is not None or woken.is_set()) and bus.generation == generation


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
    while not woken.is_set() and bus.generation == generation and (left := until - loop.time()) > TICK_S:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), min(LOOK_S, left))


def _patiently(what: str) -> retrying:
    return retrying(f"peruse: {what}", deadline_s=PATIENCE_S)
