"""The most card share that could be placed: a linear program over patterns, by column generation. Pure.

A pattern is what one card of a pool holds: some pieces with at most 1000 thousandths together. A pod of k cards is k
pieces, each with a k-th of its CPU. With x(s) = cards of pool p that hold pattern s:

    maximise   sum of size(s) x(s)
    such that  sum over s of p                 x(s) <= cards of p            dual pi(p)
               sum over s of p      CPU(s)     x(s) <= CPU of p              dual u(p)
               must(i) <= sum over all s  pieces of i in s  x(s) <= count(i) dual y(i), the scarcity price of i

There are too many patterns to write down. A new one is worth adding when its pieces, each worth size - y - u x CPU, are
worth more than pi: a knapsack over 1000 thousandths, solved exactly by dynamic programming for each pool. At any time

    sum of count(i) y(i) + sum of CPU(p) u(p) + sum of cards(p) x best knapsack of p

is an upper bound, and the program stops when it is within `GAP` of what is found (Gilmore and Gomory, 1961).
Every pod split into pieces, CPU added up and pods chosen in hindsight only loosen: no policy can place more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from contracts.units import WHOLE_CARD
from scheduler.core.prices.knapsack import counted, filled
from scheduler.core.prices.solver import NoSolver, solver_there
from scheduler.core.prices.supply import Ask, Pool

if TYPE_CHECKING:
    from highspy import Highs
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

GAP = 1e-5
"""Of the capacity: a thousandth of a percent."""

ROUNDS = 2000
"""More than ten times what the openb traces take."""

MISSING = 100.0
"""What a thousandth of `must` that is not placed costs, against 1 for one that is placed: more than any price."""


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """The optimum and its duals."""

    placed_milli: float
    """Upper bound on what could be placed."""
    feasible: bool
    """Whether all that must be placed can be."""
    prices: tuple[float, ...]
    """y of each ask: thousandths of a card that one piece more of it would add."""
    cpu_prices: tuple[float, ...]
    """u of each pool: thousandths of a card that one milli-core more would add."""
    patterns: int
    """Columns that were looked at."""


def solve(pools: Sequence[Pool], asks: Sequence[Ask]) -> Solution:
    """The program for these pools and asks.

    Raises:
        NoSolver: highspy is not installed.
    """
    if not solver_there():
        raise NoSolver
    program = _Program(pools, asks)
    capacity = max(1, sum(pool.cards for pool in pools) * WHOLE_CARD)
    bound = math.inf
    for _ in range(ROUNDS):
        program.optimise()
        proved, added = program.extend()
        bound = min(bound, proved)
        if not added or bound - program.value <= GAP * capacity:
            break
    return program.solution(bound)


class _Program:
    """The restricted program: the columns found so far."""

    def __init__(self, pools: Sequence[Pool], asks: Sequence[Ask]) -> None:
        self._pools, self._asks = pools, asks
        self._step = math.gcd(WHOLE_CARD, *(ask.share_milli for ask in asks))
        self._cpu = np.array([ask.cpu_milli / 1000 / ask.cards for ask in asks])
        self._size = np.array([float(ask.share_milli) for ask in asks])
        self._open = [[i for i, ask in enumerate(asks) if not ask.models or p.model in ask.models] for p in pools]
        self._known: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        self._highs = _begun(pools, asks)
        self.value = 0.0
        self._duals: Vector = np.zeros(2 * len(pools) + len(asks))
        for pool, allowed in enumerate(self._open):
            for i in allowed:
                self._add(pool, {i: WHOLE_CARD // asks[i].share_milli})

    def optimise(self) -> None:
        """Solve it as it is."""
        self._highs.run()
        self.value = self._highs.getInfo().objective_function_value
        self._duals = np.array(self._highs.getSolution().row_dual)

    def extend(self) -> tuple[float, bool]:
        """The best new pattern of each pool, and the bound that the knapsacks prove; whether any was new."""
        pools = len(self._pools)
        pi, u, y = self._duals[:pools], self._duals[pools : 2 * pools], self._duals[2 * pools :]
        bound = self._dual_of_rows(u, y)
        added = False
        for pool in range(pools):
            worth, pattern = self._knapsack(self._open[pool], self._size - y - u[pool] * self._cpu)
            bound += self._pools[pool].cards * max(worth, 0.0)
            if worth > pi[pool] + 1e-9 * WHOLE_CARD:
                added |= self._add(pool, pattern)
        return bound, added

    def _dual_of_rows(self, u: Vector, y: Vector) -> float:
        cpu = sum(pool.cpu_milli / 1000 * price for pool, price in zip(self._pools, u, strict=True))
        rows = zip(self._asks, y, strict=True)
        return float(cpu + sum(ask.cards * price * (ask.count if price > 0 else ask.must) for ask, price in rows))

    def _knapsack(self, allowed: list[int], worth: Vector) -> tuple[float, dict[int, int]]:
        """The most that pieces are worth that fit one card; the first of equals, so that the order of asks decides."""
        best_of: dict[int, int] = {}
        for i in allowed:
            size = self._asks[i].share_milli // self._step
            if worth[i] > 0 and (size not in best_of or worth[i] > worth[best_of[size]]):
                best_of[size] = i
        if not best_of:
            return 0.0, {}
        sizes = np.array(sorted(best_of))
        gains = worth[[best_of[size] for size in sizes]]
        best, chosen = filled(WHOLE_CARD // self._step, sizes, gains)
        return best, counted(chosen, sizes, best_of)

    def _add(self, pool: int, pattern: dict[int, int]) -> bool:
        """One more column; false when it is there."""
        key = (pool, tuple(sorted(pattern.items())))
        if not pattern or key in self._known:
            return False
        self._known.add(key)
        cpu = sum(count * self._cpu[i] for i, count in pattern.items())
        rows = [pool, len(self._pools) + pool, *(2 * len(self._pools) + i for i in pattern)]
        size = sum(count * self._asks[i].share_milli for i, count in pattern.items())
        _column(self._highs, size, rows, [1.0, cpu, *map(float, pattern.values())])
        return True

    def solution(self, bound: float) -> Solution:
        """As it stands."""
        pools = len(self._pools)
        missing = sum(self._highs.getSolution().col_value[: len(self._asks)])
        return Solution(
            placed_milli=max(self.value, bound),
            feasible=missing < 1e-6,  # noqa: PLR2004 - pieces
            prices=tuple(float(price) for price in self._duals[2 * pools :]),
            cpu_prices=tuple(float(price) / 1000 for price in self._duals[pools : 2 * pools]),
            patterns=len(self._known),
        )


def _begun(pools: Sequence[Pool], asks: Sequence[Ask]) -> Highs:
    """Rows, and one column for each ask that stands for what must be placed and is not."""
    import highspy  # noqa: PLC0415 - an extra

    class Quiet(highspy.Highs):
        """Made without callbacks: making them prints a banner to stdout before it can be told to be silent."""

        def __init__(self) -> None:
            super(highspy.Highs, self).__init__()
            self.setOptionValue("output_flag", False)

    highs = Quiet()
    highs.setOptionValue("threads", 1)
    highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
    none = np.array([], dtype=np.int32)
    for limit in [*(pool.cards for pool in pools), *(pool.cpu_milli / 1000 for pool in pools)]:
        highs.addRow(-highspy.kHighsInf, float(limit), 0, none, np.array([]))
    for ask in asks:
        highs.addRow(ask.must * ask.cards, max(ask.count, ask.must) * ask.cards, 0, none, np.array([]))
    for i, ask in enumerate(asks):
        _column(highs, -MISSING * ask.share_milli, [2 * len(pools) + i], [1.0], most=ask.must * ask.cards)
    return highs


def _column(highs: Highs, cost: float, rows: list[int], values: list[float], most: float = math.inf) -> None:
    highs.addCol(cost, 0.0, most, len(rows), np.array(rows, dtype=np.int32), np.array(values))
