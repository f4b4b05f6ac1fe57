"""The card is ours to sell: on a node that is shared with other schedulers a placeholder pod holds it."""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from scheduler.core.locality import Tags
from scheduler.core.request import Shape


def acquired(_shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card of a node in mode `coexist` that no placeholder holds; with what stands against getting it."""
    if not card.unacquired:
        return None
    against = f": {node.facts.acquiring}" if node.facts is not None and node.facts.acquiring else ""
    text = f"{node.name} card {card.card.uuid}: no placeholder of ours holds it{against}"
    return Reason(code="card-not-acquired", text=text[:1024], node=node.name, card=card.card.uuid)
