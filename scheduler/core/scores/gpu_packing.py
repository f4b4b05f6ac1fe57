"""Cards in use, then free cards of a node in use, then a free node (the packing rule in Weng et al., ATC 2023)."""

from __future__ import annotations

from contracts.units import WHOLE_CARD
from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView

USED_CARDS = 100
FREE_CARDS = 50
FREE_NODE = 33


def gpu_packing(_shape: Shape, view: NodeView, chosen: Choice, _mix: Mix) -> int:
    """0 to 100, by the first of these that is the case; free share is that before the placement.

    No card is asked for: 0. All cards of the node are free: 33 - cards, at least the number of cards. A free card is
    taken: 50 - free cards taken, at least 33. Cards in use only: 100 - floor(sum of floor(free %) / 10), at least 50.
    """
    if not chosen:
        return 0
    if view.wholes == len(view.cards):
        return max(FREE_NODE - view.wholes, view.wholes)
    free = sum(card.free_milli == WHOLE_CARD for card in chosen)
    if free:
        return max(FREE_CARDS - free, FREE_NODE)
    percent = sum(card.free_milli * 100 // WHOLE_CARD for card in chosen)
    return max(USED_CARDS - percent // 10, FREE_CARDS)
