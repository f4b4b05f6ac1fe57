"""Size of the card itself: "any card with at least 40 GiB", whatever is sold of it already.

Compared is the total that the driver tells, because that is the number by which people know a card: one of 40,960 MiB
has 40,536 to sell, and is a card of 40 GiB all the same.
"""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from contracts.inventory import Card
from contracts.outcomes import Reason
from scheduler.core.locality import Tags
from scheduler.core.request import Shape


def big_enough(shape: Shape, card: Card) -> bool:
    """It has the memory asked for; a card whose memory is unknown has none that could be promised."""
    return (card.memory_total_mib or 0) >= shape.min_card_mib


def card_size(shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card that is too small as a whole."""
    if big_enough(shape, card.card):
        return None
    total = card.card.memory_total_mib
    has = "its size is unknown" if total is None else f"it has {total}"
    return Reason(
        code="card-size",
        text=f"{node.name} card {card.card.uuid}: a card of {shape.min_card_mib} MiB is asked for, {has}",
        needed=shape.min_card_mib,
        free=total,
        unit="MiB of the whole card",
        node=node.name,
        card=card.card.uuid,
    )
