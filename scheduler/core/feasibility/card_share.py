"""Compute share, card by card: 0.5 free here and 0.5 free there is not a whole card."""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from scheduler.core.locality import Tags
from scheduler.core.request import Shape


def share(shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card with less free share than is asked for."""
    free = max(0, card.free_milli)
    if shape.share_milli <= card.free_milli:
        return None
    return Reason(
        code="card-share",
        text=f"{node.name} card {card.card.uuid}: needs {shape.share_milli} of 1000 thousandths, {free} free",
        needed=shape.share_milli,
        free=free,
        unit="thousandths of a card",
        node=node.name,
        card=card.card.uuid,
    )
