"""A ranking with the surroundings applied: what rules out is left out, what is preferred comes first.

In: a ranking of the bare shape (best first), the surroundings of one decision, how many are wanted. Out: the keys of
the best, best first, and how many nodes are left in all.

Without surroundings this is the ranking itself. With preferences only, reading ends as soon as no later node can be
lifted above the last one wanted; with conditions every node is looked at, about 0.2 us each, so that the number of
nodes that fit is the true one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest

import msgspec

from scheduler.core.around import NONE, PREFERENCE, Surroundings
from scheduler.core.ranking import SEAT_BITS, Ranking, Rankings


class Applied(msgspec.Struct, frozen=True):
    """What one decision chooses from."""

    order: Sequence[int]
    """Keys of the best nodes, best first: all of them, or as many as were wanted."""
    feasible: int
    """All nodes that are left."""


def applied(
    ranking: Ranking,
    rankings: Rankings,
    around: Surroundings,
    *,
    wanted: int | None = None,
    only: Collection[str] | None = None,
) -> Applied:
    """The best `wanted` nodes (None: all), of the nodes named in `only` if it is given."""
    if around is NONE and only is None:
        return Applied(ranking.order, len(ranking.order))
    keys: Collection[int] = ranking.order
    if only is not None or around.hard:
        keys = _left(ranking, around, only)
    if not around.soft:
        return Applied(sorted(keys) if wanted is None else nsmallest(wanted, keys), len(keys))
    ordered = keys if keys is ranking.order else sorted(keys)
    return Applied(_lifted(ordered, rankings, around, len(keys) if wanted is None else wanted), len(keys))


def _left(ranking: Ranking, around: Surroundings, only: Collection[str] | None) -> Collection[int]:
    """Keys of the nodes that no condition rules out, in any order: a pass over all nodes for each condition."""
    left = ranking.keys
    if only is not None:
        left = {name: left[name] for name in only if name in left}
    for hard in around.hard:
        domain_of, closed = hard.domains.get, hard.closed
        left = {name: key for name, key in left.items() if domain_of(name) not in closed}
    return left.values()


def _lifted(keys: Iterable[int], rankings: Rankings, around: Surroundings, limit: int) -> list[int]:
    """The first `limit` keys in the order with preferences; `keys` come in the order without."""
    best: list[int] = []
    most = around.top * PREFERENCE << SEAT_BITS
    for key in keys:
        if len(best) == limit and (not limit or key - most >= best[-1]):
            break
        insort(best, key - (around.points(rankings.read(key)[0]) * PREFERENCE << SEAT_BITS))
        del best[limit:]
    return best


def equals(order: Sequence[int]) -> int:
    """How many share the best score; the first of an order that holds them all."""
    best = order[0] >> SEAT_BITS
    return next((at for at, key in enumerate(order) if key >> SEAT_BITS != best), len(order))
