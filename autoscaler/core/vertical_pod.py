"""One pod: from what it was sold, uses and has saved to the limits it wants next. Pure, whole numbers in and out.

In: `PodView`, thousandths of a core and of a card. Out: `Wish`, what it wants before others on its card are asked, with
the figures that led there. Income is the tokens that its owner wrote on it, else what it was sold at the prices of
`vertical_tokens`, times `income_percent`.

A pod with pieces of several cards has one limit for all of them and pays for each: its use is that of the busiest card.
A card whose limits cannot change while a process runs is a resource without a choice: limit and share are one.

Rounding: a limit is rounded down to thousandths, after a millionth of one is forgiven, so that 249.9999999 is 250 and
whole limits never cost more than there is. Savings are kept in thousandths of a token, rounded down.
"""

from __future__ import annotations

from msgspec.structs import replace

from autoscaler.core.vertical_tokens import CPU_PRICE, GPU_PRICE, Resource, cost, saved, solve, weights
from autoscaler.core.vertical_values import WHOLE, Economy, Limits, PodView, Purse, Wish

_FORGIVEN = 1e-6
_AWAKE_PERCENT = 90
"""Use of so much of its limit: it wants more than it has."""
_NEAR_PERCENT, _NEAR_MILLI = 5, 20
"""A limit moves only by more than this: each move is a message and a write on the node."""


def income_milli(pod: PodView, economy: Economy) -> int:
    """Thousandths of a token a second. A percent costs its price: ten thousandths of a core are one token."""
    if pod.tokens is not None:
        return pod.tokens * 1000
    sold = CPU_PRICE * pod.cpu_sold_milli + GPU_PRICE * sum(part.sold_milli for part in pod.cards)
    return sold * economy.income_percent


def wish(
    pod: PodView, purse: Purse, stands: Limits, economy: Economy, *, cpu_capacity_milli: int | None, now_ms: int
) -> Wish:
    """What it wants.

    Args:
        pod: as it was sold and is used now.
        purse: of the decision before; an empty one at first.
        stands: the limits that hold now.
        economy: the settings.
        cpu_capacity_milli: the most that a pod of this node can have; None = not known.
        now_ms: monotonic, the clock of the purse.
    """
    resources = _resources(pod, purse, stands, economy, cpu_capacity_milli or 0)
    income = income_milli(pod, economy) / 1000
    savings = _saved(purse, resources, income, now_ms)
    told = Wish(
        cpu_milli=_or(purse.granted.cpu_milli, pod.cpu_sold_milli),
        gpu_milli=_or(purse.granted.gpu_milli, pod.share_milli),
        income_milli=round(income * 1000),
        savings_milli=int(savings * 1000),
    )
    if cpu_capacity_milli is None or (pod.cpu_used_milli is None and pod.gpu_used_milli is None):
        return told
    weighed = weights(resources, economy.static_v)
    period_s = economy.period_ms / 1000
    found = solve(resources, weighed, economy.savings_k * savings + income * period_s, period_s)
    return replace(
        told,
        cpu_milli=_next(found.limits[0], pod.cpu_used_milli, purse.granted.cpu_milli, told.cpu_milli),
        gpu_milli=_next(found.limits[1], pod.gpu_used_milli, purse.granted.gpu_milli, told.gpu_milli)
        if pod.elastic
        else pod.share_milli,
        weights=(round(weighed[0] * 1000), round(weighed[1] * 1000) if pod.cards else 0),
        rule=found.rule,
        known=True,
    )


def _next(percent: float, used: int | None, before: int | None, stays: int) -> int:
    """From a solution to a limit; without a use it stays."""
    return stays if used is None else _steady(_staged(milli(percent), used), before)


def awake(used: int, stands: int | None) -> bool:
    """Whether it is held back by the limit that stands."""
    return stands is not None and used * 100 >= stands * _AWAKE_PERCENT


def milli(percent: float) -> int:
    """Thousandths, as the head of this module says."""
    return int(percent * 10 + _FORGIVEN)


def _resources(pod: PodView, purse: Purse, stands: Limits, economy: Economy, capacity: int) -> tuple[Resource, ...]:
    cpu_low = _low(economy, pod.cpu_sold_milli, pod.cpu_used_milli, stands.cpu_milli, capacity)
    held = _or(purse.granted.cpu_milli, pod.cpu_sold_milli) if pod.cpu_used_milli is None else None
    cpu = _resource(CPU_PRICE, pod.cpu_used_milli, pod.cpu_average_milli, (cpu_low, capacity / 10), held)
    if not pod.cards:
        return (cpu,)
    price, low = GPU_PRICE * len(pod.cards), _low(economy, pod.share_milli, pod.gpu_used_milli, stands.gpu_milli, WHOLE)
    held = None if pod.elastic else pod.share_milli
    if pod.elastic and pod.gpu_used_milli is None:
        held = _or(purse.granted.gpu_milli, pod.share_milli)
    return (cpu, _resource(price, pod.gpu_used_milli, pod.gpu_average_milli, (low, WHOLE / 10), held))


def _resource(
    price: int, used: int | None, average: int | None, bounds: tuple[float, float], held: int | None
) -> Resource:
    """One that has no choice, or whose use is not known, is held where it is."""
    low, high = bounds if held is None else (held / 10, held / 10)
    use = _or(used, _or(held, 0)) / 10
    return Resource(price=price, used=use, average=_or(average, _or(used, 0)) / 10, low=low, high=high)


def _low(economy: Economy, sold: int, used: int | None, stands: int | None, capacity: int) -> float:
    """The floor; what it was sold, for one that was held below it and wakes."""
    wakes = economy.below_sold and awake(used or 0, stands)
    return min(max(economy.floor_percent, sold / 10 if wakes else 0), capacity / 10)


def _saved(purse: Purse, resources: tuple[Resource, ...], income: float, now_ms: int) -> float:
    granted = (purse.granted.cpu_milli, purse.granted.gpu_milli)[: len(resources)]
    elapsed_s = None if purse.at_ms is None else (now_ms - purse.at_ms) / 1000
    return saved(purse.savings_milli / 1000, income, cost(resources, [(n or 0) / 10 for n in granted]), elapsed_s)


def _staged(wanted: int, used: int) -> int:
    """Below its present use a limit comes down by half of that at most: what runs is slowed in steps."""
    return max(wanted, used - used // 2) if wanted < used else wanted


def _steady(wanted: int, before: int | None) -> int:
    if before is None:
        return wanted
    return before if abs(wanted - before) <= max(_NEAR_MILLI, before * _NEAR_PERCENT // 100) else wanted


def _or(number: int | None, other: int) -> int:
    return other if number is None else number
