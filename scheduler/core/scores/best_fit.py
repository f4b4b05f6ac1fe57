"""Published best fit over CPU and cards together, as Weng et al. (USENIX ATC 2023) compare with: fill up nodes."""

from __future__ import annotations

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView

CARDS_TO_CPU = 16
"""128 cores and 8 cards weigh the same: one thousandth of a card counts as 16 milli-cores."""

STEP = 2560
"""One point is 1 % of (128,000 + 16 x 8,000), the largest node: coarse enough that many nodes are equal."""


def best_fit(shape: Shape, view: NodeView, _chosen: Choice, _mix: Mix) -> int:
    """floor(100 x (1 - (CPU left / 128 cores + share left / 8 cards) / 2)), both after the placement.

    Share left is that of all cards of the node. As one floor division: 100 + floor(-(CPU + 16 x share) / 2560). The
    published rule stretches the scores of all fitting nodes to 0..100 after the cut; the order stays what it was.
    Larger nodes than 128 cores and 8 cards go below zero, and the order goes on.
    """
    cpu_left = view.cpu_milli - shape.cpu_milli
    share_left = view.left_milli - shape.cards * shape.share_milli
    return 100 + -(cpu_left + CARDS_TO_CPU * share_left) // STEP
