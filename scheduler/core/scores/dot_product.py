"""Dot product of what is free and what is asked (Tetris, SIGCOMM 2014), as Weng et al. (USENIX ATC 2023) apply it."""

from __future__ import annotations

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView

CARDS_TO_CPU = 16
"""128 cores and 8 cards are both 1: a thousandth of a card counts as 16 milli-cores."""

LARGEST_CPU = 128_000


def dot_product(shape: Shape, view: NodeView, _chosen: Choice, _mix: Mix) -> int:
    """floor(100 x (1 - (CPU free x CPU asked + share free x share asked) / 2)), in parts of 128 cores and 8 cards.

    Higher where less is free of what the request asks most of. Share free is that of all cards of the node, before the
    placement.
    """
    cpu = view.cpu_milli * shape.cpu_milli
    share = view.left_milli * shape.cards * shape.share_milli * CARDS_TO_CPU * CARDS_TO_CPU
    return 100 + -50 * (cpu + share) // (LARGEST_CPU * LARGEST_CPU)
