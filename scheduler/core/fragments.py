"""What a node is worth to the mix that is coming, and what a placement would make of it.

The fragment of a node (Fragmentation Gradient Descent, Weng et al., USENIX ATC 2023) is the expected free share that a
random next request cannot use. With R the free share of all cards and weights p_m summing to N:

    usable(m) = 0 if m's CPU does not fit, or fewer than m.cards cards have m.share free, or m asks for no card
              = sum of the free shares of the cards that have at least m.share free, of an allowed model
    F = R - U / N,  U = sum of p_m x usable(m)

U is a sum over cards of free x W(CPU, free), where W adds the weights of all one-card classes that fit: a table by free
share (0..1000), built once for each level of CPU and card model. Classes of several cards are few and counted one by
one.

Everything but the first look at a view is a few additions: U is remembered in the view for each level of CPU, and a
placement changes the terms of the cards it takes and the number of whole cards.
"""

from __future__ import annotations

import msgspec

from contracts.units import MAX_CARDS_PER_REQUEST, WHOLE_CARD
from scheduler.core.mix import Mix
from scheduler.core.view import CardView, NodeView


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
