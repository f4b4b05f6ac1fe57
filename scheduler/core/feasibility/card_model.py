"""The card is one of the models that the request allows."""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from scheduler.core.locality import Tags
from scheduler.core.request import Shape


def model(shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card of another model."""
    if not shape.models or card.card.model in shape.models:
        return None
    text = f"{node.name} card {card.card.uuid}: model {card.card.model}, asked for {' or '.join(shape.models)}"
    return Reason(code="card-model", text=text[:1024], node=node.name, card=card.card.uuid)
