"""What the cards of one node could give to a shape that does not fit: the largest slice of each, and at what cost.

In: a shape, a node, the tags of its cards. Out: offers, cheapest first (cost, then position), and the two ways to make
do with them: all the cards with a slice that each of the cheapest can give, or fewer cards with the slice as asked.
A card that is gone, split by MIG or offered by another node makes no offer, nor does one with nothing left.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bus.ledger.state import CardState, NodeState
from contracts.units import WHOLE_CARD
from scheduler.core.conditions import conditions_of, given_up, price_of
from scheduler.core.feasibility import card_reasons
from scheduler.core.locality import Tags
from scheduler.core.request import Shape, memory_on


class Offer(msgspec.Struct, frozen=True):
    """What one card could give."""

    order: tuple[int, int]
    """Cost, position."""
    card: str
    share_milli: int
    memory_mib: int | None
    conditions: tuple[str, ...]
    fits: bool


class Cards(msgspec.Struct, frozen=True):
    """A choice of cards of one node and the slice that they can all give."""

    card: str
    cards: int
    share_milli: int
    memory_mib: int | None
    conditions: tuple[str, ...]
    cost: int
    fewer: bool


def offers_of(shape: Shape, node: NodeState, tags: Mapping[str, Tags]) -> list[Offer]:
    """Offers of all cards that could ever take the shape, cheapest first."""
    offers = (
        _offer(shape, node, card, tags[uuid], position) for position, (uuid, card) in enumerate(node.cards.items())
    )
    return sorted((offer for offer in offers if offer is not None), key=lambda offer: offer.order)


def _offer(shape: Shape, node: NodeState, card: CardState, tags: Tags, position: int) -> Offer | None:
    reasons = card_reasons(shape, node, card, tags)
    conditions = conditions_of(reasons)
    if conditions is None:
        return None
    share, memory = _slice(shape, card)
    if share < 1 or (memory is not None and memory < min(1, shape.memory_mib or 0)):
        return None
    cost = price_of(conditions) + given_up(shape.share_milli, share) + given_up(shape.memory_mib or 0, memory or 0)
    return Offer((cost, position), card.card.uuid, share, memory, conditions, not reasons)


def _slice(shape: Shape, card: CardState) -> tuple[int, int | None]:
    """The largest share, up to what is asked, and the memory with it; memory that follows the share limits it too."""
    share = min(shape.share_milli, card.free_milli)
    if shape.memory_mib is not None:
        return share, min(shape.memory_mib, card.free_mib)
    if card.card.memory_total_mib is None or share < 1:
        return share, None
    if memory_on(card.capacity_mib, msgspec.structs.replace(shape, share_milli=share)) <= card.free_mib:
        return share, None
    # floor(capacity x s / 1000) <= free holds up to s = ((free + 1) x 1000 - 1) // capacity
    if card.free_mib < 1:
        return 0, None
    return min(share, ((card.free_mib + 1) * WHOLE_CARD - 1) // card.capacity_mib), None


def smaller(shape: Shape, offers: list[Offer]) -> Cards | None:
    """All the cards, with the slice that each of the cheapest can give."""
    chosen = offers[: shape.cards]
    if len(chosen) < shape.cards:
        return None
    share = min(offer.share_milli for offer in chosen)
    memories = [offer.memory_mib for offer in chosen if offer.memory_mib is not None]
    memory = min(memories) if memories else None
    conditions = tuple(dict.fromkeys(text for offer in chosen for text in offer.conditions))
    cost = price_of(conditions) + given_up(shape.share_milli, share) + given_up(shape.memory_mib or 0, memory or 0)
    return Cards(chosen[-1].card, shape.cards, share, memory, conditions, cost, fewer=False)


def fewer(shape: Shape, offers: list[Offer]) -> Cards | None:
    """The slice as asked, on the cards that can give it."""
    fitting = [offer for offer in offers if offer.fits]
    if not fitting or len(fitting) >= shape.cards:
        return None
    cost = given_up(shape.cards, len(fitting))
    return Cards(fitting[-1].card, len(fitting), shape.share_milli, shape.memory_mib, (), cost, fewer=True)
