"""What no policy could pass: the linear program of `scheduler.core.prices` over the arrivals of a run. Pure.

In: nodes and pods in order of arrival. Out: a `Curve`, as of a policy, at a few percents of demand arrived.

    bound      any choice among the pods that have arrived, in hindsight
    bound-90   any choice that refuses none of the first 90 % of demand: no points where those do not fit together

Below `FREE` percent nearly everything fits, and the bound is what has arrived. Memory, and pods without cards, are left
out of the program: that only loosens it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from contracts.units import WHOLE_CARD
from gpubus.local.nodes import NodeSpec
from gpubus.simulate.openb import PodRow
from gpubus.simulate.protocol import Curve, Point
from scheduler.core.prices.supply import Ask, Pool

ANY = "bound"
PLACED_FIRST = "bound-90"
BOUNDS = (ANY, PLACED_FIRST)
FIRST_PERCENT = 90

FREE = 90
STEPS = (92, 94, 95, 96, 97, 98, 100, 105, 110, 120)
"""Percents where the curve bends; the last one is that of the run."""

Class = tuple[int, int, int, tuple[str, ...]]


def bound(kind: str, order: Sequence[PodRow], specs: Sequence[NodeSpec], *, last_percent: int) -> Curve:
    """One of `BOUNDS`.

    Raises:
        NoSolver: highspy is not installed.
    """
    from scheduler.core.prices.columns import solve  # noqa: PLC0415 - numpy, which most runs do without

    pools = pools_of(specs)
    capacity = sum(pool.cards for pool in pools) * WHOLE_CARD
    points = [_point(p, capacity * p // 100, capacity) for p in range(FREE + 1)] if kind == ANY else []
    for percent in (*(step for step in STEPS if step < last_percent), last_percent):
        first = capacity * FIRST_PERCENT // 100 if kind == PLACED_FIRST else 0
        found = solve(pools, asks_of(order, capacity * percent // 100, first))
        if found.feasible and percent > FREE:
            points.append(_point(percent, round(found.placed_milli), capacity))
    return Curve(arrived=len(order), refused=0, points=tuple(points))


def pools_of(specs: Sequence[NodeSpec]) -> tuple[Pool, ...]:
    """Equal nodes together."""
    kinds = Counter((spec.model.name, spec.cards, spec.cpu_milli) for spec in specs)
    return tuple(
        Pool(model=model, cards=cards * count, cpu_milli=cpu * count)
        for (model, cards, cpu), count in sorted(kinds.items())
    )


def asks_of(order: Sequence[PodRow], until_milli: int, first_milli: int = 0) -> list[Ask]:
    """What arrives before the demand passes `until_milli`; what does before it passes `first_milli` must be placed."""
    counts: Counter[Class] = Counter()
    musts: Counter[Class] = Counter()
    demand = 0
    for row in order:
        demand += row.demand_milli
        if demand > until_milli:
            break
        if row.cards:
            kind = (row.cpu_milli, row.cards, row.share_milli, row.models)
            counts[kind] += 1
            musts[kind] += demand <= first_milli
    return [
        Ask(
            cpu_milli=cpu,
            cards=cards,
            share_milli=share,
            models=frozenset(models),
            count=counts[cpu, cards, share, models],
            must=musts[cpu, cards, share, models],
        )
        for cpu, cards, share, models in sorted(counts)
    ]


def _point(percent: int, placed_milli: int, capacity_milli: int) -> Point:
    return Point(
        arrived_percent=percent,
        allocated_percent=100 * placed_milli / capacity_milli,
        idle_milli=capacity_milli - placed_milli,
        fragment_milli=0,
    )
