"""What placements do not change about a node: its size, its cards, whether numbers tell all of it.

In: a node and which of its cards may be sold. Out: a `Standing`, good until facts or cards change; and the numbers of
kinds of nodes and of chassis, in the order in which they were met.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bus.ledger.state import CardState, NodeState
from contracts.inventory import NodeFacts
from scheduler.core.arrays import kernels as k
from scheduler.core.menu.demand import MAX_KINDS
from scheduler.core.menu.spoil import Kind
from scheduler.core.menu.ties import Chassis


class Standing(msgspec.Struct, frozen=True):
    """Of one node."""

    cards: dict[str, CardState]
    """Its own: another dict, or another number of them, is another standing."""
    columns: dict[str, int]
    """Of the free share of each card, in the row."""
    kind: int
    chassis: int
    odd: bool
    """Numbers do not tell all of it: cards without memory, instances, models or ways of sharing mixed, too many."""
    cpu_milli: int
    """Free if nothing of ours were there, and so on."""
    memory_mib: int
    pods: int


class Catalogue:
    """Kinds and chassis of one cluster."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.chassis: list[Chassis] = []
        self._kinds: dict[Kind, int] = {}
        self._chassis: dict[tuple[Kind, int, int], int] = {}

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

    def standing(self, node: NodeState, facts: NodeFacts, opened: Sequence[CardState]) -> Standing:
        """Of a node of which these cards may be sold."""
        sorts = {(card.model, card.isolation, card.memory_total_mib is None) for card in [each.card for each in opened]}
        models = tuple(sorted({model for model, *_ in sorts}))
        kind = self.kind(models)
        odd = len(sorts) > 1 or len(node.cards) > k.MAX_CARDS or kind >= MAX_KINDS
        odd = odd or any(unknown or isolation in ("mig", "gemini") for _, isolation, unknown in sorts)
        return Standing(
            node.cards,
            {uuid: k.FREE + at for at, uuid in enumerate(node.cards)},
            kind,
            self.chassis_of(models, len(opened), facts.allocatable_cpu_milli),
            odd,
            facts.allocatable_cpu_milli - facts.foreign_cpu_milli,
            facts.allocatable_memory_mib - facts.foreign_memory_mib,
            facts.allocatable_pods - facts.foreign_pods,
        )
