"""Fullness of the node: how much of all its cards stays unsold."""

from __future__ import annotations

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView


def node_left(shape: Shape, view: NodeView, _chosen: Choice, _mix: Mix) -> int:
    """-(free share of the node after the placement) in thousandths of a card, summed over its cards.

    The sum orders nodes; whether something fits is never read from it. A request without cards goes where least free
    share would be starved of CPU by it.
    """
    return shape.share_milli * shape.cards - view.left_milli
