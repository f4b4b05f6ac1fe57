"""The order in which a trace arrives when it knows no time: shuffled, and made longer or shorter to a demand. Pure.

In: the pods of a trace, the capacity of a cluster, a ratio, a seed. Out: arrivals, one after the other, every one a pod
of the trace; a pod may come again. The protocol is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023):

    1. the pods by name, then shuffled
    2. drawn from the trace at random and put behind, until the demand would pass ratio x capacity. The test counts one
       card of the pod that was drawn, so that one of several cards can pass the mark; the one that fails is left out
    3. a trace that asks for more from the start loses pods at random instead: the last ones of the shuffled order

`drawn_as_published` draws with Go's generator in the order in which the publishers' program does, so that their seed 42
is ours, pod by pod, and with it the order of the nodes among equals:

    1. one number for a line of the log
    2. the shuffle, then the pods behind it; of a trace that asks for too much, one pod at random after the other leaves
    3. ten numbers that the list watchers of its scheduler take when they start (found by trying: with ten, and no other
       number up to 25, all their figures come out)
    4. the numbers in front of the nodes' names, in the order of the names
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from gpubus.simulate.gorand import GoRandom
from gpubus.simulate.openb import PodRow

Draws = Literal["own", "published"]
"""Whose random numbers order pods and nodes."""

WATCHERS = 10


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
    return order + _more(named, demand, limit, drawing.randrange) if demand else order


def drawn_as_published(
    rows: Sequence[PodRow], nodes: Sequence[str], *, capacity_milli: int, ratio: float, seed: int
) -> tuple[list[PodRow], dict[str, int]]:
    """Pods in order of arrival, and the rank of each node among equals."""
    go = GoRandom(seed)
    go.bits()
    named = sorted(rows, key=lambda row: row.name)
    order = go.shuffled(named)
    limit = ratio * capacity_milli
    demand = sum(row.demand_milli for row in order)
    while demand > limit:
        demand -= order.pop(go.below(len(order))).demand_milli
    if 0 < demand < limit and len(order) == len(rows):
        order += _more(named, demand, limit, go.below)
    for _ in range(WATCHERS):
        go.bits()
    return order, dict(zip(sorted(nodes), go.permutation(len(nodes)), strict=True))


def _shortened(order: list[PodRow], demand: int, limit: int) -> list[PodRow]:
    """Without the last ones, as many as it takes."""
    kept = list(order)
    while kept and demand > limit:
        demand -= kept.pop().demand_milli
    return kept


def _more(rows: Sequence[PodRow], demand: int, limit: float, below: Callable[[int], int]) -> list[PodRow]:
    """Pods drawn with replacement until the next one would pass the limit."""
    drawn: list[PodRow] = []
    while True:
        row = rows[below(len(rows))]
        if demand + row.share_milli > limit:
            return drawn
        demand += row.demand_milli
        drawn.append(row)
