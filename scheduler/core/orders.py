"""Which cards of a node to try first. Each order is total: it ends in the position of the card.

A policy orders the cards of a node and scores nodes by the cards that were taken; the two belong together, so that the
card that made a node attractive is the card that is sold.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from itertools import count

from contracts.units import WHOLE_CARD
from scheduler.core.fragments import change, losses_of_one
from scheduler.core.menu.outlook import Outlook
from scheduler.core.menu.terms import rounded_cost
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.scores.fragment_published import fragment_published
from scheduler.core.scores.menu import fragment_rise, value_drop
from scheduler.core.view import CardView, NodeView


def tightest(shape: Shape, view: NodeView, _mix: Mix) -> Iterable[CardView]:
    """Least free share first, then least free memory, then position: holes stay large."""
    return view.tight[bisect_left(view.frees, shape.share_milli) :]


def emptiest(shape: Shape, view: NodeView, _mix: Mix) -> Iterable[CardView]:
    """The exact reverse of `tightest`: neighbours stay few."""
    return view.tight[: bisect_left(view.frees, shape.share_milli) - len(view.frees) - 1 : -1]


def in_position(_shape: Shape, view: NodeView, _mix: Mix) -> Iterable[CardView]:
    """Lowest position first."""
    return view.cards


def drawn_card(shape: Shape, view: NodeView, _mix: Mix) -> Iterable[CardView]:
    """One of the cards with room, by a digest of the node's name and load, then on in a circle by position.

    Whole cards are all alike: lowest position first.
    """
    share = shape.share_milli
    if share == WHOLE_CARD:
        return view.cards
    fitting = [card for card in view.cards if card.free_milli >= share]
    if len(fitting) < 2:  # noqa: PLR2004 - nothing to draw
        return fitting
    load = f"{view.name}|{view.pods}|{view.left_milli}"
    first = int.from_bytes(hashlib.sha256(load.encode()).digest()[:8]) % len(fitting)
    return fitting[first:] + fitting[:first]


def least_fragment(shape: Shape, view: NodeView, mix: Mix) -> Iterable[CardView]:
    """The card after which the node keeps most usable share, then `tightest`; several cards: `tightest`."""
    first = bisect_left(view.frees, shape.share_milli)
    candidates = view.tight[first:]
    if shape.cards > 1 or not mix.total or len(candidates) < 2:  # noqa: PLR2004 - nothing to order
        return candidates
    if view.uniform and view.frees[first] == view.frees[-1]:  # all alike, as on every empty node
        return candidates
    level, share = mix.level(view.cpu_milli - shape.cpu_milli), shape.share_milli
    losses = losses_of_one(mix, view, level, share, first)
    if losses is None:
        losses = [-change(mix, view, level, (card,), share) for card in candidates]
    return [candidates[place] for _, place in sorted(zip(losses, count(), strict=False))]


def least_cost(shape: Shape, view: NodeView, mix: Mix) -> Iterable[CardView]:
    """The card after which the node keeps most menu value and least fragment, rounded; then the lowest position.

    Whole cards: lowest position first; parts of several: `tightest`.
    """
    if shape.share_milli == WHOLE_CARD or not isinstance(mix, Outlook):
        return view.cards
    if shape.cards > 1:
        return tightest(shape, view, mix)
    fitting = [card for card in view.cards if card.free_milli >= shape.share_milli]
    if len(fitting) < 2:  # noqa: PLR2004 - nothing to order
        return fitting
    costs: dict[int, int] = {}
    for card in fitting:
        if card.free_milli not in costs:
            cost = -value_drop(shape, view, (card,), mix) - fragment_rise(shape, view, (card,), mix)
            costs[card.free_milli] = rounded_cost(cost, mix.tables.terms)
    return sorted(fitting, key=lambda card: (costs[card.free_milli], card.position))


def first_of_best(shape: Shape, view: NodeView, mix: Mix) -> Iterable[CardView]:
    """By the published score of the card alone, the lowest position among equals; several or whole cards: `tightest`.

    What `least_fragment` tells apart by the thousandth is equal here within a step of the score.
    """
    if shape.cards != 1 or shape.share_milli == WHOLE_CARD:
        return tightest(shape, view, mix)
    fitting = [card for card in view.cards if card.free_milli >= shape.share_milli]
    if len(fitting) < 2:  # noqa: PLR2004 - nothing to order
        return fitting
    return sorted(fitting, key=lambda card: -fragment_published(shape, view, (card,), mix))
