"""Which mode each card has: by its UUID, else the node's; a MIG instance is always one. Pure.

A mode is a property of the card, never of the pod: tenants of one card share it in one way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from contracts.inventory import Card, IsolationMode


def with_modes(cards: Iterable[Card], default: IsolationMode, by_card: Mapping[str, IsolationMode]) -> tuple[Card, ...]:
    """The cards with the mode that the settings give them."""
    return tuple(replace(card, isolation=mode_of_card(card, default, by_card)) for card in cards)


def mode_of_card(card: Card, default: IsolationMode, by_card: Mapping[str, IsolationMode]) -> IsolationMode:
    """An instance is cut by the hardware, whatever the settings say; a whole card is not, whatever they say."""
    if card.mig_profile or card.parent:
        return "mig"
    chosen = by_card.get(card.uuid, default)
    return "none" if chosen == "mig" else chosen
