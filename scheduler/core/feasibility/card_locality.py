"""Affinity, anti-affinity and exclusion tags of residents; what they mean is told in `scheduler.core.locality`."""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from scheduler.core.locality import Tags, affine, distant, exclusive
from scheduler.core.request import Shape


def affinity(shape: Shape, node: NodeState, card: CardState, tags: Tags) -> Reason | None:
    """Refuses an occupied card where nobody carries the affinity tag."""
    if affine(shape.locality, tags):
        return None
    return _refusal(node, card, "card-affinity", f"no resident has affinity {shape.locality.affinity}")


def anti_affinity(shape: Shape, node: NodeState, card: CardState, tags: Tags) -> Reason | None:
    """Refuses a card where somebody carries the same anti-affinity tag."""
    if distant(shape.locality, tags):
        return None
    return _refusal(node, card, "card-anti-affinity", f"a resident has anti-affinity {shape.locality.anti_affinity}")


def exclusion(shape: Shape, node: NodeState, card: CardState, tags: Tags) -> Reason | None:
    """Refuses an occupied card where somebody carries another exclusion tag, or none while one is asked for."""
    if exclusive(shape.locality, tags):
        return None
    there = sorted("no exclusion" if tag is None else f"exclusion {tag}" for tag in tags.exclusions)
    mine = f"exclusion {shape.locality.exclusion}" if shape.locality.exclusion else "no exclusion"
    return _refusal(node, card, "card-exclusion", f"residents have {', '.join(there)}; asked with {mine}")


def _refusal(node: NodeState, card: CardState, code: str, what: str) -> Reason:
    text = f"{node.name} card {card.card.uuid}: {what}"
    return Reason(code=code, text=text[:1024], node=node.name, card=card.card.uuid)
