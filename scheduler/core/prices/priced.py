"""A mix with prices: what the idle part of a card is worth to what is coming, net of what fillers are scarce. Pure.

In: the classes that were learned, the hardware there is. Out: a `PricedMix`: tables by card model, CPU price and idle
thousandths, in millionths of a card. With y the duals of the linear program at an expected load of 1.05:

    v[u][r] = most that pods are worth that fit r idle thousandths of one card, each worth size - y - u x CPU or 0
    V(node) = min over u of ( u x free CPU + sum over cards of v[u][idle] )

(a Lagrangian relaxation of the node's CPU: every u gives an upper bound on what the node can still take, the smallest
is the best). Pods of several cards are pieces, as in the program. CPU prices are a fixed grid: the program's own are
those of whole pools, a node may be tighter.

Everything is whole numbers but the duals, which are rounded to millionths of a card: one solver gives the same ones
every time; another version of it may return another corner of the same optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.units import WHOLE_CARD
from scheduler.core.failing import PolicyFailed
from scheduler.core.mix import Class, Mix
from scheduler.core.prices.solver import NoSolver
from scheduler.core.prices.supply import Ask, Pool

EXPECTED_LOAD = 1.05
"""Of all cards: a little more than there is, so that what runs short has a price."""

MICRO = 1000
"""Millionths of a card in a thousandth."""

CPU_PRICES = (0, 10, 20, 30, 45, 60, 75, 90, 120, 160, 220, 320, 500, 1000)
"""Millionths of a card for a milli-core."""

STEP_MILLI = 10
"""Of the tables: idle shares are rounded down to it, sizes up, so that what is worth something also fits."""

STEPS = WHOLE_CARD // STEP_MILLI

Tables = tuple[tuple[int, ...], ...]
"""By idle steps, then by CPU price."""


class PricedMix(Mix):
    """A mix with its prices, for the hardware of `pools`.

    Raises:
        PolicyFailed: the linear program cannot be solved here.
    """

    def __init__(self, classes: tuple[Class, ...], pools: tuple[Pool, ...]) -> None:
        super().__init__(classes)
        self.pools = pools
        self._with_cards = [each for each in classes if each.cards]
        self.prices = self._solved()
        """Of each class with cards, millionths of a card a piece."""
        self._tables: dict[str, Tables] = {}

    def _solved(self) -> tuple[int, ...]:
        capacity = sum(pool.cards for pool in self.pools) * WHOLE_CARD
        asked = sum(each.weight * each.cards * each.share_milli for each in self._with_cards)
        if not asked or not capacity:
            return (0,) * len(self._with_cards)
        factor = EXPECTED_LOAD * capacity / asked
        asks = [
            Ask(
                cpu_milli=each.cpu_milli,
                cards=each.cards,
                share_milli=each.share_milli,
                models=each.models,
                count=each.weight * factor,
            )
            for each in self._with_cards
        ]
        from scheduler.core.prices.columns import solve  # noqa: PLC0415 - numpy, which most policies do without

        try:
            found = solve(self.pools, asks)
        except NoSolver as error:
            raise PolicyFailed("node-value", "no-solver", str(error)) from error
        return tuple(max(0, round(price * MICRO)) for price in found.prices)

    def tables(self, model: str) -> Tables:
        """What idle parts of a card of that model are worth."""
        found = self._tables.get(model)
        if found is None:
            found = self._tables[model] = self._filled(model)
        return found

    def _filled(self, model: str) -> Tables:
        pieces = [
            (-(-each.share_milli // STEP_MILLI), each.share_milli * MICRO - price, each.cpu_milli // each.cards)
            for each, price in zip(self._with_cards, self.prices, strict=True)
            if not each.models or model in each.models
        ]
        by_price = [_knapsack([(size, worth - u * cpu) for size, worth, cpu in pieces]) for u in CPU_PRICES]
        return tuple(zip(*by_price, strict=True))


def _knapsack(pieces: Sequence[tuple[int, int]]) -> list[int]:
    """By steps of room: the most that any number of these (size, worth) are worth together."""
    best_of: dict[int, int] = {}
    for size, worth in pieces:
        best_of[size] = max(best_of.get(size, 0), worth)
    items = [(size, worth) for size, worth in sorted(best_of.items()) if worth > 0]
    best = [0] * (STEPS + 1)
    for room in range(1, STEPS + 1):
        best[room] = max((best[room - size] + worth for size, worth in items if size <= room), default=0)
        best[room] = max(best[room], best[room - 1])
    return best
