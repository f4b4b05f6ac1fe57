"""Which cards of a node to try first. Each order is total: it ends in the position of the card.

A policy orders the cards of a node and scores nodes by the cards that were taken; the two belong together, so that the
card that made a node attractive is the card that is sold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from scheduler.core.mix import Mix, change
from scheduler.core.request import Shape
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


def least_fragment(shape: Shape, view: NodeView, mix: Mix) -> Iterable[CardView]:
    """The card after which the node keeps most usable share, then `tightest`; several cards: `tightest`.

    Cards of equal free share and model are worth the same, so one of each is tried: the fullest in memory.
    """
    candidates = view.tight[bisect_left(view.frees, shape.share_milli) :]
    if shape.cards > 1 or len(candidates) < 2 or candidates[0].free_milli == candidates[-1].free_milli:  # noqa: PLR2004
        return candidates
    level, share = mix.level(view.cpu_milli - shape.cpu_milli), shape.share_milli
    tried: dict[tuple[int, str], int] = {}
    losses: list[tuple[int, int]] = []
    for place, card in enumerate(candidates):
        key = (card.free_milli, card.model)
        loss = tried.get(key)
        if loss is None:
            loss = tried[key] = -change(mix, view, level, (card,), share)
        losses.append((loss, place))
    losses.sort()
    return [candidates[place] for _, place in losses]
