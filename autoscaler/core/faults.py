"""What is wrong with a function as it was asked for: settings that contradict each other.

In: a function whose single fields are legal. Out: sentences with field, value and bound; empty = none. The front door
publishes no function with faults; of one that came another way `max_replicas` bounds every number.
"""

from __future__ import annotations

from contracts.workloads import Function

Row = tuple[str, int | None, str, int]


def faults(function: Function) -> tuple[str, ...]:
    """One sentence for each number above its bound, and for each that nothing would come of."""
    scaling = function.scaling
    most: tuple[Row, ...] = (
        ("min_replicas", function.min_replicas, "max_replicas", function.max_replicas),
        ("replicas", function.replicas, "max_replicas", function.max_replicas),
        ("scaling.fallback_replicas", scaling.fallback_replicas, "max_replicas", function.max_replicas),
        ("scaling.panic_s", scaling.panic_s, "scaling.stable_s", scaling.stable_s),
    )
    above = [
        f"{field} is {value}: at most {bound}, which is {name}"
        for field, value, name, bound in most
        if value is not None and value > bound
    ]
    return (*above, *(["target_percent is 0: at least 1"] if function.target_percent == 0 else []), *_idle(function))


def _idle(function: Function) -> tuple[str, ...]:
    """What cards must have free, where no rule looks at cards."""
    wanted = function.promotion
    if wanted.rule != "steadiest":
        return ()
    given = (("free_mib", wanted.free_mib or None), ("card_slots", wanted.card_slots))
    return tuple(
        f"promotion.{field} is {value}: only with promotion.rule best-fit or first-fit"
        for field, value in given
        if value is not None
    )
