"""Functions and the sizes of workloads: see how all stand, ask why, hold the brake.

In: a `gpubus.client.Client`. Out: functions with their status, scale decisions made again from their own messages, and
orders stored in the workloads stream.
"""

from __future__ import annotations

import msgspec

from autoscaler.core import elastic_settle, record
from bus import codec
from bus.protocol import BusError, NotPermitted
from contracts.functions import FunctionStatus, ScalingSwitch
from contracts.messages import Value
from contracts.subjects import FUNCTION_STATUS, SCALE, SCALING_SWITCH, WORKLOADS
from contracts.workloads import Function, ScaleDecision
from gpubus.client import Client
from gpubus.errors import NoAnswer


class FunctionView(Value, frozen=True, kw_only=True):
    """One function as it was asked for, and how it stands; None = the autoscaler has not said yet."""

    namespace: str
    function: Function
    status: FunctionStatus | None = None


class Again(Value, frozen=True, kw_only=True):
    """A decision, and what the same inputs give now."""

    decision: ScaleDecision
    target: int | None = None
    """None = its inputs are of another version."""
    rule: str = ""

    @property
    def same(self) -> bool:
        """Whether it is the same decision again."""
        return (self.target, self.rule) == (self.decision.target, self.decision.rule)


async def status_of(client: Client, namespace: str, name: str) -> FunctionStatus | None:
    """How a function stands; None = the autoscaler has not said yet."""
    subject = FUNCTION_STATUS.subject(namespace=namespace, function=name)
    kept = await client.bus.last(FUNCTION_STATUS.stream, subject)
    found = codec.decode_as(FunctionStatus, kept) if kept is not None else None
    return found if isinstance(found, FunctionStatus) else None


async def functions(client: Client, namespace: str = "") -> list[FunctionView]:
    """All functions of one namespace, or of all, by name, without those that were taken down.

    Raises:
        NotPermitted: only for those who may read streams.
    """
    wanted = await client.stored(WORKLOADS.stream, Function, subject=_pattern(WORKLOADS.wildcard, namespace))
    told = await client.stored(FUNCTION_STATUS.stream, FunctionStatus, subject=FUNCTION_STATUS.wildcard)
    by_name = {_key(FUNCTION_STATUS.parse(kept.subject), "function"): status for kept, status in told}
    views = []
    for kept, function in wanted:
        key = _key(WORKLOADS.parse(kept.subject), "name")
        status = by_name.get(key)
        if not (function.stopped and status is not None and is_gone(status)):
            views.append(FunctionView(namespace=key[0], function=function, status=status))
    return sorted(views, key=lambda view: (view.namespace, view.function.name))


async def decisions(client: Client, namespace: str, name: str) -> list[Again]:
    """The last decisions about a workload, oldest first, each made again; empty where nothing is known, or readable."""
    subject = SCALE.subject(namespace=namespace, name=name)
    try:
        found = await client.stored(SCALE.stream, ScaleDecision, subject=subject)
    except NotPermitted:
        return []
    return [again(decision) for _, decision in found]


def again(decision: ScaleDecision) -> Again:
    """The same inputs once more, by the rules of this version."""
    try:
        if decision.kind == "job":
            target, rule = elastic_settle.replay(decision)
            return Again(decision=decision, target=target, rule=rule)
        made = record.replay(decision)
    except (msgspec.ValidationError, KeyError, TypeError):
        return Again(decision=decision)
    return Again(decision=decision, target=made.target, rule=made.rule)


async def freeze(client: Client, *, frozen: bool, reason: str = "", at_ms: int = 0, pool: str = "default") -> None:
    """Stop all scaling, or let it go on. Raises NoAnswer."""
    switch = ScalingSwitch(frozen=frozen, reason=reason, at_ms=at_ms, cause=f"operator-{at_ms}")
    try:
        await codec.store(client.bus, SCALING_SWITCH, switch, pool=pool)
    except BusError as error:
        raise NoAnswer("the workloads stream", str(error)) from error


def is_gone(status: FunctionStatus) -> bool:
    """No replica is left."""
    return not (status.ready or status.starting or status.warm or status.draining)


def _pattern(wildcard: str, namespace: str) -> str:
    return wildcard.replace("*", namespace, 1) if namespace else wildcard


def _key(where: dict[str, str] | None, name: str) -> tuple[str, str]:
    return (where["namespace"], where[name]) if where else ("", "")
