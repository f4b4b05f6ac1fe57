"""How many replicas a function should have: one decision from numbers that a message can carry.

In: `Inputs`, flat and whole numbers only. Out: the target, the rule that fired, and what to remember for the next
decision. `decide` depends on nothing else, so whoever has the message can make the decision again.

`RULES` is asked from top to bottom; the first that names a number decides. `limits` then bounds it. The aim is a load
of `target_percent` of what each replica can do, met with a tolerance:

    one replica does 1 call, aim 70 %: 0.7 calls each. 1.4 calls on 2 replicas: 2. At 1.5 calls still 2 (tolerance 10 %,
    2 x 0.77 = 1.54), at 1.6 calls ceil(1.6 / 0.7) = 3. From 3 to 2 again at 2 x 0.63 = 1.26 calls.

Nothing here grows from itself: every number is absolute, so a second look at the same inputs never adds a replica.
"""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.core.counters import MAXCOUNT, WATERMARK, counted
from autoscaler.core.limits import bounded, in_capacity
from autoscaler.core.numbers import Decision, Inputs, Memory, ceil_div
from autoscaler.core.remember import fewer, remember
from autoscaler.core.replicas import wanted_replicas


def wanted(inputs: Inputs) -> int:
    """The target before capacity and budget: what to ask the scheduler for is this less what is planned."""
    return _wanted(inputs, remember(inputs))[0]


def decide(inputs: Inputs) -> Decision:
    """The target and why. Fail closed: nothing is added while capacity or budget is not known."""
    memory = remember(inputs)
    if inputs.frozen or inputs.rival:
        return Decision(target=inputs.planned, rule=_still(inputs), memory=memory)
    goal, rules = _wanted(inputs, memory)
    target, limits = in_capacity(inputs, goal)
    return Decision(target=target, rule="+".join((*rules, *limits)), memory=memory.with_target(goal))


def _wanted(inputs: Inputs, memory: Memory) -> tuple[int, tuple[str, ...]]:
    if inputs.frozen or inputs.rival:
        return inputs.planned, (_still(inputs),)
    for name, rule in RULES:
        answer = rule(inputs, memory)
        if answer is not None:
            target, limits = bounded(inputs, memory, name, answer)
            return target, (name, *limits, *_reverted(inputs))
    raise AssertionError("the last rule always answers")


def _still(inputs: Inputs) -> str:
    """Why nothing is changed."""
    return "frozen" if inputs.frozen else "rival"


def _reverted(inputs: Inputs) -> tuple[str, ...]:
    return ("reverted",) if inputs.by_hand is not None and not inputs.adopt else ()


# ---- the rules: None = not mine -------------------------------------------------------------------------------------


def _off(inputs: Inputs, _: Memory) -> int | None:
    return 0 if inputs.max_replicas == 0 or inputs.fixed == 0 else None


def _fixed(inputs: Inputs, _: Memory) -> int | None:
    return wanted_replicas(inputs.min_replicas, inputs.fixed) if inputs.fixed is not None else None


def _adopted(inputs: Inputs, memory: Memory) -> int | None:
    if inputs.by_hand is not None and inputs.adopt:
        return inputs.by_hand
    held = memory.adopted_until_ms is not None and inputs.now_ms < memory.adopted_until_ms
    return inputs.current if held else None


def _maxcount(inputs: Inputs, _: Memory) -> int | None:
    return counted(inputs) if inputs.counted == MAXCOUNT else None


def _watermark(inputs: Inputs, _: Memory) -> int | None:
    return counted(inputs) if inputs.counted == WATERMARK else None


def _wake(inputs: Inputs, _: Memory) -> int | None:
    """The first waiting call, or the twentieth at the same moment: one replica."""
    return max(1, inputs.min_replicas) if inputs.waiting and not inputs.hot_ready and not inputs.current else None


def _waking(inputs: Inputs, _: Memory) -> int | None:
    """More would start no earlier. Held until the first is ready, however long that takes, while somebody waits."""
    return inputs.current if inputs.waiting and not inputs.hot_ready else None


def _missing(inputs: Inputs, _: Memory) -> int | None:
    return inputs.current if inputs.panic_milli is None and inputs.silent_ms < inputs.missing_hold_ms else None


def _fallback(inputs: Inputs, _: Memory) -> int | None:
    """Never fewer than there are: ignorance takes nothing away."""
    return max(inputs.current, inputs.fallback or 0) if inputs.panic_milli is None else None


def _zero(inputs: Inputs, memory: Memory) -> int | None:
    if inputs.min_replicas or memory.idle_since_ms is None or not inputs.current:
        return None
    return 0 if inputs.now_ms - memory.idle_since_ms >= inputs.zero_grace_ms else None


def _idle(inputs: Inputs, _: Memory) -> int | None:
    """None, none needed, and nobody waits: what the windows remember is over."""
    return 0 if not inputs.current and not inputs.waiting and not inputs.min_replicas else None


def _no_profile(inputs: Inputs, _: Memory) -> int | None:
    """Never by the numbers of another card model."""
    return inputs.current if inputs.capacity_milli is None else None


def _panic(inputs: Inputs, memory: Memory) -> int | None:
    """A burst: up by the short window at once, down not before a whole stable window without one."""
    if memory.panic_at_ms is None or inputs.now_ms - memory.panic_at_ms >= inputs.stable_ms:
        return None
    return max(inputs.current, ceil_div(inputs.panic_milli or 0, inputs.each_milli))


def _up(inputs: Inputs, _: Memory) -> int | None:
    """What both windows show: a peak that the long one remembers, and a single false reading, add nothing later."""
    load = min(inputs.stable_milli or 0, inputs.panic_milli or 0)
    above = load * 100 > inputs.current * inputs.each_milli * (100 + inputs.tolerance_percent)
    return max(inputs.current, ceil_div(load, inputs.each_milli)) if above else None


def _filling(inputs: Inputs, _: Memory) -> int | None:
    """After a start the windows know a part of the load only."""
    return inputs.current if not inputs.stable_full and fewer(inputs) < inputs.current else None


def _delay(inputs: Inputs, memory: Memory) -> int | None:
    early = memory.lower_since_ms is not None and inputs.now_ms - memory.lower_since_ms < inputs.down_delay_ms
    return inputs.current if early else None


def _down(inputs: Inputs, _: Memory) -> int | None:
    least = fewer(inputs)
    return least if least < inputs.current else None


def _steady(inputs: Inputs, _: Memory) -> int | None:
    return inputs.current


Rule = Callable[[Inputs, Memory], int | None]

RULES: tuple[tuple[str, Rule], ...] = (
    # What people said comes before what load says.
    ("off", _off),
    ("fixed", _fixed),
    ("adopted", _adopted),
    # Calls are counted, not measured: none of what follows is asked.
    ("maxcount", _maxcount),
    ("watermark", _watermark),
    # A caller waits and nobody serves: needs no metric, only the queue.
    ("wake", _wake),
    ("waking", _waking),
    # Without a metric nothing below may speak.
    ("missing-hold", _missing),
    ("missing-fallback", _fallback),
    # Nothing to do needs no model of what a replica can do.
    ("zero", _zero),
    ("idle", _idle),
    ("no-profile", _no_profile),
    # More before fewer; a burst before the average.
    ("panic", _panic),
    ("up", _up),
    ("window-filling", _filling),
    ("delay", _delay),
    ("down", _down),
    ("steady", _steady),
)
