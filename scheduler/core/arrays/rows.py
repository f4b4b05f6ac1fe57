"""The nodes as rows of numbers, refreshed from the ledger's state, and a log of which rows changed.

In: a `NodeState` that changed. Out: its row, with a new version, and its slot in the log. About 4 us for eight cards:
no objects are made. What numbers cannot tell (tags on residents, instances of split cards, cards without memory, models
mixed on one node, more than 16 cards) makes the node *odd*: its row still counts in the sums, but its scores come from
the rules in Python.

Seats. The fixed order of nodes is tie, then name. A seat holds the first 36 bits of the tie and a place among the nodes
that share them, so that a new node does not move the others; two of 5,000 nodes share them once in 5,000 clusters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.ledger.state import CardState, NodeState
from contracts.inventory import NodeFacts
from contracts.units import WHOLE_CARD
from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.tenants import Tenants
from scheduler.core.locality import Requests
from scheduler.core.menu.demand import MAX_KINDS
from scheduler.core.menu.spoil import Kind
from scheduler.core.menu.ties import Chassis
from scheduler.core.view import NodeView, admits

FIRST_CAPACITY = 64
LOG_SIZE = 1 << 17
"""Changes remembered; a board that is further behind looks at all nodes."""

_USED = attrgetter("used_milli")
_MEMORY = attrgetter("capacity_mib", "used_mib")
_STATE = attrgetter("present", "health", "cordoned", "rival")
_ALL_OPEN = {(True, "healthy", False, "")}
"""What `CardState.usable` asks, of all cards of a node at once."""

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


class Rows:
    """All nodes of one state."""

    def __init__(self) -> None:
        self.data: NDArray[Any] = np.zeros((FIRST_CAPACITY, k.ROW), np.int32)
        self._bytes = self.data.data.cast("B")
        self.seats: NDArray[Any] = np.zeros(FIRST_CAPACITY, np.int64)
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.nodes: list[NodeState] = []
        """By slot, as last seen."""
        self.by_seat: dict[int, int] = {}
        self.kinds: list[Kind] = []
        self.chassis: list[Chassis] = []
        self.odd: set[int] = set()
        self.strict: set[int] = set()
        """Slots of nodes with taints."""
        self.discouraged: set[int] = set()
        """Slots of nodes with taints that only discourage."""
        self.tenants = Tenants()
        self.log: NDArray[Any] = np.zeros(LOG_SIZE, np.int64)
        self.logged = 0
        """Changes so far; the log holds the last of them."""
        self.dropped = 0
        self.refaced: list[int] = []
        """Slots whose facts changed, in order: labels and taints may have."""
        self._versions: list[int] = []
        self.generation = 0
        """Counts up when slots or capacity no longer mean what they did."""
        self._kinds: dict[Kind, int] = {}
        self._chassis: dict[tuple[Kind, int, int], int] = {}
        self._free: list[int] = []
        self._groups: dict[str, list[tuple[str, str]]] = {}
        self._still: list[tuple[dict[str, CardState], int, int, int, bool] | None] = []
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
        frees = [WHOLE_CARD - used for used in map(_USED, cards)]
        mibs = [capacity - used for capacity, used in map(_MEMORY, cards)]
        states = set(map(_STATE, cards))
        if states and states != _ALL_OPEN:
            frees = [free if card.usable else -1 for free, card in zip(frees, cards, strict=True)]
        shut = -1 in frees
        kind, chassis, gpus, odd = self._standing(slot, node, facts, frees, shut=shut)
        if gpus < len(frees):
            shut = True
        drain = self.tenants.minus_ln(node.residents, requests) if node.residents else 0
        self._write(
            slot,
            odd or self.tenants.any_tagged(node.residents),
            facts.allocatable_cpu_milli - facts.foreign_cpu_milli - node.used_cpu_milli,
            facts.allocatable_memory_mib - facts.foreign_memory_mib - node.used_memory_mib,
            facts.allocatable_pods - facts.foreign_pods - len(node.residents),
            kind,
            chassis,
            gpus,
            drain,
            sum(frees) + frees.count(-1) if shut else sum(frees),
            frees,
            mibs,
        )

    def _shut(self, slot: int) -> None:
        """Nothing new goes there."""
        self._versions[slot] += 1
        _HEAD.pack_into(self._bytes, slot * k.ROW * _BYTES, self._versions[slot], *[0] * k.LN_PSI)
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
        version = self._versions[slot] = self._versions[slot] + 1
        wholes, size = frees.count(WHOLE_CARD), len(frees)
        if size > k.MAX_CARDS:
            frees, mibs, size = frees[: k.MAX_CARDS], mibs[: k.MAX_CARDS], k.MAX_CARDS
        _ROWS[size].pack_into(
            self._bytes,
            slot * k.ROW * _BYTES,
            version,
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
        frees, mibs, capacities = [-1] * size, [0] * size, [0] * size
        for card in view.cards:
            at = card.position
            frees[at], mibs[at], capacities[at] = card.free_milli, card.free_mib, card.capacity_mib
        first = capacities[: k.MAX_CARDS]
        self.data[slot, k.CAPACITY : k.CAPACITY + len(first)] = first
        models = tuple(sorted({card.model for card in view.cards}))
        kind, cpu_milli = self.kind(models), view.facts.allocatable_cpu_milli if view.facts is not None else 0
        odd = not view.plain or not view.uniform or size > k.MAX_CARDS or kind >= MAX_KINDS
        drain = self.tenants.minus_ln(view.uids, {tenant.uid: tenant for tenant in view.tenants})
        self._write(
            slot,
            odd,
            view.cpu_milli,
            view.memory_mib,
            view.pods,
            kind,
            self.chassis_of(models, len(view.cards), cpu_milli),
            len(view.cards),
            drain,
            view.left_milli,
            frees,
            mibs,
        )

    def _standing(
        self, slot: int, node: NodeState, facts: NodeFacts, frees: list[int], *, shut: bool
    ) -> tuple[int, int, int, bool]:
        """Kind, chassis, number of open cards, oddness: as before, unless facts changed or cards came, went, were shut.

        Cards that are split are shut in `frees`.
        """
        still = self._still[slot]
        if still is not None and still[0] is node.cards and len(still[0]) == len(frees) and not shut:
            return still[1], still[2], len(frees), still[4]
        for at, state in enumerate(node.cards.values()):
            if state.card.mig_enabled:
                frees[at], shut = -1, True
        cards = list(node.cards.values())[: k.MAX_CARDS]
        self.data[slot, k.CAPACITY : k.CAPACITY + len(cards)] = [card.capacity_mib for card in cards]
        opened = [c.card for c, free in zip(node.cards.values(), frees, strict=True) if free >= 0]
        models = tuple(sorted({card.model for card in opened}))
        odd = (
            len(models) > 1
            or len(frees) > k.MAX_CARDS
            or any(card.memory_total_mib is None or card.isolation in ("mig", "gemini") for card in opened)
            or len({card.isolation for card in opened}) > 1
        )
        kind = self.kind(models)
        chassis = self.chassis_of(models, len(opened), facts.allocatable_cpu_milli)
        odd = odd or kind >= MAX_KINDS
        self._still[slot] = None if shut else (node.cards, kind, chassis, len(opened), odd)
        return kind, chassis, len(opened), odd

    def kind(self, models: Kind) -> int:
        """The number of a kind of node, new or not."""
        found = self._kinds.get(models)
        if found is None:
            found = self._kinds[models] = len(self.kinds)
            self.kinds.append(models)
        return found

    def chassis_of(self, models: Kind, cards: int, cpu_milli: int) -> int:
        """The number of a chassis, new or not."""
        found = self._chassis.get((models, cards, cpu_milli))
        if found is None:
            found = self._chassis[models, cards, cpu_milli] = len(self.chassis)
            self.chassis.append(Chassis(models, cards, cpu_milli))
        return found

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
        self.log[at] = slot
        self.logged += 1

    def changed(self, position: int) -> NDArray[Any]:
        """Slots that changed since `position` of the log, or all of them when that is less."""
        if position < self.dropped or self.logged - position > len(self.names):
            return np.arange(len(self.names))
        return self.log[position - self.dropped : self.logged - self.dropped]

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
            self._versions.append(0)
            self._facts.append(None)
            if slot >= len(self.data):
                self.data = np.concatenate([self.data, np.zeros_like(self.data)])
                self.seats = np.concatenate([self.seats, np.zeros_like(self.seats)])
                self._bytes = self.data.data.cast("B")
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
        self._versions[slot] += 1
        self.data[slot, k.VERSION] = self._versions[slot]
        self._note(slot)

    # --- what was learned ------------------------------------------------------------------------------------------

    def learn(self, leaves: Callable[[str], int], requests: Requests) -> None:
        """Other lifetimes: every row counts as changed."""
        self.tenants.learn(leaves, requests)
        for slot in self.slots.values():
            if self.data[slot, k.ADMITS]:
                self.data[slot, k.LN_PSI] = self.tenants.minus_ln(self.nodes[slot].residents, requests)
        self.all_changed()

    def all_changed(self) -> None:
        """Every row counts as changed."""
        self._versions = [version + 1 for version in self._versions]
        self.data[: len(self.names), k.VERSION] = self._versions
        self.logged += 1
        self.dropped = self.logged


def _member(group: set[int], slot: int, *, belongs: bool) -> None:
    if belongs:
        group.add(slot)
    else:
        group.discard(slot)
