"""Two simple policies of how many environments a function keeps: `maxcount` and `watermark` (those of DGSF).

In: the policy, the function's own bounds, how many it has. Out: how many to start, whether to end the one that has
finished, and how many there are then. They count per function, and never beyond the function's own maximum: one busy
function takes nothing from the others.

    watermark 2..9, 3 there, one is killed: 2, nothing. Another: 1 is below 2, so 8 are started, 9 there.
    the same, maximum 4: 3 are started.
"""

from __future__ import annotations

from contracts.messages import Value


class MaxCount(Value, frozen=True, kw_only=True):
    """As many as are asked for, up to a number."""

    highest: int = 10_000
    reuse: bool = True
    """An environment that has finished takes the next call."""
    deploy_min: bool = True
    """Start the function's minimum when it is deployed."""
    no_scaleup: bool = False


class Watermark(Value, frozen=True, kw_only=True):
    """Filled to `high` whenever there are fewer than `low`."""

    low: int = 0
    high: int = 9
    reuse: bool = True


class Step(Value, frozen=True, kw_only=True):
    """What follows from an event: `count` are there, with those that are started now."""

    count: int
    start: int = 0
    end: bool = False


Policy = MaxCount | Watermark


def ceiling(policy: Policy, maximum: int) -> int:
    """The most there may be."""
    return min(maximum, policy.highest if isinstance(policy, MaxCount) else policy.high)


def on_deploy(policy: Policy, minimum: int, maximum: int) -> Step:
    """The function is new: its minimum, or the high mark."""
    if isinstance(policy, MaxCount):
        return _started(0, min(minimum if policy.deploy_min else 0, ceiling(policy, maximum)))
    return _started(0, ceiling(policy, maximum))


def on_none_idle(policy: Policy, count: int, maximum: int) -> Step:
    """A call came and nobody is idle: one more, if that is allowed."""
    barred = count >= ceiling(policy, maximum) or (isinstance(policy, MaxCount) and policy.no_scaleup)
    return Step(count=count) if barred else _started(count, 1)


def on_finished(policy: Policy, count: int, maximum: int) -> Step:
    """One has finished its call: it is kept, or it ends. Only one that ends is one fewer."""
    left = count if policy.reuse else max(0, count - 1)
    fill = ceiling(policy, maximum) - left if isinstance(policy, Watermark) and left < policy.low else 0
    return Step(count=left + max(0, fill), start=max(0, fill), end=not policy.reuse)


def _started(count: int, more: int) -> Step:
    return Step(count=count + more, start=more)
