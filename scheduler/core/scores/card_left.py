"""Tightness: how much of the chosen cards stays unsold (best fit of KubeShare, HPDC 2020)."""

from __future__ import annotations

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView


def card_left(shape: Shape, _view: NodeView, chosen: Choice, _mix: Mix) -> int:
    """-(sum over the chosen cards of free share after the placement), in thousandths; 0 = every card is filled up.

    An empty card leaves 1000 - share, an occupied one less: existing goes before new by the number itself.
    """
    if len(chosen) == 1:
        return shape.share_milli - chosen[0].free_milli
    return shape.share_milli * len(chosen) - sum(card.free_milli for card in chosen)
