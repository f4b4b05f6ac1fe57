"""What bounds a target, whatever rule named it: how fast, between which numbers, within which capacity.

In: the inputs and the number that a rule named. Out: the bounded number and the names of the limits that changed it.
Rates are counted from the target at the start of a period, so a look every second and a look every minute may do the
same. Replicas that are only on their way are cancelled without a rate: nothing is lost by it.

    period began with 4, up to 400 % or 4 more: at most 16.  From 1: at most 5.
    period began with 9, down to 50 % or 1 fewer: at least 5.  From 2: at least 1.
    the same with 9 wanted, 3 of them ready: at least 3.
"""

from __future__ import annotations

from autoscaler.core.numbers import Inputs, Memory, ceil_div

UNLIMITED = 10_000
"""Nobody limits it. No function has more replicas."""
RATED_UP = frozenset({"panic", "up"})
RATED_DOWN = frozenset({"down"})

Bounded = tuple[int, tuple[str, ...]]


def bounded(inputs: Inputs, memory: Memory, rule: str, goal: int) -> Bounded:
    """Rates, then the function's bounds, which nothing passes; only `off` goes below the minimum."""
    began = inputs.current if memory.period_target is None else memory.period_target
    limits: list[str] = []
    target = goal
    if rule in RATED_UP:
        target = _at_most(target, max(highest(inputs, began), inputs.current), "up-rate", limits)
    if rule in RATED_DOWN:
        target = _at_least(target, min(lowest(inputs, began), inputs.hot_ready), "down-rate", limits)
    if rule != "off":
        target = _at_least(target, inputs.min_replicas, "min", limits)
    return _at_most(target, inputs.max_replicas, "max", limits), tuple(limits)


def in_capacity(inputs: Inputs, goal: int) -> Bounded:
    """No replica is added that fits nowhere or that nobody pays for, and none on ignorance."""
    limits: list[str] = []
    target = goal
    for more, unknown, short in (
        (inputs.placeable, "capacity-unknown", "no-room"),
        (inputs.budget, "budget-unknown", "over-budget"),
    ):
        room = inputs.planned + max(0, more or 0)
        target = _at_most(target, max(room, 0), unknown if more is None else short, limits)
    return target, tuple(limits)


def highest(inputs: Inputs, began: int) -> int:
    """The most that a period may end with."""
    return max(began * inputs.up_percent // 100, began + inputs.up_step)


def lowest(inputs: Inputs, began: int) -> int:
    """The least that a period may end with."""
    return max(0, min(ceil_div(began * inputs.down_percent, 100), began - inputs.down_step))


def _at_most(value: int, bound: int, name: str, limits: list[str]) -> int:
    if value > bound:
        limits.append(name)
    return min(value, bound)


def _at_least(value: int, bound: int, name: str, limits: list[str]) -> int:
    if value < bound:
        limits.append(name)
    return max(value, bound)
