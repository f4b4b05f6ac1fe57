"""Calls of functions, and what workers and the autoscaler say about them.

A call is kept in a stream until a worker has answered it, so that one waits also where nobody runs yet. Who takes it,
when it is too late, and how often it is tried is decided by the worker that takes it; the answer goes to the caller's
own subject. Text only: what is binary is the caller's base64.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.messages import Message, Value
from contracts.units import END, Count, ShortText
from contracts.workloads import Profile

MAX_CALL_MS = 600_000
"""A call waits ten minutes at most; the stream forgets it after an hour in any case."""

CallToken = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}" + END, max_length=64, description="a subject token")]
Body = Annotated[str, Meta(max_length=131_072)]

WorkerPhase = Literal["warm", "ready", "draining", "gone"]
"""warm: started, takes no calls. ready: takes calls. draining: finishes what it has. gone: has finished, ends."""


class Call(Message, frozen=True, kw_only=True, tag="function.call.v1"):
    """One call of a function. Without `caller` nobody waits for the answer; it is run all the same."""

    id: CallToken
    caller: CallToken | None = None
    """The last token of the subject where the answer goes."""
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_CALL_MS)] = 60_000
    """From when it was stored, by the server's clock; then it is not begun any more."""
    body: Body = ""
    cause: ShortText = ""


CallOutcome = Literal["done", "failed", "late", "gave-up"]
"""failed: the function raised. late: nobody took it in time. gave-up: too many workers died over it."""


class CallReply(Message, frozen=True, kw_only=True, tag="function.reply.v1"):
    """The answer to one call."""

    id: CallToken
    outcome: CallOutcome
    body: Body = ""
    error: ShortText = ""
    worker: ShortText = ""
    attempt: Count = 1
    """The how-manieth worker it was given to."""
    waited_ms: Count = 0
    """From stored to begun, by the clocks of server and worker."""


class WorkerReport(Message, frozen=True, kw_only=True, tag="function.worker.v1"):
    """What a worker does now; every second and on each change of phase. May be lost, the next one says it again."""

    worker: CallToken
    """Of this process: another one after each start."""
    replica: ShortText = ""
    """The request of its pod."""
    phase: WorkerPhase
    in_flight: Count = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """Calls that it takes at once."""
    done: Count = 0
    """Calls answered since it started."""
    sequence: Count = 0
    cause: ShortText = ""


class WorkerOrder(Message, frozen=True, kw_only=True, tag="function.order.v1"):
    """To one replica: begin to take calls, stand by, or stop taking them. Said again until its report agrees."""

    order: Literal["promote", "demote", "drain"]
    cause: ShortText = ""


class ScalingSwitch(Message, frozen=True, kw_only=True, tag="scaling.switch.v1"):
    """The operator's brake: frozen, nothing is scaled up or down; what runs goes on."""

    frozen: bool
    reason: ShortText = ""
    at_ms: Count = 0
    cause: ShortText = ""


class MissingCards(Value, frozen=True, kw_only=True):
    """What a replica more would need, and what the scheduler says is in its way."""

    replicas: Count
    cards: Count
    """Of all these replicas together."""
    share_milli: Count
    memory_mib: Count | None = None
    models: tuple[ShortText, ...] = ()
    """Any of these; empty = any."""
    reason: ShortText = ""


class FunctionStatus(Message, frozen=True, kw_only=True, tag="workload.function-status.v1"):
    """How a function stands: what is wanted, what there is, and what is missing."""

    target: Count
    rule: ShortText = ""
    ready: Count = 0
    starting: Count = 0
    warm: Count = 0
    draining: Count = 0
    waiting: Count | None = None
    """Calls in the stream that no worker has; None = not known."""
    outstanding: Count | None = None
    """Calls with workers."""
    missing: MissingCards | None = None
    profiles: Annotated[tuple[Profile, ...], Meta(max_length=64)] = ()
    """What its replicas do on which slice, as measured while calls waited for them; for the metric `rate`."""
    at_ms: Count = 0
    cause: ShortText = ""


def queue_name(namespace: str, function: str) -> str:
    """The consumer of a function's calls; neither part ever holds the underscore."""
    return f"{namespace}_{function}"
