"""How full the cluster is in sums: CPU, host memory and cards, against one threshold for growing and shrinking.

A resource is overloaded when more is asked for than total x threshold, rounded down. A job grows when nothing that its
trainers ask for is overloaded *afterwards*, and shrinks when something they ask for is overloaded *now*; so one never
undoes the other. Worked: 4 cards, threshold 1000: three used, one is added (4 of 4), nothing is overloaded, it stays.
CPU and memory keep 3 % free for what comes by itself; a card is sold to the last thousandth, because keeping 3 % of
four cards free would keep one whole card free.
"""

from __future__ import annotations

import msgspec

from autoscaler.core.elastic_shape import Shape
from contracts.decisions import Placement


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The highest load, in thousandths of the total."""

    cpu_milli: int = 970
    memory_milli: int = 970
    card_milli: int = 1000


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """Milli-cores, MiB of host memory, thousandths of cards."""

    cpu_milli: int = 0
    memory_mib: int = 0
    card_milli: int = 0


class Load:
    """What is there and what is asked for, waiting requests included.

    Args:
        total: of all nodes that are offered.
        used: of what is placed on them, and of what waits and could be placed.
        limits: where overload begins.
    """

    def __init__(self, total: Amounts, used: Amounts, limits: Limits) -> None:
        self.total = total
        self.cpu, self.memory, self.cards = used.cpu_milli, used.memory_mib, used.card_milli
        self.cpu_limit = total.cpu_milli * limits.cpu_milli // 1000
        self.memory_limit = total.memory_mib * limits.memory_milli // 1000
        self.card_limit = total.card_milli * limits.card_milli // 1000

    @property
    def used(self) -> Amounts:
        """As it stands now."""
        return Amounts(cpu_milli=self.cpu, memory_mib=self.memory, card_milli=self.cards)

    def add(self, shape: Shape, count: int) -> None:
        """So many trainers more, or fewer."""
        self.cpu += shape.cpu_milli * count
        self.memory += shape.memory_mib * count
        self.cards += shape.card_milli * count

    def count(self, seat: Placement, sign: int) -> None:
        """A seat is counted too (1), or not any more (-1)."""
        self.cpu += sign * seat.cpu_milli
        self.memory += sign * seat.memory_mib
        self.cards += sign * sum(piece.share_milli for piece in seat.slices)

    def overloaded(self, shape: Shape) -> bool:
        """Whether too much is asked for of something that the shape asks for: taking one away would help."""
        return self._above(shape, 0)

    def bears(self, shape: Shape) -> bool:
        """Whether one more leaves nothing overloaded that it asks for."""
        return not self._above(shape, 1)

    def _above(self, shape: Shape, more: int) -> bool:
        cpu, memory, cards = shape.cpu_milli, shape.memory_mib, shape.card_milli
        return (
            (cpu > 0 and self.cpu + more * cpu > self.cpu_limit)
            or (memory > 0 and self.memory + more * memory > self.memory_limit)
            or (cards > 0 and self.cards + more * cards > self.card_limit)
        )
