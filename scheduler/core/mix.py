"""What is likely to come: the classes of requests that cover 95 % of those so far, and what a node is worth to them.

In: `mix` of the ledger (how often each `cpu|cards|share|models` was accepted). Out: a `Mix`: classes with their
weights, and the tables by which `fragments` tells what a node is worth to them. All integers: popularity is a
count, nothing is divided until a score is rounded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

import msgspec

from contracts.units import MAX_CARDS_PER_REQUEST, WHOLE_CARD

COVERED_PERCENT = 95
"""The rare rest would only smear the score: on the openb trace 95 % was better than 60, 80, 99 and 100 %."""


class Class(msgspec.Struct, frozen=True):
    """One class of requests and how often it came."""

    cpu_milli: int
    cards: int
    share_milli: int
    models: frozenset[str]
    weight: int


def classes_of(mix: Mapping[str, int]) -> tuple[Class, ...]:
    """The most frequent classes, until 95 % of all requests are covered.

    Equal counts as the published rule has them: more CPU first, then larger shares, more cards, the later models. Where
    many classes name models, dozens are equally frequent at the cut (openb gpuspec33), and the choice among them is
    0.3 points of allocation.
    """
    chosen: list[Class] = []
    left = sum(mix.values()) * COVERED_PERCENT
    for weight, cpu, share, cards, models in sorted(map(_parsed, mix.items()), reverse=True):
        if left <= 0:
            break
        left -= weight * 100
        chosen.append(Class(cpu, cards, share, frozenset(models.split(",")) if models else frozenset(), weight))
    return tuple(chosen)


def _parsed(counted: tuple[str, int]) -> tuple[int, int, int, int, str]:
    """Weight, CPU, share, cards, models."""
    key, weight = counted
    cpu, cards, share, models = key.split("|", 3)
    return weight, int(cpu), int(share), int(cards), models


class Mix:
    """The classes with their tables, filled as they are asked for."""

    def __init__(self, classes: tuple[Class, ...]) -> None:
        self.classes = classes
        self.total = sum(c.weight for c in classes)
        self.has_several = any(c.cards > 1 for c in classes)
        self._levels = sorted({c.cpu_milli for c in classes})
        self._single = [c for c in classes if c.cards == 1]
        self._several = [c for c in classes if c.cards > 1]
        self._terms: dict[tuple[int, str], list[int]] = {}
        self._wholes: dict[tuple[int, str], list[int] | None] = {}

    def level(self, cpu_milli: int) -> int:
        """How many of the distinct CPU sizes fit; equal levels give equal values."""
        return bisect_right(self._levels, cpu_milli)

    def terms(self, level: int, model: str) -> list[int]:
        """By free share 0..1000: free x weight of the one-card classes that fit a card of `model`."""
        found = self._terms.get((level, model))
        if found is None:
            found = self._terms[level, model] = self._build_terms(level, model)
        return found

    def _build_terms(self, level: int, model: str) -> list[int]:
        gains = [0] * (WHOLE_CARD + 1)
        for c in self._affordable(self._single, level):
            if not c.models or model in c.models:
                gains[c.share_milli] += c.weight
        terms, weight = [0] * (WHOLE_CARD + 1), 0
        for free in range(1, WHOLE_CARD + 1):
            weight += gains[free]
            terms[free] = free * weight
        return terms

    def _affordable(self, classes: Iterable[Class], level: int) -> list[Class]:
        limit = self._levels[level - 1] if level else -1
        return [c for c in classes if c.cpu_milli <= limit]

    def several(self, level: int, frees: list[tuple[int, str]]) -> int:
        """U of the classes that ask for more than one card, over (free share, model) of the cards."""
        value = 0
        for c in self._affordable(self._several, level):
            fitting = [free for free, model in frees if free >= c.share_milli and (not c.models or model in c.models)]
            if len(fitting) >= c.cards:
                value += c.weight * sum(fitting)
        return value

    def wholes(self, level: int, model: str) -> list[int] | None:
        """The same by number of free whole cards of one model; None if a class of several cards asks for less."""
        key = (level, model)
        if key not in self._wholes:
            self._wholes[key] = self._build_wholes(level, model)
        return self._wholes[key]

    def _build_wholes(self, level: int, model: str) -> list[int] | None:
        classes = self._affordable(self._several, level)
        if any(c.share_milli < WHOLE_CARD for c in classes):
            return None
        return [self.several(level, [(WHOLE_CARD, model)] * count) for count in range(MAX_CARDS_PER_REQUEST + 1)]


NOTHING_KNOWN = Mix(())
"""Before anything was accepted."""
