"""NVLink: several cards that reach each other rather than some that do not."""

from __future__ import annotations

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView


def linked_cards(_shape: Shape, _view: NodeView, chosen: Choice, _mix: Mix) -> int:
    """1 if the chosen cards are all of one NVLink group, else 0; a card without a group is linked to nobody."""
    groups = {card.card.nvlink_group for card in chosen}
    return int(len(groups) == 1 and None not in groups)
