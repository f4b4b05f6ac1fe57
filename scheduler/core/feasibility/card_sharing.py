"""Sharing modes never mix on one card, as far as the inventory tells.

A card with MIG enabled has no whole of its own to sell: its instances are what can be used. A card that *is* an
instance (isolation `mig` without MIG enabled on itself) has one tenant. A card whose memory the driver cannot tell is
sold whole or not at all: a slice of an unknown number is unknown.
"""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from contracts.units import WHOLE_CARD
from scheduler.core.locality import Tags
from scheduler.core.request import Shape, whole_memory


def sharing_mode(shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card that is split by MIG, and a share of a card that has one tenant only."""
    where = f"{node.name} card {card.card.uuid}"
    if card.card.mig_enabled:
        return Reason(
            code="card-mig",
            text=f"{where}: split by MIG, neither sold whole nor shared",
            node=node.name,
            card=card.card.uuid,
        )
    if card.card.isolation == "mig" and shape.share_milli < WHOLE_CARD:
        return Reason(
            code="card-mig",
            text=f"{where}: a MIG instance has one tenant, {shape.share_milli} of 1000 asked for",
            needed=shape.share_milli,
            free=WHOLE_CARD,
            unit="thousandths of a card",
            node=node.name,
            card=card.card.uuid,
        )
    return None


def memory_known(shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a slice of a card whose memory is unknown; the whole card may be taken."""
    if card.card.memory_total_mib is not None or whole_memory(shape):
        return None
    text = f"{node.name} card {card.card.uuid}: its memory is unknown, so it is sold whole or not at all"
    return Reason(code="card-memory-unknown", text=text, node=node.name, card=card.card.uuid)
