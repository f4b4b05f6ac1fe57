"""What a decision leaves to the next one: since when which condition holds.

In: the inputs, with the memory of the decision before in them. Out: the memory with this reading counted in.
"""

from __future__ import annotations

from autoscaler.core.numbers import Inputs, Memory, ceil_div


def remember(inputs: Inputs) -> Memory:
    """Since when which condition holds, with this reading counted in. The target is filled in by `decide`."""
    if inputs.frozen or inputs.rival:
        return inputs.memory()
    begins = inputs.period_since_ms is None or inputs.now_ms - inputs.period_since_ms >= inputs.period_ms
    return Memory(
        target=inputs.last_target,
        panic_at_ms=_panic_at(inputs),
        lower_since_ms=_since(inputs, inputs.lower_since_ms, holds=fewer(inputs) < inputs.current),
        idle_since_ms=_since(inputs, inputs.idle_since_ms, holds=_idle_now(inputs)),
        period_since_ms=inputs.now_ms if begins else inputs.period_since_ms,
        period_target=inputs.current if begins else inputs.period_target,
        adopted_until_ms=inputs.now_ms + inputs.stable_ms
        if inputs.by_hand is not None and inputs.adopt
        else inputs.adopted_until_ms,
    )


def _since(inputs: Inputs, since_ms: int | None, *, holds: bool) -> int | None:
    return (inputs.now_ms if since_ms is None else since_ms) if holds else None


def _panic_at(inputs: Inputs) -> int | None:
    """When the short window last showed `panic_percent` of what the ready replicas carry at their target."""
    if inputs.panic_milli is None or inputs.capacity_milli is None or not inputs.hot_ready:
        return inputs.panic_at_ms
    carried = inputs.hot_ready * inputs.each_milli
    return inputs.now_ms if inputs.panic_milli * 100 >= inputs.panic_percent * carried else inputs.panic_at_ms


def _idle_now(inputs: Inputs) -> bool:
    """Known to be without any work; what is not known is not idle."""
    return inputs.panic_milli == 0 and inputs.waiting == 0 and inputs.busy == 0


def fewer(inputs: Inputs) -> int:
    """As few as would do: below the aim by the tolerance, in both windows, and one at least."""
    if inputs.stable_milli is None or inputs.panic_milli is None or inputs.capacity_milli is None:
        return inputs.current
    room = inputs.each_milli * (100 - inputs.tolerance_percent)
    lasting = ceil_div(inputs.stable_milli * 100, room)
    return max(1, lasting, ceil_div(inputs.panic_milli, inputs.each_milli))
