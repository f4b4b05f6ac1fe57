"""The costs of shapes on all nodes, kept, and scored again only where something changed.

In: rows, tables, prices, through `Cluster`. Out, in `out`: the cheapest node, its card, the next node, and the parts of
the cost. A board catches up with the log of changes when its shape is asked for: a node that changed five times in
between is scored once. (Scoring it for all shapes as it changes took twice as long.) All of it is a cache: dropped and
made again it gives the same answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.rows import Rows
from scheduler.core.arrays.tables import Tables
from scheduler.core.feasibility.selector import selected
from scheduler.core.feasibility.taints import tolerated
from scheduler.core.menu.classes import class_key
from scheduler.core.menu.demand import MAX_KINDS
from scheduler.core.request import Shape

FIRST_BOARDS = 16
MAX_BOARDS = 256
"""Kept, least recently asked dropped first: of 5,000 nodes 0.4 MB each. A shape that comes back costs some 2 ms."""


def shape_row(shape: Shape, stays: int, rows: Rows) -> list[int]:
    """The shape as numbers, in the order of `kernels`."""
    allowed = [not shape.models or not set(shape.models).isdisjoint(kind) for kind in rows.kinds[:MAX_KINDS]]
    return [
        shape.cards,
        shape.share_milli,
        -1 if shape.memory_mib is None else shape.memory_mib,
        shape.cpu_milli,
        shape.host_memory_mib,
        stays,
        sum(1 << bit for bit, open_ in enumerate(allowed) if open_),
    ]


class Board:
    """What one shape has beside its part of the arrays."""

    def __init__(self, shape: Shape, place: int) -> None:
        self.shape = shape
        self.place = place
        self.position = -1
        """Of the log of rows, up to which it has seen everything; -1: nothing."""
        self.refaced = 0
        self.number = -1
        """Of the class of the shape, among `Tenants`."""
        self.odd: dict[int, tuple[int, bytes]] = {}
        """Odd nodes by slot: version and prices that their keys were made at."""


class Boards:
    """All of one cluster. They live as long as slots, tables and kinds mean the same.

    Args:
        prices: how many there are.
        before: boards that are not needed any more, for their memory.
    """

    def __init__(self, rows: Rows, prices: int, before: Boards | None = None) -> None:
        self._rows = rows
        size = self.size = len(rows.data)
        self._by_shape: OrderedDict[Shape, Board] = OrderedDict()
        self._free: list[int] = []
        self.out: NDArray[Any] = np.zeros(k.OUT, np.int64)
        self.keys: NDArray[Any] = np.zeros((0, size), np.int64)
        self.cells: NDArray[Any] = np.zeros((0, size, k.CELL), np.int32)
        self.blocks: NDArray[Any] = np.zeros((0, -(-size // k.BLOCK)), np.int64)
        self.own: NDArray[Any] = np.zeros((0, k.B_PRICES + prices), np.int64)
        if before is not None and (before.size, before.own.shape[1]) == (size, self.own.shape[1]):
            self.keys, self.cells, self.blocks, self.own = before.keys, before.cells, before.blocks, before.own
            self._free.extend(range(len(self.own) - 1, -1, -1))
        else:
            self._grow(FIRST_BOARDS)

    def _grow(self, more: int) -> None:
        """Room for so many more."""
        have = len(self.own)
        self._free.extend(range(have + more - 1, have - 1, -1))
        self.own, self.cells = _taller(self.own, more), _taller(self.cells, more)
        self.keys, self.blocks = _taller(self.keys, more), _taller(self.blocks, more)

    def of(self, shape: Shape, tables: Tables) -> Board:
        """The board of a shape; a new one has seen nothing."""
        board = self._by_shape.get(shape)
        if board is None:
            key = class_key(shape)
            board = self._by_shape[shape] = self._new(shape, tables.remains(key))
            board.number = self._rows.tenants.number(key)
        else:
            self._by_shape.move_to_end(shape)
        if board.refaced < len(self._rows.refaced):
            self._greet(board, self._rows.refaced[board.refaced :])
        return board

    def _new(self, shape: Shape, stays: int) -> Board:
        if len(self._by_shape) >= MAX_BOARDS:
            _, old = self._by_shape.popitem(last=False)
            self._free.append(old.place)
        if not self._free:
            self._grow(len(self.own))
        board, rows = Board(shape, self._free.pop()), self._rows
        place = board.place
        self.own[place] = 0
        self.own[place, : k.SHAPE] = shape_row(shape, stays, rows)
        self.keys[place] = self.blocks[place] = k.NOWHERE
        self.cells[place, :, : k.FIXED] = 0
        self._greet(board, range(len(rows.names)) if shape.node_selector else sorted(rows.strict))
        return board

    def _greet(self, board: Board, slots: Iterable[int]) -> None:
        """Labels and taints of these nodes."""
        for slot in slots:
            facts = self._rows.nodes[slot].facts
            shut_out = facts is not None and not (tolerated(board.shape, facts) and selected(board.shape, facts))
            if shut_out != self.cells[board.place, slot, k.SHUT_OUT]:
                self.cells[board.place, slot, [k.SEEN, k.SHUT_OUT]] = 0, shut_out
        board.refaced = len(self._rows.refaced)

    def behind(self, board: Board) -> int:
        """Where the log of rows begins that the board has not seen; -1: look at every node."""
        position, board.position = board.position, self._rows.logged
        return self._rows.since(position)

    def put(self, board: Board, slot: int, key: int) -> None:
        """The key of an odd node."""
        place = board.place
        k.put_key(self.keys[place], self.blocks[place], self.own[place], slot, key)
        self.cells[place, slot, k.SEEN] = 0

    def leading(self, board: Board) -> list[int]:
        """All keys of nodes with room, ascending."""
        keys = self.keys[board.place]
        found: list[int] = np.sort(keys[keys != k.NOWHERE]).tolist()
        return found


def _taller(array: NDArray[Any], more: int) -> NDArray[Any]:
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)])
