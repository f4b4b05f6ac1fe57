"""The calls of one function that nobody has answered: how many, since when, and those that nobody will run any more.

In: the function's work queue, made here. Out: counts; a bell that rings at the first call to a function that sleeps;
answers `too late` where no worker is left to give them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from bus import codec, deadletter
from bus.protocol import Bus, BusError, Delivery, QueueState, Received
from contracts.callrules import judge, waited_ms
from contracts.functions import Call, CallReply, queue_name
from contracts.subjects import CALL_REPLIES, CALLS

TAKE_S = 2.0


class Backlog:
    """One function's queue."""

    def __init__(
        self, bus: Bus, namespace: str, function: str, *, ack_wait_s: float, wall_s: Callable[[], float]
    ) -> None:
        self._bus = bus
        self._namespace = namespace
        self._function = function
        self._subject = CALLS.subject(namespace=namespace, function=function)
        self._queue = queue_name(namespace, function)
        self._ack_wait_s = ack_wait_s
        self._wall_s = wall_s
        self._made = False

    async def look(self) -> QueueState | None:
        """How it stands; None = the bus does not say. The queue is made when there is none."""
        try:
            if not self._made:
                await self._bus.ensure_queue(
                    CALLS.stream, self._queue, subject=self._subject, ack_wait_s=self._ack_wait_s
                )
                self._made = True
            state = await self._bus.queue_state(CALLS.stream, self._queue)
        except BusError:
            return None
        self._made = state is not None
        return state

    def bell(self, ring: Callable[[], None]) -> contextlib.AbstractAsyncContextManager[None]:
        """Ring for each call that is stored while the context is open."""

        async def stored(_: Received) -> None:
            ring()

        return self._bus.subscribe(self._subject, stored)

    async def answer_late(self) -> int:
        """Answer what is too late, from the oldest on; how many. For when no worker is there to do it.

        The oldest is looked at before it is taken, so that nothing is touched while it is still in time.
        """
        answered = 0
        while await self._oldest_is_late():
            async with self._bus.take(CALLS.stream, self._queue) as taking:
                try:
                    async with asyncio.timeout(TAKE_S):
                        delivery = await taking.next()
                except TimeoutError:
                    return answered
            if not await self._refused(delivery):
                return answered
            answered += 1
        return answered

    async def _oldest_is_late(self) -> bool:
        oldest = await self._bus.next(CALLS.stream, self._subject, 1)
        return oldest is not None and self._verdict(oldest) != "run"

    def _verdict(self, message: Received) -> str:
        call = codec.decode_as(Call, message)
        if isinstance(call, codec.Malformed):
            return f"no call: {call}"[:1024]
        waited = waited_ms(message.stored_at, self._wall_s())
        return judge(timeout_ms=call.timeout_ms, waited_ms=waited, attempt=1)

    async def _refused(self, delivery: Delivery) -> bool:
        """Settle one as not to be run; one that a worker should have is handed back."""
        message, verdict = delivery.message, self._verdict(delivery.message)
        if verdict == "run":
            self._bus.settle(delivery, "again")
            return False
        why = "too late: no worker took it" if verdict == "late" else verdict
        where = {"namespace": self._namespace, "function": self._function}
        await deadletter.keep_call(
            self._bus, received=message, reason=why, namespace=self._namespace, function=self._function
        )
        call = codec.decode_as(Call, message)
        if isinstance(call, Call) and call.caller is not None:
            waited = waited_ms(message.stored_at, self._wall_s())
            reply = CallReply(id=call.id, outcome="late", error=why, attempt=delivery.attempt, waited_ms=waited)
            await codec.publish(self._bus, CALL_REPLIES, reply, **where, caller=call.caller)
        self._bus.settle(delivery, "never")
        return True
