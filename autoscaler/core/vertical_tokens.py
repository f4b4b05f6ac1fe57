"""The token economy of one pod: what its limits cost, what it has saved, and the limits that its income pays for. Pure.

In: for each resource its price, present use, running mean and bounds, all in percent of one core or one card; income in
tokens a second; what is saved. Out: the new savings, the weights, the next limits. One percent of a resource for one
second costs its price, 1 for CPU and 3 for a card, so a limit is paid for, used or not.

    savings   Q <- clamp(Q + R dt - dt sum(p x), 0, R)          at most one second's income is kept
    weight    static:  w = p V
              dynamic: w = W p S / (a + 1), S = sum(a + 1), W = 15 sum((a + 1) / (u + 1))
    limit     with A = k Q + R T, the x that minimise  sum w (x - u)^2 - A sum p x  with  T sum p x <= A

The formulas are those of KuScale (Konkuk University, "Vertical Autoscaling of GPU Resources for Machine Learning in the
Cloud"): drift plus penalty, V weighing the closeness of limit and use against spending. With these repairs:

    k             is a setting; it is 0 there, so that savings never count
    first look    costs and earns nothing; there the first interval begins in 1970
    bounds        are part of the problem: a limit at its floor or cap is fixed, and the others are solved anew with
                  what is left, where flooring afterwards spends more than there is:
                  income 100, use (10, 90): (-35, 45), floored (10, 45) costs 145; solved anew (10, 30) costs 100
    floors        that cost more than there is stay: they are what the pod was sold, and no use is below them for free

Floats only here; whoever writes a limit rounds it (`vertical_limits`). Only + - * / are used, which every IEEE machine
rounds alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from contracts.messages import Value

CPU_PRICE, GPU_PRICE = 1, 3
FLOOR_PERCENT = 10
"""The least limit."""
_BURST = 15
"""KuScale's constant in the dynamic weight."""

Rule = Literal["free", "bound", "floors"]
"""free: the headroom that is wanted costs no more than there is. bound: all of the income is spent. floors: the bounds
alone cost as much as there is, or more."""


class Resource(Value, frozen=True, kw_only=True):
    """One resource of a pod, in percent of one core or one card; those of several cards are added up."""

    price: int
    used: float
    average: float = 0.0
    low: float = FLOOR_PERCENT
    high: float = float("inf")


class Solution(Value, frozen=True, kw_only=True):
    """The next limits, in the order of the resources."""

    limits: tuple[float, ...]
    rule: Rule


def saved(savings: float, income: float, cost: float, elapsed_s: float | None) -> float:
    """The savings after an interval in which limits that cost `cost` a second stood; None = there was none yet."""
    if elapsed_s is None:
        return min(max(savings, 0.0), income)
    return min(max(savings + (income - cost) * max(0.0, elapsed_s), 0.0), income)


def cost(resources: Sequence[Resource], limits: Sequence[float]) -> float:
    """Tokens a second for these limits."""
    return sum(r.price * limit for r, limit in zip(resources, limits, strict=True))


def weights(resources: Sequence[Resource], static_v: float) -> tuple[float, ...]:
    """How dear headroom is to each; `static_v` 0 = by use and mean.

    What is mostly idle gets little headroom, and a burst, use above the mean, makes all headroom cheaper.
    """
    if static_v > 0:
        return tuple(r.price * static_v for r in resources)
    whole = sum(r.average + 1 for r in resources)
    burst = _BURST * sum((r.average + 1) / (r.used + 1) for r in resources)
    return tuple(burst * r.price * whole / (r.average + 1) for r in resources)


def solve(resources: Sequence[Resource], weighed: Sequence[float], budget: float, period_s: float) -> Solution:
    """The limits for one period.

    Args:
        resources: at least one.
        weighed: their weights, each above 0.
        budget: A, tokens that may be spent in the period.
        period_s: T, above 0.
    """
    free = tuple(_within(r, r.used + r.price * budget / (2 * w)) for r, w in zip(resources, weighed, strict=True))
    rate = budget / period_s
    if cost(resources, free) <= rate:
        return Solution(limits=free, rule="free")
    return _bound(resources, weighed, rate)


def _bound(resources: Sequence[Resource], weighed: Sequence[float], rate: float) -> Solution:
    """Spend `rate` exactly.

    Each turn fixes those that the line puts beyond one side of their bounds, the side that is further out in total, as
    in projecting onto a simplex: what was fixed so is fixed in the optimum too.
    """
    fixed: dict[int, float] = {}
    while len(fixed) < len(resources):
        loose = [i for i in range(len(resources)) if i not in fixed]
        left = rate - sum(resources[i].price * x for i, x in fixed.items())
        line = _line([resources[i] for i in loose], [weighed[i] for i in loose], left)
        beyond = {i: _within(resources[i], x) - x for i, x in zip(loose, line, strict=True)}
        out = sum(resources[i].price * gap for i, gap in beyond.items())
        side = {i for i, gap in beyond.items() if (gap > 0 if out >= 0 else gap < 0)}
        if not side:
            return Solution(limits=_merged(fixed, dict(zip(loose, line, strict=True))), rule="bound")
        fixed |= {i: (resources[i].low if out >= 0 else resources[i].high) for i in sorted(side)}
    return Solution(limits=_merged(fixed, {}), rule="floors")


def _line(loose: Sequence[Resource], weighed: Sequence[float], left: float) -> list[float]:
    """The optimum without bounds: x = u + (p / w) (left - sum p u) / sum(p^2 / w)."""
    gap = left - sum(r.price * r.used for r in loose)
    total = sum(r.price * r.price / w for r, w in zip(loose, weighed, strict=True))
    return [r.used + r.price / w * gap / total for r, w in zip(loose, weighed, strict=True)]


def _within(resource: Resource, limit: float) -> float:
    return max(resource.low, min(resource.high, limit))


def _merged(*parts: dict[int, float]) -> tuple[float, ...]:
    found = {i: x for part in parts for i, x in part.items()}
    return tuple(found[i] for i in sorted(found))
