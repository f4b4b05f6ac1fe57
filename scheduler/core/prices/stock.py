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


MIXES = 2
"""By arrivals and by lifetime: policies of both kinds may take turns."""


class Stock:
    """Nodes by their kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}
        self._priced: list[tuple[Mix, PricedMix]] = []
        """The mixes that were asked for last, latest first; right for the hardware of `_pools`."""
        self._pools: tuple[Pool, ...] = ()
        self._changed = False

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
            self._changed = True

    def drop(self, name: str) -> None:
        """It is gone."""
        if self._kinds.pop(name, None) is not None:
            self._changed = True

    def priced(self, mix: Mix) -> Mix:
        """The mix with prices; as it is while nothing was learned.

        Raises:
            PolicyFailed: the linear program cannot be solved here.
        """
        if not mix.classes or not self._kinds:
            return mix
        self._forget_other_hardware()
        for known, found in self._priced:
            if known is mix:
                return found
        alike = (found for _, found in self._priced if found.classes == mix.classes)
        made = next(alike, None) or PricedMix(mix.classes, self._pools)
        self._priced = [(mix, made), *self._priced][:MIXES]
        return made

    def _forget_other_hardware(self) -> None:
        """A node came, went, or is of another kind now: prices stand if it is the same hardware all the same."""
        if self._changed:
            pools, self._changed = self.pools(), False
            if pools != self._pools:
                self._pools, self._priced = pools, []

    def pools(self) -> tuple[Pool, ...]:
        """Equal nodes together, by kind."""
        return tuple(
            Pool(model=model, cards=cards * count, cpu_milli=cpu * count)
            for (model, cards, cpu), count in sorted(Counter(self._kinds.values()).items())
        )
