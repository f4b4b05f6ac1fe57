"""The card is there, healthy, and not taken out by an operator."""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from scheduler.core.locality import Tags
from scheduler.core.request import Shape


def present(_shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card that tenants hold but the inventory no longer lists."""
    if card.present:
        return None
    return _refusal(node, card, "card-missing", card.reason or "no longer in the node's inventory")


def healthy(_shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card that its monitor does not call healthy: suspect, failed, recovering."""
    if card.health == "healthy":
        return None
    why = f": {card.reason}" if card.reason else ""
    return _refusal(node, card, "card-health", f"{card.health}{why}")


def uncordoned(_shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card that an operator cordoned; the pods on it stay."""
    if not card.cordoned:
        return None
    order = node.cordons.get(card.card.uuid)
    why = f": {order.reason}" if order and order.reason else ""
    return _refusal(node, card, "card-cordoned", f"cordoned{why}")


def offered_here(_shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card whose UUID another node lists as well, and listed first."""
    if not card.rival:
        return None
    return _refusal(node, card, "card-rival", f"{card.rival} lists the same UUID and offers it")


def _refusal(node: NodeState, card: CardState, code: str, what: str) -> Reason:
    text = f"{node.name} card {card.card.uuid}: {what}"
    return Reason(code=code, text=text, node=node.name, card=card.card.uuid)
