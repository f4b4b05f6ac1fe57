"""What there is and what is asked for, as the linear program takes it. Pure.

`Pool`s are equal nodes with their cards and CPU added up, `Ask`s have a number of pods each. Adding up the CPU of a
pool forgets which node it is on; that only loosens, so that the result stays an upper bound. Memory is left out for the
same reason, and so are pods that ask for no card.
"""

from __future__ import annotations

import msgspec


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Equal nodes together."""

    model: str
    cards: int
    cpu_milli: int


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that ask for the same; `count` of them at most, `must` of them in any case."""

    cpu_milli: int
    cards: int
    share_milli: int
    models: frozenset[str] = frozenset()
    count: float = 0.0
    must: float = 0.0

    @property
    def demand_milli(self) -> int:
        """Of one pod."""
        return self.cards * self.share_milli
