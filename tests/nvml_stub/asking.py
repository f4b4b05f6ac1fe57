"""What a provider finds at all its seats, for tests."""

from __future__ import annotations

from contracts.inventory import Card
from contracts.usage import CardUsage
from monitor.cards.nvml import NvmlCards
from monitor.cards.protocol import Look


def looks(cards: NvmlCards) -> list[Look]:
    return [cards.look(seat) for seat in cards.seats()]


def found(cards: NvmlCards) -> list[Card]:
    return [card for look in looks(cards) for card in look.cards]


def used(cards: NvmlCards) -> list[CardUsage]:
    return [usage for look in looks(cards) for usage in look.usage]


def against(cards: NvmlCards) -> list[tuple[str, str]]:
    """What speaks against whom."""
    return [(sign.card, sign.weight) for look in looks(cards) for sign in look.signs]


def by_uuid(cards: list[Card]) -> dict[str, Card]:
    return {card.uuid: card for card in cards}
