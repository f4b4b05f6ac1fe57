"""Equal sizes together (Gandiva, OSDI 2018; the rule as in Weng et al., USENIX ATC 2023)."""

from __future__ import annotations

from contracts.decisions import Placement
from contracts.units import WHOLE_CARD
from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView

LARGEST_SHARE = 8 * WHOLE_CARD


def gpu_clustering(shape: Shape, view: NodeView, _chosen: Choice, _mix: Mix) -> int:
    """25 x (8 cards - free share of the node) / 8 cards, rounded down, plus what the sizes on the node are worth.

    Only this request's size: 75. This and others: 50. No request with cards: 25. Others only: 0. A request without
    cards: 0 in all. Sizes: a part of a card, one whole card, two, three, ...
    """
    if not shape.cards:
        return 0
    sizes = _sizes(view)
    fullness = 25 * (LARGEST_SHARE - view.left_milli) // LARGEST_SHARE
    if not sizes:
        return fullness + 25
    if size_of(shape.cards, shape.share_milli) not in sizes:
        return fullness
    return fullness + (75 if len(sizes) == 1 else 50)


def size_of(cards: int, share_milli: int) -> int:
    """0 for parts of cards, else the number of whole ones."""
    return cards if share_milli == WHOLE_CARD else 0


def _sizes(view: NodeView) -> frozenset[int]:
    """Sizes of the requests with cards on the node; kept in the view, because all shapes ask for it."""
    found: frozenset[int] | None = view.memo.get("sizes")
    if found is None:
        found = view.memo["sizes"] = frozenset(_size(each) for each in view.residents if each.slices)
    return found


def _size(placement: Placement) -> int:
    return size_of(len(placement.slices), placement.slices[0].share_milli)
