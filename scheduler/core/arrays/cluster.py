"""One form of the policy over one state: rows, tables, sums, prices, and the boards of the shapes that were asked for.

    refresh, leave   nodes that changed, as `Rankings` hears of them
    learn            tables of what is coming, a piece at each call; other tables once they are in force
    cheapest         the best node of a shape
    outlook          tables and prices for the rules in Python

What decides is a function of the state alone: tables follow from `learned`, prices from sums over the rows, and
the rows from the nodes. Whoever begins anywhere in the log computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bus.ledger.state import LedgerState, NodeState
from contracts.units import WHOLE_CARD
from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.board import Board, Boards
from scheduler.core.arrays.rows import Lives, Rows
from scheduler.core.arrays.tables import Reach, Tables, build, building, finish
from scheduler.core.cheapest import Cheapest
from scheduler.core.locality import Requests
from scheduler.core.menu.demand import Prices
from scheduler.core.menu.outlook import Outlook
from scheduler.core.menu.terms import MenuTerms
from scheduler.core.request import Shape

SEATS = (1 << k.SEAT_BITS) - 1
"""Of a key."""

Scorer = Callable[[str], int | None]
"""The score that the rules in Python give a node, by name; None: no room."""


class Ready(msgspec.Struct, frozen=True):
    """What is not in force yet."""

    tables: Tables
    reach: Reach
    kinds: int
    """Of nodes, that `reach` was made for."""
    chassis: int
    lives: Lives


class Cluster:
    """See the module."""

    def __init__(self, terms: MenuTerms) -> None:
        self.terms = terms
        self.rows = Rows()
        self.tables: Tables = build(terms, {}, {})
        self.reach: Reach = self.tables.reach([], [])
        self._kinds = 0
        """Of nodes, that tables and boards know: a board holds a bit for each."""
        self.totals: NDArray[Any] = np.zeros(k.T_GROUPS + 2, np.int64)
        self.prices: NDArray[Any] = np.zeros(k.P_GROUPS + 2, np.int64)
        self.memo: NDArray[Any] = np.full((k.MEMO, 1), -1, np.int64)
        self.inside: NDArray[Any] = np.zeros(0, np.int64)
        self._absorbed = -1
        self.boards = Boards(self.rows, len(self.prices))
        self._generation = 0
        self._news = -1
        self._learned_at = 0
        self._coming_at = 0
        self._preparing: Generator[None, None, Ready] | None = None
        self._ready: Ready | None = None
        self._outlook: Outlook | None = None

    # --- following the state ---------------------------------------------------------------------------------------

    def refresh(self, node: NodeState, requests: Requests) -> None:
        """A node as it is now."""
        self.rows.refresh(node, requests)

    def leave(self, name: str) -> None:
        """A node is gone."""
        self.rows.leave(name)

    def learn(self, state: LedgerState) -> None:
        """Go by what is in force; prepare what is coming."""
        if state.learned_at != self._learned_at:
            self._learned_at = state.learned_at
            self._come_into_force(state)
        if state.coming_at not in (self._coming_at, state.learned_at):
            self._coming_at, self._ready = state.coming_at, None
            self._preparing = self._prepared(state, state.coming, state.coming_service)
        elif self._preparing is not None:
            try:
                next(self._preparing)
            except StopIteration as done:
                self._preparing, self._ready = None, done.value

    def _prepared(
        self, state: LedgerState, counts: Mapping[str, int], service: Mapping[str, tuple[int, int]]
    ) -> Generator[None, None, Ready]:
        """All that follows from a learned mix, piece by piece: some 40 pieces, each below 2 ms."""
        tables = yield from building(self.terms, counts, service)
        yield
        kinds, chassis = len(self.rows.kinds), len(self.rows.chassis)
        reach = tables.reach(self.rows.kinds, self.rows.chassis)
        yield
        lives = yield from self.rows.lives(tables.leaves, state.requests)
        return Ready(tables, reach, kinds, chassis, lives)

    def _come_into_force(self, state: LedgerState) -> None:
        ready, self._ready = self._ready, None
        if self._coming_at != state.learned_at:
            ready = finish(self._prepared(state, state.learned, state.learned_service))
        elif self._preparing is not None:
            ready, self._preparing = finish(self._preparing), None
        if ready is None:
            raise AssertionError(f"what was learned at {state.learned_at} was not prepared")
        self.tables = ready.tables
        self.rows.learn(self.tables.leaves, ready.lives, state.requests)
        known = (len(self.rows.kinds), len(self.rows.chassis)) == (ready.kinds, ready.chassis)
        self._extend(ready.reach if known else None)

    def _extend(self, reach: Reach | None = None) -> None:
        """Other tables, kinds of nodes or chassis: nothing that was computed from them stands."""
        self.reach = reach or self.tables.reach(self.rows.kinds, self.rows.chassis)
        self._kinds = len(self.rows.kinds)
        groups = self.reach.demand.ties.count + 1
        self.totals = np.zeros(k.T_GROUPS + 2 * groups, np.int64)
        self.prices = np.zeros(k.P_GROUPS + 2 * groups, np.int64)
        self.memo = np.full((k.MEMO, groups), -1, np.int64)
        self.inside = np.zeros(len(self.reach.tied), np.int64)
        self.rows.data[:, [k.SUMMED, k.SUM_GROUP]] = 0
        self.rows.all_changed()
        self.boards = Boards(self.rows, len(self.prices), self.boards)
        self._absorbed = -1
        self._outlook = None

    def absorb(self) -> None:
        """Sums and prices of the rows as they are."""
        self._prepare()
        if self._absorbed != self.rows.logged:
            self._settle(-1, 0)

    def _prepare(self) -> None:
        """Arrays that fit the cluster."""
        self._news = self.rows.news
        if len(self.rows.kinds) > self._kinds or not self._known_chassis():
            self._extend()
        if self._generation != self.rows.generation:
            self._generation = self.rows.generation
            self.boards = Boards(self.rows, len(self.prices), self.boards)

    def _known_chassis(self) -> bool:
        """New chassis are told from the others by no class: what was computed stands."""
        before, chassis = self.reach.demand.ties, self.rows.chassis
        if len(chassis) == len(before.groups):
            return True
        other = self.reach.stretched(self.tables, chassis)
        now = other.demand.ties
        same = (now.count, now.sets, now.groups[: len(before.groups)]) == (before.count, before.sets, before.groups)
        if same:
            self.reach, self._outlook = other, None
        return same

    def outlook(self) -> Outlook:
        """For the rules in Python; the same object while nothing has moved."""
        self.absorb()
        prices = self.told_prices()
        if self._outlook is None or self._outlook.prices != prices:
            self._outlook = Outlook(self.tables, self.reach, self.rows.kinds, self.rows.chassis, prices)
        return self._outlook

    def told_prices(self) -> Prices:
        """The prices of now."""
        found, floors = self.prices.tolist(), (k.P_GROUPS + len(self.prices)) // 2
        return Prices(
            slot=tuple(found[k.P_SLOT : k.P_SLOT + 3]),
            drain=tuple(found[k.P_DRAIN : k.P_DRAIN + 3]),
            cpu=found[k.P_CPU],
            tie=tuple(found[k.P_GROUPS : floors]),
            floor=tuple(found[floors:]),
        )

    # --- answering -------------------------------------------------------------------------------------------------

    def cheapest(self, shape: Shape, scorer: Scorer) -> Cheapest | None:
        """The best node of a shape; None: there is no room. `scorer` is asked for odd nodes only."""
        board = self._ask(shape, scorer)
        found, rows = self.boards.out.tolist(), self.rows
        best, other, slot = found[k.OUT_BEST], found[k.OUT_NEXT], found[k.OUT_NODE]
        if best == k.NOWHERE:
            return None
        odd, runner_up = slot in rows.odd, None
        if other != k.NOWHERE:
            runner_up = (rows.names[rows.by_seat[other & SEATS]], self.score(other))
        return Cheapest(
            rows.nodes[slot],
            self.score(best),
            runner_up,
            found[k.OUT_FEASIBLE],
            None if odd else self._positions(shape, slot, found[k.OUT_CARD]),
            {} if odd else {name: -cost for name, cost in zip(PARTS, found[k.OUT_DROP :], strict=True) if cost},
            board.number,
        )

    def scores(self, shape: Shape, scorer: Scorer) -> dict[str, int]:
        """Of all nodes with room, by name."""
        board = self._ask(shape, scorer)
        return {self.name(key): self.score(key) for key in self.boards.leading(board)}

    def _ask(self, shape: Shape, scorer: Scorer) -> Board:
        """Leave the best node in `boards.out`."""
        if self._news != self.rows.news:
            self._prepare()
        boards = self.boards
        board = boards.of(shape, self.tables)
        if self.rows.odd:
            self.absorb()
            self._score_odd(board, scorer)
        self._settle(board.place, boards.behind(board))
        return board

    def _settle(self, which: int, late: int) -> None:
        rows, boards, reach = self.rows, self.boards, self.reach
        changed, self._absorbed = rows.since(self._absorbed), rows.logged
        k.settle(
            rows.data,
            rows.seats,
            rows.log,
            changed,
            late,
            rows.logged - rows.dropped,
            which,
            len(rows.names),
            boards.cells,
            boards.keys,
            boards.blocks,
            boards.own,
            boards.out,
            self.tables.values.t,
            reach.parts,
            reach.several,
            reach.constants,
            reach.tied,
            reach.chassis,
            self.totals,
            self.prices,
            self.memo,
            self.inside,
        )

    def _score_odd(self, board: Board, scorer: Scorer) -> None:
        """Nodes that numbers do not tell, when they or the prices have changed."""
        prices, rows = self.prices.tobytes(), self.rows
        for slot in sorted(rows.odd):
            now = (int(rows.data[slot, k.VERSION]), prices)
            if board.odd.get(slot) != now:
                board.odd[slot] = now
                score = scorer(rows.names[slot])
                seat = int(rows.seats[slot])
                key = k.NOWHERE if score is None else (self.steps(score) << k.SEAT_BITS) + seat
                self.boards.put(board, slot, key)

    def steps(self, score: int) -> int:
        """The rounding steps of a score."""
        return min(k.FAR, max(-k.FAR, -score // self.terms.rounding_milli))

    def score(self, key: int) -> int:
        """The score in a key: minus the rounded cost, in thousandths of a card."""
        return -(key >> k.SEAT_BITS) * self.terms.rounding_milli

    def name(self, key: int) -> str:
        """The node of a key."""
        return self.rows.names[self.rows.by_seat[key & SEATS]]

    def _positions(self, shape: Shape, slot: int, first: int) -> tuple[int, ...]:
        """Of the cards that the shape takes on its best node, the first of which is known."""
        if shape.cards < 2:  # noqa: PLR2004 - one card or none
            return (first,) if shape.cards else ()
        row = self.rows.data[slot].tolist()
        found = [
            card
            for card in range(first, row[k.CARDS])
            if row[k.FREE + card] == WHOLE_CARD
            and (row[k.CAPACITY + card] if shape.memory_mib is None else shape.memory_mib) <= row[k.MIB + card]
        ]
        return tuple(found[: shape.cards])


PARTS = ("value_drop", "fragment_rise", "tie_price", "slot_price", "cpu_price", "drain_price")
"""In the order of `kernels`: the names of the rules in `scheduler.core.scores.menu`."""
