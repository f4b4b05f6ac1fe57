"""The order in which a trace arrives when it knows no time: shuffled, and made longer or shorter to a demand. Pure.

In: the pods of a trace, the capacity of a cluster, a ratio, a seed. Out: arrivals, one after the other, every one a pod
of the trace; a pod may come again. The protocol is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023):

    1. the pods by name, then shuffled
    2. drawn from the trace at random and put behind, until the demand would pass ratio x capacity. The test counts one
       card of the pod that was drawn, so that one of several cards can pass the mark; the one that fails is left out
    3. a trace that asks for more from the start loses pods at random instead: the last ones of the shuffled order

The publishers' draws are those of Go's math/rand and cannot be drawn again in another language: means over seeds are
comparable, single seeds are not.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from gpubus.simulate.openb import PodRow


def arrivals(rows: Sequence[PodRow], *, capacity_milli: int, ratio: float, seed: int) -> list[PodRow]:
    """Pods in the order of their arrival, asking together for about `ratio` x `capacity_milli` thousandths of cards."""
    drawing = random.Random(seed)
    named = sorted(rows, key=lambda row: row.name)
    order = list(named)
    drawing.shuffle(order)
    limit = round(ratio * capacity_milli)
    demand = sum(row.demand_milli for row in order)
    if demand > limit:
        return _shortened(order, demand, limit)
    return order + _more(named, demand, limit, drawing) if demand else order


def _shortened(order: list[PodRow], demand: int, limit: int) -> list[PodRow]:
    """Without the last ones, as many as it takes."""
    kept = list(order)
    while kept and demand > limit:
        demand -= kept.pop().demand_milli
    return kept


def _more(rows: Sequence[PodRow], demand: int, limit: int, drawing: random.Random) -> list[PodRow]:
    """Pods drawn with replacement until the next one would pass the limit."""
    drawn: list[PodRow] = []
    while True:
        row = drawing.choice(rows)
        if demand + row.share_milli > limit:
            return drawn
        demand += row.demand_milli
        drawn.append(row)
