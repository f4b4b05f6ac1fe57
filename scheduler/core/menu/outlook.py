"""What the scores of the menu value know at one moment: tables of what was learned, and the prices of now.

The rules in Python (`scheduler.core.scores.menu`) read it where kernels do not reach, and where somebody asks why. A
value of one node costs some 10 us here, against 0.3 us in a kernel over many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contracts.units import WHOLE_CARD
from scheduler.core.menu.demand import Prices
from scheduler.core.menu.spoil import Kind
from scheduler.core.menu.ties import Chassis
from scheduler.core.mix import Mix
from scheduler.core.view import NodeView

if TYPE_CHECKING:  # the arrays import numba, which takes a second; policies are read by every command
    from scheduler.core.arrays.tables import Reach, Tables


class Outlook(Mix):
    """A `Mix` for policies with menus. Never changed: other tables or prices are another outlook."""

    def __init__(
        self, tables: Tables, reach: Reach, kinds: Sequence[Kind], chassis: Sequence[Chassis], prices: Prices
    ) -> None:
        super().__init__(())
        self.tables = tables
        self.reach = reach
        self.prices = prices
        self._kinds = {kind: place for place, kind in enumerate(kinds)}
        self._groups = dict(zip(chassis, reach.demand.ties.groups, strict=True))

    def kind(self, view: NodeView) -> int:
        """The number of a node's kind; -1: it is not among the kinds of the cluster."""
        found: int | None = view.memo.get("kind")
        if found is None:
            models = tuple(sorted({card.model for card in view.cards}))
            found = view.memo["kind"] = self._kinds.get(models, -1)
        return found

    def tie(self, view: NodeView) -> tuple[int, int]:
        """Price and floor of a node, in micro per milli; 0 for one whose chassis is not among those of the cluster."""
        group = self._groups.get(chassis_of(view), -1)
        return (self.prices.tie[group], self.prices.floor[group]) if group >= 0 else (0, 0)

    def value(self, cpu_milli: int, idle_milli: Sequence[int]) -> int:
        """V of a node, in micro, times the number of menus."""
        from scheduler.core.arrays.values import node_value  # noqa: PLC0415 - numba comes with the first table

        return node_value(self.tables.values, cpu_milli, idle_milli)

    def usable(self, kind: int, cpu_milli: int, idle_milli: Sequence[int]) -> int:
        """U of a node, in micro."""
        from scheduler.core.arrays.values import usable  # noqa: PLC0415 - as above

        return usable(self.reach, max(0, kind), cpu_milli, idle_milli)

    def cpu_value(self, cpu_milli: int) -> int:
        """X x 64 of so much free CPU, in milli-cores."""
        values = self.tables.cpu_values
        return int(values[min(cpu_milli // 100, len(values) - 1)])


def chassis_of(view: NodeView) -> Chassis:
    """What never changes about a node, of its open cards."""
    models = tuple(sorted({card.model for card in view.cards}))
    return Chassis(models, len(view.cards), view.facts.allocatable_cpu_milli if view.facts is not None else 0)


def wholes_of(idle_milli: Sequence[int]) -> int:
    """Cards with nothing sold."""
    return sum(idle == WHOLE_CARD for idle in idle_milli)
