"""The nodes as rows of numbers, refreshed from the ledger's state, and a log of which rows changed.

In: a `NodeState` that changed. Out: its row, with a new version, and its slot in the log. About 7 us for eight cards,
2 us when somebody only came or left (`moved`): then the cards in that placement are read and no others. What numbers
cannot tell (tags on residents, instances of split cards, cards without memory, models mixed on one node, more than 16
cards) makes the node *odd*: its row still counts in the sums, but its scores come from the rules in Python.

Seats. The fixed order of nodes is tie, then name. A seat holds the first 36 bits of the tie and a place among the nodes
that share them, so that a new node does not move the others; two of 5,000 nodes share them once in 5,000 clusters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bus.ledger.state import Move, NodeState
from contracts.inventory import NodeFacts
from contracts.units import WHOLE_CARD
from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.standing import Catalogue, Standing
from scheduler.core.arrays.tenants import Tenants
from scheduler.core.locality import Requests
from scheduler.core.menu.demand import MAX_KINDS
from scheduler.core.view import NodeView, admits

FIRST_CAPACITY = 64
LIVES_PIECE = 750
"""Nodes whose residents are looked at again in one piece: 1 ms with eight on each."""
LOG_SIZE = 1 << 17
"""Changes remembered; a board that is further behind looks at all nodes."""

_USED = attrgetter("used_milli")
_MEMORY = attrgetter("capacity_mib", "used_mib")
_STATE = attrgetter("present", "health", "cordoned", "rival", "unacquired")
_ALL_OPEN = {(True, "healthy", False, "", False)}
"""What `CardState.usable` asks, of all cards of a node at once."""

MOST_MOVED = 1000
"""Residents of a node that is followed move by move: the sum of more could be more than a row holds."""

_SHUT = -1
"""The free share of a card that takes nothing new."""

_PLACE_BITS = 8
_TIE_DIGITS = 9
"""Of 16 hexadecimal digits: 36 bits."""

_BYTES = 4
_HEAD = Struct(f"{k.LN_PSI + 1}i")
_ROWS = [
    Struct(f"{k.FREE}i{count}i{_BYTES * (k.MAX_CARDS - count)}x{count}i" if count else f"{k.FREE}i")
    for count in range(k.MAX_CARDS + 1)
]
"""A row by number of cards: head, free shares, free memory."""
_CAPACITIES = [Struct(f"{count}i") for count in range(k.MAX_CARDS + 1)]


class Lives(msgspec.Struct, frozen=True):
    """By slot: the sum of -ln q, and the version of the row that it was taken from."""

    minus_ln: NDArray[Any]
    versions: NDArray[Any]


class Rows:
    """All nodes of one state."""

    def __init__(self) -> None:
        self.data: NDArray[Any] = np.zeros((FIRST_CAPACITY, k.ROW), np.int32)
        self._bytes = self.data.data.cast("B")
        self._ints = self._bytes.cast("i")
        """The same numbers: a numpy array takes 100 ns to read one of them, a view 30."""
        self.seats: NDArray[Any] = np.zeros(FIRST_CAPACITY, np.int64)
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.nodes: list[NodeState] = []
        """By slot, as last seen."""
        self.by_seat: dict[int, int] = {}
        self.catalogue = Catalogue()
        self.kinds, self.chassis = self.catalogue.kinds, self.catalogue.chassis
        self.odd: set[int] = set()
        self.strict: set[int] = set()
        """Slots of nodes with taints."""
        self.discouraged: set[int] = set()
        """Slots of nodes with taints that only discourage."""
        self.tenants = Tenants()
        self.log: NDArray[Any] = np.zeros(LOG_SIZE, np.int64)
        self._log = self.log.data
        self.logged = 0
        """Changes so far; the log holds the last of them."""
        self.dropped = 0
        self.refaced: list[int] = []
        """Slots whose facts changed, in order: labels and taints may have."""
        self.generation = 0
        """Counts up when slots or capacity no longer mean what they did."""
        self._free: list[int] = []
        self._groups: dict[str, list[tuple[str, str]]] = {}
        self._still: list[Standing | None] = []
        """By slot; None: unknown, or some card is shut."""
        self._facts: list[NodeFacts | None] = []

    # --- changes of nodes ------------------------------------------------------------------------------------------

    def refresh(self, node: NodeState, requests: Requests) -> None:
        """The node as it is now, known before or not."""
        slot = self.slots.get(node.name)
        if slot is None:
            slot = self._join(node)
        self.nodes[slot] = node
        facts = node.facts
        if facts is not self._facts[slot]:
            self._face(slot, facts)
        if facts is None or not admits(node):
            self._shut(slot)
            return
        cards = node.cards.values()
        still = self._still[slot]
        if still is not None and (still.cards is not node.cards or len(still.columns) != len(cards)):
            still = self._still[slot] = None
        frees = [WHOLE_CARD - used for used in map(_USED, cards)]
        mibs = [capacity - used for capacity, used in map(_MEMORY, cards)]
        idle, opened = sum(frees), list(cards)
        states = set(map(_STATE, cards))
        if (states and states != _ALL_OPEN) or (still is None and True in [card.card.mig_enabled for card in cards]):
            still, opened = None, [card for card in cards if card.usable and not card.card.mig_enabled]
            idle = sum(WHOLE_CARD - card.used_milli for card in opened)
            shut = {card.card.uuid for card in cards} - {card.card.uuid for card in opened}
            frees = [_SHUT if uuid in shut else free for uuid, free in zip(node.cards, frees, strict=True)]
        if still is None:
            still = self.catalogue.standing(node, facts, opened)
            capacities = [card.capacity_mib for card in cards][: k.MAX_CARDS]
            _CAPACITIES[len(capacities)].pack_into(self._bytes, (slot * k.ROW + k.CAPACITY) * _BYTES, *capacities)
            self._still[slot] = still if len(opened) == len(cards) else None
        drain = self.tenants.minus_ln(node.residents, requests) if node.residents else 0
        self._write(
            slot,
            still.odd or self.tenants.any_tagged(node.residents),
            still.cpu_milli - node.used_cpu_milli,
            still.memory_mib - node.used_memory_mib,
            still.pods - len(node.residents),
            still.kind,
            still.chassis,
            len(opened),
            drain,
            idle,
            frees,
            mibs,
        )

    def moved(self, node: NodeState, move: Move, requests: Requests) -> bool:
        """The same after somebody came to the node or left it; False: the node is to be read as a whole.

        Every move is told once, in order; after a `refresh` those up to it count no more.
        """
        slot = self.slots.get(node.name, -1)
        still = self._still[slot] if slot >= 0 else None
        if still is None or still.odd or still.cards is not node.cards or node.holds:
            return False
        uid, placement, sign = move
        residents, minus_ln = len(node.residents), self.tenants.minus_ln_of(uid, requests)
        if len(still.columns) != len(still.cards) or minus_ln is None or residents > MOST_MOVED:
            return False
        ints, at, cards = self._ints, slot * k.ROW, still.cards
        for piece in placement.slices:
            card, column = cards[piece.card], at + still.columns[piece.card]
            free, was = WHOLE_CARD - card.used_milli, ints[column]
            ints[column], ints[column + k.MAX_CARDS] = free, card.capacity_mib - card.used_mib
            ints[at + k.IDLE] += free - was
            if WHOLE_CARD in (free, was):
                ints[at + k.WHOLES] += (free == WHOLE_CARD) - (was == WHOLE_CARD)
        ints[at] += 1  # the version
        ints[at + k.LN_PSI] += sign * minus_ln
        ints[at + k.CPU] = max(0, still.cpu_milli - node.used_cpu_milli)
        ints[at + k.MEMORY] = max(0, still.memory_mib - node.used_memory_mib)
        ints[at + k.PODS] = still.pods - residents
        self._note(slot)
        return True

    def _shut(self, slot: int) -> None:
        """Nothing new goes there."""
        self._still[slot] = None
        _HEAD.pack_into(self._bytes, slot * k.ROW * _BYTES, self._ints[slot * k.ROW] + 1, *[0] * k.LN_PSI)
        self.odd.discard(slot)
        self._note(slot)

    def _write(  # noqa: PLR0917 - the columns of a row, in their order
        self,
        slot: int,
        odd: bool,
        cpu: int,
        memory: int,
        pods: int,
        kind: int,
        chassis: int,
        gpus: int,
        drain: int,
        idle: int,
        frees: list[int],
        mibs: list[int],
    ) -> None:
        if odd:
            self.odd.add(slot)
        elif self.odd:
            self.odd.discard(slot)
        wholes, size = frees.count(WHOLE_CARD), len(frees)
        if size > k.MAX_CARDS:
            frees, mibs, size = frees[: k.MAX_CARDS], mibs[: k.MAX_CARDS], k.MAX_CARDS
        _ROWS[size].pack_into(
            self._bytes,
            slot * k.ROW * _BYTES,
            self._ints[slot * k.ROW] + 1,
            1,
            odd,
            max(0, cpu),
            max(0, memory),
            pods,
            kind,
            chassis,
            gpus,
            size,
            wholes,
            idle,
            drain,
            *frees,
            *mibs,
        )
        self._note(slot)

    def put(self, view: NodeView) -> None:
        """A trial: the node as a view has it. `refresh` puts the real one back."""
        slot = self.slots[view.name]
        self._still[slot] = None
        if not view.admits:
            self._shut(slot)
            return
        size = max((card.position + 1 for card in view.cards), default=0)
        frees, mibs, capacities = [_SHUT] * size, [0] * size, [0] * size
        for card in view.cards:
            at = card.position
            frees[at], mibs[at], capacities[at] = card.free_milli, card.free_mib, card.capacity_mib
        first = capacities[: k.MAX_CARDS]
        self.data[slot, k.CAPACITY : k.CAPACITY + len(first)] = first
        models = tuple(sorted({card.model for card in view.cards}))
        kind, cpu_milli = self.catalogue.kind(models), view.facts.allocatable_cpu_milli if view.facts is not None else 0
        odd = not view.plain or not view.uniform or size > k.MAX_CARDS or kind >= MAX_KINDS
        drain = self.tenants.minus_ln(view.uids, {tenant.uid: tenant for tenant in view.tenants})
        self._write(
            slot,
            odd,
            view.cpu_milli,
            view.memory_mib,
            view.pods,
            kind,
            self.catalogue.chassis_of(models, len(view.cards), cpu_milli),
            len(view.cards),
            drain,
            view.left_milli,
            frees,
            mibs,
        )

    def _face(self, slot: int, facts: NodeFacts | None) -> None:
        self._facts[slot], self._still[slot] = facts, None
        taints = facts.taints if facts is not None else ()
        _member(self.strict, slot, belongs=bool(taints))
        _member(self.discouraged, slot, belongs=any(taint.effect == "PreferNoSchedule" for taint in taints))
        self.refaced.append(slot)

    def _note(self, slot: int) -> None:
        at = self.logged - self.dropped
        if at >= LOG_SIZE:
            half = LOG_SIZE // 2
            self.log[:half] = self.log[half:]
            self.dropped += half
            at = half
        self._log[at] = slot
        self.logged += 1

    def since(self, position: int) -> int:
        """Where in `log` the slots begin that changed since `position`; -1: look at all of them, which is less."""
        if position < self.dropped or self.logged - position > len(self.names):
            return -1
        return position - self.dropped

    @property
    def news(self) -> int:
        """Counts up when slots or capacity mean something else, and at each new kind of node or chassis."""
        return self.generation + len(self.kinds) + len(self.chassis)

    # --- nodes that come and go ------------------------------------------------------------------------------------

    def _join(self, node: NodeState) -> int:
        if self._free:
            slot = self._free.pop()
            self.names[slot] = node.name
        else:
            slot = len(self.names)
            self.names.append(node.name)
            self.nodes.append(node)
            self._still.append(None)
            self._facts.append(None)
            if slot >= len(self.data):
                self.data = np.concatenate([self.data, np.zeros_like(self.data)])
                self.seats = np.concatenate([self.seats, np.zeros_like(self.seats)])
                self._bytes = self.data.data.cast("B")
                self._ints = self._bytes.cast("i")
                self.generation += 1
        self.slots[node.name] = slot
        self._still[slot] = self._facts[slot] = None
        group = self._groups.setdefault(node.tie[:_TIE_DIGITS], [])
        group.insert(bisect_left(group, (node.tie, node.name)), (node.tie, node.name))
        self._seat(group)
        return slot

    def leave(self, name: str) -> None:
        """The node is gone; its slot is used again, its row counts no more."""
        slot = self.slots[name]
        self._shut(slot)
        for group in (self.strict, self.discouraged):
            group.discard(slot)
        del self.slots[name], self.by_seat[int(self.seats[slot])]
        peers = self._groups[self.nodes[slot].tie[:_TIE_DIGITS]]
        peers.remove((self.nodes[slot].tie, name))
        self._free.append(slot)
        self._seat(peers)

    def _seat(self, group: Sequence[tuple[str, str]]) -> None:
        """Seats of all nodes that share the beginning of their ties."""
        for place, (tie, name) in enumerate(group):
            slot, seat = self.slots[name], (int(tie[:_TIE_DIGITS], 16) << _PLACE_BITS) + place
            self.seats[slot] = seat
            self.by_seat[seat] = slot
            if len(group) > 1:
                self._again(slot)

    def _again(self, slot: int) -> None:
        """The row counts as changed."""
        self._ints[slot * k.ROW] += 1
        self._note(slot)

    # --- what was learned ------------------------------------------------------------------------------------------

    def lives(self, leaves: Callable[[str], int], requests: Requests) -> Generator[None, None, Lives]:
        """What other lifetimes will make of every row, piece by piece."""
        found = Lives(np.zeros(len(self.names), np.int64), np.full(len(self.names), -1, np.int64))
        for first in range(0, len(found.minus_ln), LIVES_PIECE):
            slots = range(first, min(first + LIVES_PIECE, len(found.minus_ln)))
            open_ = [slot for slot in slots if self._ints[slot * k.ROW + k.ADMITS]]
            residents = [self.nodes[slot].residents for slot in open_]
            found.minus_ln[open_] = self.tenants.sums(residents, requests, leaves)
            found.versions[open_] = self.data[open_, k.VERSION]
            yield
        return found

    def learn(self, leaves: Callable[[str], int], lives: Lives, requests: Requests) -> None:
        """Other lifetimes, prepared a moment ago: every row counts as changed."""
        self.tenants.learn(leaves, requests)
        known = len(lives.minus_ln)
        self.data[:known, k.LN_PSI] = np.where(self.data[:known, k.ADMITS] != 0, lives.minus_ln, 0)
        ahead = self.data[: len(self.names), k.ADMITS] != 0
        ahead[:known] &= self.data[:known, k.VERSION] != lives.versions
        slots = np.flatnonzero(ahead).tolist()
        residents = [self.nodes[slot].residents for slot in slots]
        self.data[slots, k.LN_PSI] = self.tenants.sums(residents, requests, leaves)
        self.all_changed()

    def all_changed(self) -> None:
        """Every row counts as changed."""
        self.data[: len(self.names), k.VERSION] += 1
        self.logged += 1
        self.dropped = self.logged


def _member(group: set[int], slot: int, *, belongs: bool) -> None:
    if belongs:
        group.add(slot)
    else:
        group.discard(slot)
