"""From a function and its surroundings to inputs, from a decision to a message, and back.

In: the function as it was asked for, samples, counts. Out: `Inputs`; the `ScaleDecision` that carries them; and from
such a message alone the same decision again. What a message does not carry, a decision cannot depend on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from autoscaler.core.counters import POLICIES
from autoscaler.core.horizontal import decide
from autoscaler.core.numbers import Decision, Inputs, Memory
from autoscaler.core.replicas import Counts
from autoscaler.core.windows import Samples, average, fills, silent_ms
from contracts.workloads import Function, ScaleDecision, Scaling

CALL = 1000
S = 1000


def inputs_of(
    function: Function,
    memory: Memory,
    samples: Samples,
    counts: Counts,
    *,
    now_ms: int,
    waiting: int | None,
    placeable: int | None,
    budget: int | None,
    frozen: bool = False,
    by_hand: int | None = None,
    rival: bool = False,
    capacity_milli: int | None = None,
    stretch_percent: int = 100,
    calls: int | None = None,
) -> Inputs:
    """Everything that `decide` looks at.

    Args:
        function: its bounds and settings.
        memory: what the decision before left; `Memory()` at first, `after_restart` after one.
        samples: of its load.
        counts: of its replicas.
        now_ms: the clock of samples and memory.
        waiting: calls that are kept and not delivered; None = the bus does not say.
        placeable: how many more replicas fit; None = not known, so nothing is added.
        budget: how many more may be paid for; `limits.UNLIMITED` = nobody limits it.
        frozen: an operator stopped all scaling.
        by_hand: a number of replicas that somebody else wrote since the decision before.
        rival: somebody does so again and again.
        capacity_milli: for the metric `rate`, thousandths of a call per second of one replica, as measured on its card
            model; the function's own `rate_milli` wins.
        stretch_percent: what replicas may use of what they were sold; counts up to the function's own bound.
        calls: calls in progress and waiting, for the policies that count them.
    """
    panic = average(samples, now_ms, function.scaling.panic_s * S)
    stable = average(samples, now_ms, function.scaling.stable_s * S)
    settings = _settings(function, capacity_milli, stretch_percent)
    settings.update((f"last_{key}" if key == "target" else key, value) for key, value in _fields(memory).items())
    return Inputs(
        now_ms=now_ms,
        stable_milli=stable.load_milli,
        panic_milli=panic.load_milli,
        stable_full=int(fills(stable, function.scaling.stable_s * S)),
        silent_ms=silent_ms(samples, now_ms),
        waiting=waiting,
        hot_ready=counts.hot_ready,
        coming=counts.coming,
        busy=counts.busy,
        placeable=placeable,
        budget=budget,
        frozen=int(frozen),
        by_hand=by_hand,
        rival=int(rival),
        calls=calls,
        **settings,
    )


def message(
    namespace: str, name: str, inputs: Inputs, decision: Decision, *, at_ms: int = 0, cause: str = ""
) -> ScaleDecision:
    """The decision as it is published; `at_ms` is wall clock, for people, and decides nothing."""
    return ScaleDecision(
        namespace=namespace,
        name=name,
        kind="function",
        target=decision.target,
        present=inputs.planned,
        rule=decision.rule,
        inputs={key: value for key, value in _fields(inputs).items() if value is not None},
        at_ms=at_ms,
        cause=cause,
    )


def replay(decided: ScaleDecision) -> Decision:
    """The decision again, from the message alone.

    Raises:
        msgspec.ValidationError: the inputs are not those of a function's decision.
    """
    return decide(msgspec.convert(decided.inputs, Inputs))


def after_restart(decided: ScaleDecision | None) -> Memory:
    """What a new process may keep of the last decision: what was wanted. Its clock is another one."""
    return Memory() if decided is None else Memory(target=replay(decided).memory.target)


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _settings(function: Function, capacity_milli: int | None, stretch_percent: int) -> dict[str, Any]:
    scaling = function.scaling
    return {
        "min_replicas": min(function.min_replicas or 0, function.max_replicas),
        "max_replicas": function.max_replicas,
        "fixed": 0 if function.stopped else function.replicas,
        "capacity_milli": _capacity(scaling, capacity_milli),
        "target_percent": function.target_percent,
        "stable_ms": scaling.stable_s * S,
        "panic_percent": scaling.panic_percent,
        "tolerance_percent": scaling.tolerance_percent,
        "period_ms": scaling.period_s * S,
        "up_percent": scaling.up_percent,
        "up_step": scaling.up_step,
        "down_percent": scaling.down_percent,
        "down_step": scaling.down_step,
        "down_delay_ms": scaling.down_delay_s * S,
        "zero_grace_ms": scaling.zero_grace_s * S,
        "missing_hold_ms": scaling.missing_hold_s * S,
        "fallback": scaling.fallback_replicas,
        "adopt": int(scaling.by_hand == "adopt"),
        "stretch_percent": max(100, min(scaling.stretch_percent, stretch_percent)) if scaling.metric == "rate" else 100,
        "counted": POLICIES.get(scaling.policy, 0),
        "low": scaling.low if scaling.policy == "watermark" else 0,
        "high": _ceiling(function) if scaling.policy != "load" else None,
        "once": int(not scaling.reuse),
        "slots": scaling.concurrency,
    }


def _ceiling(function: Function) -> int:
    most = function.scaling.high
    return function.max_replicas if most is None else min(most, function.max_replicas)


def _capacity(scaling: Scaling, measured_milli: int | None) -> int | None:
    if scaling.metric == "concurrency":
        return scaling.concurrency * CALL
    return measured_milli if scaling.rate_milli is None else scaling.rate_milli
