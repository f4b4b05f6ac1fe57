"""The worker of a function: takes calls, answers them, and leaves without losing any.

    async with worker("team-a/resize") as calls:
        async for call in calls:
            await call.reply(resize(call.body))

or, for several at once, `await calls.serve(resize)`, which runs plain functions in threads.

In: calls from the function's work queue, orders of the autoscaler, SIGTERM. Out: answers on the callers' subjects,
reports of what it does, and a dead call for each one that was not run: too late, or handed out too often because the
workers before died over it. A call is settled after its answer was sent, so one whose worker is killed goes to
another; a worker that was only slow says every second that it still works. At least once, then: a call may be run
twice, never not at all.

A warm worker is started and takes nothing until it is told to. Draining, it asks for no more and finishes what it has;
it stays until SIGTERM, because it may be called back. SIGTERM drains and then ends the loop. It needs no right but
those of `worker/<namespace>.<function>` in `contracts.identities`: its queue is made by the autoscaler.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from bus import codec, deadletter
from bus.client import connect
from bus.protocol import Bus, BusError, Delivery, Received, Settlement, Taking
from bus.runtime.connection import options_of
from bus.runtime.retry import GaveUp, retrying
from contracts.callrules import judge, obey, waited_ms
from contracts.functions import Call, CallOutcome, CallReply, WorkerOrder, WorkerPhase, WorkerReport, queue_name
from contracts.subjects import CALL_REPLIES, CALLS, WORKER_ORDERS, WORKER_REPORTS
from gpubus.settings import effective
from gpubus.workeroptions import Options, address_of, from_environment

__all__ = ["Calls", "InHand", "Options", "address_of", "from_environment", "worker"]

log = logging.getLogger(__name__)

REPLY_S = 20.0
"""How long an answer is tried to be sent while the connection is gone."""

Handler = Callable[[str], str | Awaitable[str]]


class InHand:
    """One call in this worker's hands."""

    def __init__(self, calls: Calls, call: Call, delivery: Delivery, waited: int) -> None:
        self.call = call
        self.delivery = delivery
        self._calls = calls
        self._waited_ms = waited

    @property
    def body(self) -> str:
        """What the caller sent."""
        return self.call.body

    async def reply(self, body: str = "") -> None:
        """Answer it; then it is done. Answering again does nothing."""
        await self._calls.answer(self, self.made("done", body=body))

    async def fail(self, error: str) -> None:
        """Tell the caller that it failed; it is not tried again."""
        await self._calls.answer(self, self.made("failed", error=error[:1024]))

    def made(self, outcome: CallOutcome, *, body: str = "", error: str = "") -> CallReply:
        """A reply to it."""
        return CallReply(
            id=self.call.id,
            outcome=outcome,
            body=body,
            error=error,
            worker=self._calls.worker,
            attempt=self.delivery.attempt,
            waited_ms=self._waited_ms,
        )


class Calls:
    """The calls of one function, as one worker gets them; made by `worker`."""

    def __init__(self, bus: Bus, namespace: str, function: str, taking: Taking, options: Options) -> None:
        self.worker = f"w-{secrets.token_hex(6)}"
        self.phase: WorkerPhase = "warm" if options.warm else "ready"
        self.done = 0
        self._bus = bus
        self._address = {"namespace": namespace, "function": function}
        self._taking = taking
        self._options = options
        self._hands: dict[int, InHand] = {}
        self._changed = asyncio.Event()
        self._wait: asyncio.Task[Delivery] | None = None
        self._sequence = 0
        self._taken = 0
        self._ending = False

    @property
    def in_flight(self) -> int:
        """Calls that are not answered yet."""
        return len(self._hands)

    def drain(self) -> None:
        """Take no more, for good; the loop ends when the call that is on its way, if any, has been given out."""
        self._ending = True
        self.phase = "draining"
        self._changed.set()

    def obey(self, order: WorkerOrder) -> None:
        """Do as the autoscaler says."""
        before, self.phase = self.phase, self.phase if self._ending else obey(self.phase, order)
        if before != self.phase:
            log.info("%s is %s", self.worker, self.phase)
        self._changed.set()

    # --- taking ------------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Calls:
        return self

    async def __anext__(self) -> InHand:
        """The next call to run; those that are not to be run are answered on the way."""
        while (delivery := await self._next()) is not None:
            in_hand = await self._accept(delivery)
            if in_hand is not None:
                return in_hand
        raise StopAsyncIteration

    async def serve(self, handler: Handler) -> None:
        """Run the handler for each call, up to `limit` at once; a plain function runs in a thread.

        What it returns is the answer; what it raises is told to the caller.
        """
        async with asyncio.TaskGroup() as group:
            async for in_hand in self:
                group.create_task(_handle(handler, in_hand), name=f"call {in_hand.call.id}")

    async def _next(self) -> Delivery | None:
        """A delivery, when there is room and we are ready; None when we are draining and nothing comes any more."""
        while True:
            self._changed.clear()
            if self._wait is not None and self._wait.done():
                wait, self._wait = self._wait, None
                return wait.result()
            if self.phase != "ready" and self._wait is not None:
                rest = await self._stop_asking()
                if rest is not None:
                    return rest
            if self._ending:
                return None
            if self.phase == "ready" and self._wait is None and self._has_room:
                self._wait = asyncio.create_task(self._taking.next(), name=f"{self.worker} asks")
                self._wait.add_done_callback(lambda _: self._changed.set())
            await self._changed.wait()

    @property
    def _has_room(self) -> bool:
        last = self._options.calls and self._taken >= self._options.calls
        return not last and self.in_flight < self._options.limit

    async def _stop_asking(self) -> Delivery | None:
        wait, self._wait = self._wait, None
        if wait is None:
            return None
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        return await self._taking.rest() if wait.cancelled() else wait.result()

    async def _accept(self, delivery: Delivery) -> InHand | None:
        call = codec.decode_as(Call, delivery.message)
        if isinstance(call, codec.Malformed):
            await self._bury(delivery, f"no call: {call}")
            return None
        waited = waited_ms(delivery.message.stored_at, self._options.wall_s())
        in_hand = InHand(self, call, delivery, waited)
        self._hands[delivery.message.sequence] = in_hand
        verdict = judge(
            timeout_ms=call.timeout_ms,
            waited_ms=waited,
            attempt=delivery.attempt,
            max_attempts=self._options.max_attempts,
        )
        if verdict == "run":
            self._taken += 1
            if self._options.calls and self._taken >= self._options.calls:
                self.drain()
            return in_hand
        await self._refuse(in_hand, verdict)
        return None

    async def _refuse(self, in_hand: InHand, verdict: CallOutcome) -> None:
        """Not run: kept as a dead call, answered, and gone; in this order, so that a crash repeats it."""
        waited, attempt = in_hand.made(verdict).waited_ms, in_hand.delivery.attempt
        why = {
            "late": f"too late: it waited {waited} ms of {in_hand.call.timeout_ms} ms",
            "gave-up": f"handed out {attempt - 1} times and never settled",
        }[verdict]
        await self._keep(in_hand.delivery.message, why)
        await self.answer(in_hand, in_hand.made(verdict, error=why), how="never")

    async def _bury(self, delivery: Delivery, why: str) -> None:
        await self._keep(delivery.message, why)
        self._settle(delivery, "never")

    async def _keep(self, message: Received, why: str) -> None:
        keeping = retrying("keep a dead call", deadline_s=REPLY_S)
        await keeping(
            deadletter.keep_call,
            self._bus,
            received=message,
            reason=why,
            namespace=self._address["namespace"],
            function=self._address["function"],
        )

    # --- answering ---------------------------------------------------------------------------------------------------

    async def answer(self, in_hand: InHand, reply: CallReply, how: Settlement = "done") -> None:
        """Send the answer, then settle the call."""
        if in_hand.delivery.message.sequence not in self._hands:
            return
        if in_hand.call.caller is not None:
            where = {**self._address, "caller": in_hand.call.caller}
            with contextlib.suppress(GaveUp):  # nobody can hear us; the call goes to another worker
                await retrying("answer a call", deadline_s=REPLY_S)(
                    codec.publish, self._bus, CALL_REPLIES, reply, **where
                )
        self._settle(in_hand.delivery, how)
        self._hands.pop(in_hand.delivery.message.sequence, None)
        self.done += how == "done"
        self._changed.set()

    def _settle(self, delivery: Delivery, how: Settlement) -> None:
        try:
            self._bus.settle(delivery, how)
        except BusError as error:
            log.info("call %d could not be settled as %s: %s", delivery.message.sequence, how, error)

    # --- beside it ---------------------------------------------------------------------------------------------------

    async def hear(self, received: Received) -> None:
        """An order came."""
        order = codec.decode_as(WorkerOrder, received)
        if isinstance(order, WorkerOrder):
            self.obey(order)
            await self.report()

    async def report(self) -> None:
        """Say what we do."""
        self._sequence += 1
        report = WorkerReport(
            worker=self.worker,
            replica=self._options.replica,
            phase=self.phase,
            in_flight=self.in_flight,
            limit=self._options.limit,
            done=self.done,
            sequence=self._sequence,
        )
        with contextlib.suppress(BusError):
            await codec.publish(self._bus, WORKER_REPORTS, report, **self._address, worker=self.worker)

    async def speak(self) -> None:
        """Report, and keep what is in hand, for ever."""
        while True:
            await self.report()
            for in_hand in tuple(self._hands.values()):
                self._settle(in_hand.delivery, "working")
            await asyncio.sleep(self._options.report_s)

    async def leave(self) -> None:
        """Give back what is not answered and say that we are gone."""
        rest = await self._stop_asking()
        left = [in_hand.delivery for in_hand in self._hands.values()] + ([rest] if rest else [])
        for delivery in left:
            self._settle(delivery, "again")
        self._hands.clear()
        self.phase = "gone"
        await self.report()


@contextlib.asynccontextmanager
async def worker(
    function: str = "", *, bus: Bus | None = None, options: Options | None = None, signals: bool = True
) -> AsyncIterator[Calls]:
    """Be a worker of a function while the context is open.

    Args:
        function: `namespace/name`; empty: WORKER_FUNCTION, as it stands in the pods that the autoscaler makes.
        bus: a connection of one's own; None: one to WORKER_NATS_URLS, else by the settings of the `gpubus` command.
        options: None: by WORKER_REPLICA, WORKER_WARM, WORKER_CONCURRENCY and WORKER_CALLS in the environment.
        signals: SIGTERM drains.

    Raises:
        UsageError: no function is named.
        BusUnavailable: no connection.
    """
    namespace, name = address_of(function or os.environ.get("WORKER_FUNCTION", ""))
    options = options or from_environment()
    async with contextlib.AsyncExitStack() as stack:
        if bus is None:
            bus = await stack.enter_async_context(_connected(namespace, name))
        taking = await stack.enter_async_context(bus.take(CALLS.stream, queue_name(namespace, name)))
        calls = Calls(bus, namespace, name, taking, options)
        orders = {"namespace": namespace, "function": name, "replica": options.replica or calls.worker}
        await stack.enter_async_context(bus.subscribe(WORKER_ORDERS.subject(**orders), calls.hear))
        if signals:
            stack.enter_context(_draining_on_sigterm(calls))
        speaking = asyncio.create_task(calls.speak(), name=f"{calls.worker} reports")
        try:
            yield calls
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await calls.leave()


def _connected(namespace: str, name: str) -> contextlib.AbstractAsyncContextManager[Bus]:
    nats = os.environ.get("WORKER_NATS_URLS") or None
    settings = effective(env=os.environ, nats=nats).settings.nats
    return connect(settings.urls, name=f"worker-{queue_name(namespace, name)}", **options_of(settings))


async def _handle(handler: Handler, in_hand: InHand) -> None:
    try:
        if inspect.iscoroutinefunction(handler):
            body = await handler(in_hand.body)
        else:
            body = await asyncio.to_thread(handler, in_hand.body)
    except Exception as error:
        log.exception("call %s failed", in_hand.call.id)
        await in_hand.fail(f"{type(error).__name__}: {error}")
    else:
        await in_hand.reply(body)


@contextlib.contextmanager
def _draining_on_sigterm(calls: Calls) -> Iterator[None]:
    """Only where signals can be handled: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, calls.drain)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
