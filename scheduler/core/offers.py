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
from scheduler.core.conditions import UNLINKED, conditions_of, given_up, price_of
from scheduler.core.feasibility import card_reasons
from scheduler.core.feasibility.card_links import groups_of
from scheduler.core.locality import Tags
from scheduler.core.request import Shape, memory_on


class Slice(msgspec.Struct, frozen=True):
    """What is asked of each card: fields of a `Shape`, under the same names."""

    share_milli: int
    memory_mib: int | None = None
    memory_milli: int | None = None
    min_card_mib: int = 0


class Offer(msgspec.Struct, frozen=True):
    """What one card could give."""

    order: tuple[int, int]
    """Cost, position."""
    card: str
    slice: Slice
    conditions: tuple[str, ...]
    fits: bool
    group: int | None


class Cards(msgspec.Struct, frozen=True):
    """A choice of cards of one node and the slice that they can all give."""

    card: str
    cards: int
    slice: Slice
    conditions: tuple[str, ...]
    cost: int
    fewer: bool = False


def offers_of(shape: Shape, node: NodeState, tags: Mapping[str, Tags]) -> list[Offer]:
    """Offers of all cards that could ever take the shape, cheapest first."""
    offers = (
        _offer(shape, node, card, tags[uuid], position) for position, (uuid, card) in enumerate(node.cards.items())
    )
    return sorted((offer for offer in offers if offer is not None), key=lambda offer: offer.order)


def _offer(shape: Shape, node: NodeState, card: CardState, tags: Tags, position: int) -> Offer | None:
    reasons = card_reasons(shape, node, card, tags)
    conditions = conditions_of(reasons)
    given = None if conditions is None else _slice(shape, card)
    if conditions is None or given is None:
        return None
    cost = price_of(conditions) + _price(shape, given)
    return Offer((cost, position), card.card.uuid, given, conditions, not reasons, card.card.nvlink_group)


def _slice(shape: Shape, card: CardState) -> Slice | None:
    """The largest slice, up to what is asked; memory that follows the share limits it too. None: nothing is left."""
    share, total = min(shape.share_milli, card.free_milli), card.card.memory_total_mib
    size = min(shape.min_card_mib, total or 0)
    if share < 1:
        return None
    if shape.memory_mib is not None:
        memory = min(shape.memory_mib, card.free_mib)
        return None if memory < min(1, shape.memory_mib) else Slice(share, memory, None, size)
    if total is None:
        return Slice(share, None, shape.memory_milli, size)
    most = _largest(shape, card)
    if most < 1:
        return None
    if shape.memory_milli is None:
        return Slice(min(share, most), None, None, size)
    return Slice(share, None, min(shape.memory_milli, most), size)


def _largest(shape: Shape, card: CardState) -> int:
    """The most thousandths of the card's memory that are free, as far as the shape asks for them."""
    if memory_on(card.capacity_mib, shape) <= card.free_mib:
        return shape.memory_share
    # floor(capacity x s / 1000) <= free holds up to s = ((free + 1) x 1000 - 1) // capacity
    return ((card.free_mib + 1) * WHOLE_CARD - 1) // card.capacity_mib if card.free_mib >= 1 else 0


def _price(shape: Shape, given: Slice) -> int:
    """What is given up of the slice."""
    pairs = (
        (shape.share_milli, given.share_milli),
        (shape.memory_mib, given.memory_mib),
        (shape.memory_milli, given.memory_milli),
        (shape.min_card_mib, given.min_card_mib),
    )
    return sum(given_up(asked or 0, left or 0) for asked, left in pairs)


def smaller(shape: Shape, offers: list[Offer]) -> Cards | None:
    """All the cards, with the slice that each of the cheapest can give; linked if they must be, or as a condition."""
    count = shape.cards
    choices = [offers[:count]]
    if shape.nvlink == "require":
        choices += [group[:count] for group in groups_of(offers, lambda offer: offer.group)]
    found = [_together(shape, chosen) for chosen in choices if len(chosen) == count]
    return min(found, key=lambda cards: cards.cost, default=None)


def _together(shape: Shape, chosen: list[Offer]) -> Cards:
    """The least that these can all give."""
    slices = [offer.slice for offer in chosen]
    given = Slice(
        min(s.share_milli for s in slices),
        min((s.memory_mib for s in slices if s.memory_mib is not None), default=None),
        min((s.memory_milli for s in slices if s.memory_milli is not None), default=None),
        min(s.min_card_mib for s in slices),
    )
    conditions = dict.fromkeys(text for offer in chosen for text in offer.conditions)
    if shape.nvlink == "require" and len(groups_of(chosen, lambda offer: offer.group)) > 1:
        conditions[UNLINKED] = None
    cost = price_of(conditions) + _price(shape, given)
    return Cards(chosen[-1].card, shape.cards, given, tuple(conditions), cost)


def fewer(shape: Shape, offers: list[Offer]) -> Cards | None:
    """The slice as asked, on the cards that can give it; on the largest group of them if they must be linked."""
    fitting = [offer for offer in offers if offer.fits]
    if shape.nvlink == "require":
        fitting = max(groups_of(fitting, lambda offer: offer.group), key=len, default=[])
    if not fitting or len(fitting) >= shape.cards:
        return None
    cost = given_up(shape.cards, len(fitting))
    asked = Slice(shape.share_milli, shape.memory_mib, shape.memory_milli, shape.min_card_mib)
    return Cards(fitting[-1].card, len(fitting), asked, (), cost, fewer=True)
