"""Which hardware there is, kept as nodes come and go, and the prices that follow from it. Pure.

In: nodes as they change, the mix as it is learned. Out: a `PricedMix`, the same one until the mix or the hardware is
another: prices are a function of the state alone, so that whoever folds the same log has the same.
"""

from __future__ import annotations

from collections import Counter

from bus.ledger.state import NodeState
from scheduler.core.mix import Mix
from scheduler.core.prices.priced import PricedMix
from scheduler.core.prices.supply import Pool

Kind = tuple[str, int, int]
"""Model, cards and milli-cores of a node."""


class Stock:
    """Nodes by their kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}
        self._priced: PricedMix | None = None
        self._of: Mix | None = None

    def refresh(self, node: NodeState) -> None:
        """The node as it is now."""
        cards, facts = node.cards, node.facts
        if not cards or facts is None:
            self.drop(node.name)
            return
        model = next(iter(cards.values())).card.model
        kind = (model, len(cards), facts.allocatable_cpu_milli)
        if self._kinds.get(node.name) != kind:
            self._kinds[node.name] = kind
            self._of = None

    def drop(self, name: str) -> None:
        """It is gone."""
        if self._kinds.pop(name, None) is not None:
            self._of = None

    def priced(self, mix: Mix) -> Mix:
        """The mix with prices; as it is while nothing was learned.

        Raises:
            PolicyFailed: the linear program cannot be solved here.
        """
        if not mix.classes or not self._kinds:
            return mix
        if self._of is not mix or self._priced is None:
            pools = self.pools()
            if self._priced is None or self._priced.classes != mix.classes or self._priced.pools != pools:
                self._priced = PricedMix(mix.classes, pools)
            self._of = mix
        return self._priced

    def pools(self) -> tuple[Pool, ...]:
        """Equal nodes together, by kind."""
        return tuple(
            Pool(model=model, cards=cards * count, cpu_milli=cpu * count)
            for (model, cards, cpu), count in sorted(Counter(self._kinds.values()).items())
        )
