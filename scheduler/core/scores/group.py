"""Affinity: beside its own group rather than on an empty card."""

from __future__ import annotations

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView


def group(shape: Shape, _view: NodeView, chosen: Choice, _mix: Mix) -> int:
    """The number of chosen cards where a resident carries the affinity tag of the request; 0 without a tag."""
    tag = shape.locality.affinity
    if tag is None:
        return 0
    return sum(tag in card.tags.affinity for card in chosen)
