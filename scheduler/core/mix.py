"""What is likely to come: the classes of requests that cover 95 % of those so far, and what a node is worth to them.

In: `mix` of the ledger (how often each `cpu|cards|share|models` was accepted). Out: a `Mix`, which tells how much of
the free share of a node those classes could use. All integers: popularity is a count, nothing is divided until a
score is rounded.

The fragment of a node (Fragmentation Gradient Descent, Weng et al., USENIX ATC 2023) is the expected free share that a
random next request cannot use. With R the free share of all cards and weights p_m summing to N:

    usable(m) = 0 if m's CPU does not fit, or fewer than m.cards cards have m.share free, or m asks for no card
              = sum of the free shares of the cards that have at least m.share free, of an allowed model
    F = R - U / N,  U = sum of p_m x usable(m)

U is a sum over cards of free x W(CPU, free), where W adds the weights of all one-card classes that fit: a table by free
share (0..1000), built once for each level of CPU and card model. Classes of several cards are few and counted one by
one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

import msgspec

from contracts.units import MAX_CARDS_PER_REQUEST, WHOLE_CARD
from scheduler.core.view import CardView, NodeView

COVERED_PERCENT = 95
"""The rare rest would only smear the score: on the openb trace 95 % was better than 60, 80, 99 and 100 %."""

FIRST_POINT = 64
STEADY_POINT = 8192
"""Learning points, in requests accepted since the epoch began: 64, 128, 256, ... 8192, then every 8192. Counts add
up from the beginning, so doubling is the step in which they change. All scores are computed again at a point, about
10 us for each shape and node: 200 ms for 20 shapes on 1,000 nodes, 25 us a decision."""


def learning_point(accepted: int) -> int:
    """The last learning point at or before `accepted`."""
    if accepted < FIRST_POINT:
        return 0
    if accepted >= STEADY_POINT:
        return accepted - accepted % STEADY_POINT
    return 1 << (accepted.bit_length() - 1)


class Class(msgspec.Struct, frozen=True):
    """One class of requests and how often it came."""

    cpu_milli: int
    cards: int
    share_milli: int
    models: frozenset[str]
    weight: int


def classes_of(mix: Mapping[str, int]) -> tuple[Class, ...]:
    """The most frequent classes, until 95 % of all requests are covered; equal counts in order of their key."""
    chosen: list[Class] = []
    left = sum(mix.values()) * COVERED_PERCENT
    for key, weight in sorted(mix.items(), key=lambda item: (-item[1], item[0])):
        if left <= 0:
            break
        left -= weight * 100
        chosen.append(_parse(key, weight))
    return tuple(chosen)


def _parse(key: str, weight: int) -> Class:
    cpu, cards, share, models = key.split("|", 3)
    return Class(int(cpu), int(cards), int(share), frozenset(models.split(",")) if models else frozenset(), weight)


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


class Worth(msgspec.Struct, frozen=True):
    """U of a node at one CPU level, with the tables to tell what a change makes of it."""

    value: int
    terms: list[int] | None
    """`Mix.terms` when all cards are of one model and `wholes` stands for the rest; None = sum card by card."""
    wholes: list[int]
    """`Mix.wholes`; zeros when no class asks for several cards."""


_NO_CLASSES = [0] * (MAX_CARDS_PER_REQUEST + 1)


def worth(mix: Mix, view: NodeView, level: int) -> Worth:
    """What the node is worth as it stands; kept in the view, because all shapes of that CPU level ask for it."""
    memo = view.memo
    if memo.get("mix") is not mix:
        memo.clear()
        memo["mix"] = mix
    found: Worth | None = memo.get(level)
    if found is None:
        found = memo[level] = _worth(mix, view, level)
    return found


def _worth(mix: Mix, view: NodeView, level: int) -> Worth:
    model = view.cards[0].model if view.cards else ""
    wholes = mix.wholes(level, model) if mix.has_several else _NO_CLASSES
    if view.uniform and wholes is not None:
        terms = mix.terms(level, model)
        return Worth(sum([terms[free] for free in view.frees]) + wholes[view.wholes], terms, wholes)
    value = sum([mix.terms(level, card.model)[card.free_milli] for card in view.cards])
    return Worth(value + several(mix, view, level), None, _NO_CLASSES)


def usable(mix: Mix, view: NodeView, level: int) -> int:
    """U of the node as it stands, at a CPU level."""
    return worth(mix, view, level).value


def change(mix: Mix, view: NodeView, level: int, taken: tuple[CardView, ...], share: int) -> int:
    """What U gains, mostly less than 0, when `share` is taken from each card of `taken`."""
    known = worth(mix, view, level)
    terms = known.terms
    if terms is None:
        return _change_by_card(mix, view, level, taken, share)
    value, touched = 0, 0
    for card in taken:
        free = card.free_milli
        value += terms[free - share] - terms[free]
        touched += free == WHOLE_CARD
    if not touched:
        return value
    return value + known.wholes[view.wholes - touched] - known.wholes[view.wholes]


def losses_of_one(mix: Mix, view: NodeView, level: int, share: int, first: int) -> list[int] | None:
    """-`change` for each card of `tight` from `first` on, one card at a time; None when tables do not tell."""
    known = worth(mix, view, level)
    terms = known.terms
    if terms is None:
        return None
    losses = [terms[free] - terms[free - share] for free in view.frees[first:]]
    if view.wholes:
        whole = known.wholes[view.wholes] - known.wholes[view.wholes - 1]
        for place in range(len(losses) - view.wholes, len(losses)):
            losses[place] += whole
    return losses


def _change_by_card(mix: Mix, view: NodeView, level: int, taken: tuple[CardView, ...], share: int) -> int:
    value = 0
    for card in taken:
        terms, free = mix.terms(level, card.model), card.free_milli
        value += terms[free - share] - terms[free]
    return value + several(mix, view, level, taken, share) - several(mix, view, level)


def several(mix: Mix, view: NodeView, level: int, taken: tuple[CardView, ...] = (), share: int = 0) -> int:
    """The part of U that classes of several cards have, after `share` is taken from each card of `taken`."""
    positions = {card.position for card in taken}
    frees = [(card.free_milli - share * (card.position in positions), card.model) for card in view.cards]
    return mix.several(level, frees)
