"""Calling functions: a call is kept, run by whichever worker takes it, and answered here.

    async with gateway(bus, "team-a") as calling:
        reply = await calling.call("resize", '{"width": 40}', timeout_s=30)

In: a function's name and a text. Out: its reply, or the error that says why there is none. A call to a function at zero
waits in the stream, and wakes it. What is kept is not lost when the caller goes away: it is run all the same.

    CallError
    ├── CallFailed   the function raised
    ├── CallLate     nobody took it in time; it was not run
    └── CallGaveUp   too many workers died over it
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from bus import codec
from bus.protocol import Bus, BusError, Received, Stored
from bus.runtime.retry import GaveUp, retrying
from contracts.functions import Call, CallReply
from contracts.subjects import CALL_REPLIES, CALLS
from gpubus.errors import NoAnswer, UsageError

GRACE_S = 5.0
"""Longer than a call may wait: it may have begun in its last millisecond, and `too late` has to come back."""
KEEP_S = 10.0
"""How long a call is tried to be kept."""


class CallError(Exception):
    """There is a reply, and it is not a result."""

    def __init__(self, function: str, reply: CallReply) -> None:
        super().__init__(f"{function}: {reply.outcome}: {reply.error}")
        self.reply = reply


class CallFailed(CallError):  # noqa: N818 - named by what is the case
    """The function raised; it is not tried again."""


class CallLate(CallError):  # noqa: N818
    """Nobody took it in time; it was not run."""


class CallGaveUp(CallError):  # noqa: N818
    """Too many workers died over it."""


_ERRORS: dict[str, type[CallError]] = {"failed": CallFailed, "late": CallLate, "gave-up": CallGaveUp}


class Gateway:
    """One caller in one namespace; made by `gateway`."""

    def __init__(self, bus: Bus, namespace: str) -> None:
        self.caller = f"c-{secrets.token_hex(8)}"
        self.namespace = namespace
        self.strays = 0
        """Replies that nobody waited for any more: a call that was run twice, or a caller who left."""
        self._bus = bus
        self._waiting: dict[str, asyncio.Future[CallReply]] = {}

    async def call(self, function: str, body: str = "", *, timeout_s: float = 60.0, run_s: float | None = None) -> str:
        """Call it and wait for the result.

        Args:
            function: its name in our namespace.
            body: what it gets.
            timeout_s: it must have begun by then.
            run_s: it must have answered so long after that; None = `timeout_s` again.

        Raises:
            CallFailed, CallLate, CallGaveUp: as they say.
            NoAnswer: it could not be kept, or no answer came in time.
            UsageError: the name or the text cannot be sent.
        """
        call = self._made(body, timeout_s, caller=self.caller)
        answer: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = answer
        try:
            await self._keep(function, call)
            async with asyncio.timeout(timeout_s + (timeout_s if run_s is None else run_s) + GRACE_S):
                reply = await answer
        except TimeoutError:
            raise NoAnswer(f"the function {self.namespace}/{function}", "no answer in time") from None
        finally:
            self._waiting.pop(call.id, None)
        if reply.outcome in _ERRORS:
            raise _ERRORS[reply.outcome](function, reply)
        return reply.body

    async def send(self, function: str, body: str = "", *, timeout_s: float = 60.0) -> int:
        """Have it run and do not wait: the sequence under which it is kept. Raises NoAnswer, UsageError."""
        return (await self._keep(function, self._made(body, timeout_s, caller=None))).sequence

    def _made(self, body: str, timeout_s: float, *, caller: str | None) -> Call:
        return Call(id=secrets.token_hex(12), caller=caller, timeout_ms=round(timeout_s * 1000), body=body)

    async def _keep(self, function: str, call: Call) -> Stored:
        """Its id makes it safe to try again."""
        try:
            return await retrying("keep a call", deadline_s=KEEP_S)(
                codec.store,
                self._bus,
                CALLS,
                call,
                message_id=f"call-{call.id}",
                namespace=self.namespace,
                function=function,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        except (BusError, GaveUp) as error:
            raise NoAnswer("the calls stream", str(error)) from error

    async def hear(self, received: Received) -> None:
        """A reply came."""
        reply = codec.decode_as(CallReply, received)
        waiting = self._waiting.get(reply.id) if isinstance(reply, CallReply) else None
        if waiting is None or waiting.done() or not isinstance(reply, CallReply):
            self.strays += 1
            return
        waiting.set_result(reply)


@contextlib.asynccontextmanager
async def gateway(bus: Bus, namespace: str = "default") -> AsyncIterator[Gateway]:
    """Call functions of a namespace while the context is open."""
    made = Gateway(bus, namespace)
    try:
        where = CALL_REPLIES.subject(namespace=namespace, function="any", caller=made.caller).replace(".any.", ".*.")
    except ValueError as error:
        raise UsageError(str(error)) from error
    async with bus.subscribe(where, made.hear):
        yield made
