"""What we hold of the cards over time: one that vanishes is not forgotten, one that flaps is not believed. Pure.

In: each inventory as the provider gave it, or the news that it gave none, and the monotonic time. Out: the `Book`,
whose cards are what the inventory publishes.

    seen healthy      healthy; after a failure `suspect` until it has been well for `hold_ms` in one piece
    seen failed       failed, with the provider's reason
    not seen          failed: within one boot a card does not leave, so the driver lost it
    nothing seen      all suspect: the driver does not answer, so we know nothing; well again with the first answer

Across restarts of the monitor the stream's last inventory is remembered for the same boot only: a new boot may have
other cards, and then the old ones are forgotten. Driver-reserved memory only grows within a book: it wavers by some
MiB, and what is sellable must neither be overstated nor be news every second.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from contracts.inventory import Card, NodeInventory
from contracts.units import CardUuid

VANISHED = "the driver does not list it any more"


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The cards as we hold them; by index, then UUID."""

    cards: tuple[Card, ...] = ()
    well_since_ms: Mapping[CardUuid, int | None] = {}
    """Cards that have failed and are not yet believed: since when they are well again, None while they are not."""

    @property
    def unhealthy(self) -> tuple[CardUuid, ...]:
        """UUIDs of all cards that should get no new pods."""
        return tuple(card.uuid for card in self.cards if card.health != "healthy")


def remember(last: NodeInventory | None, *, boot_id: str, provider: str) -> Book:
    """Begin with what an earlier monitor of this boot published, as suspect; with nothing on another boot.

    Made-up cards are not remembered: they come and go with the settings.
    """
    if last is None or last.boot_id != boot_id or last.provider != provider or provider == "simulated":
        return Book()
    doubted = {card.uuid: None for card in last.cards if card.health == "failed"}
    return silent(Book(cards=last.cards, well_since_ms=doubted), "not yet seen by this monitor")


def adopt(book: Book, past: Book, *, now_ms: int, hold_ms: int) -> Book:
    """Join what was remembered late, when the stream could first be read, to what has been seen meanwhile."""
    return observe(past, book.cards, now_ms=now_ms, hold_ms=hold_ms) if book.cards else past


def observe(book: Book, seen: tuple[Card, ...], *, now_ms: int, hold_ms: int) -> Book:
    """Fold one inventory."""
    known = {card.uuid: card for card in book.cards}
    listed = {card.uuid for card in seen}
    vanished = [_failed(card) for uuid, card in known.items() if uuid not in listed]
    found = [_keep_reserved(card, known.get(card.uuid)) for card in seen]
    well_since = _well_since(book.well_since_ms, [*found, *vanished], now_ms)
    cards = [_damped(card, well_since, now_ms, hold_ms) for card in (*found, *vanished)]
    still_doubted = {card.uuid for card in cards if card.health != "healthy"}
    return Book(
        cards=tuple(sorted(cards, key=lambda card: (card.index, card.uuid))),
        well_since_ms={uuid: since for uuid, since in well_since.items() if uuid in still_doubted},
    )


def silent(book: Book, reason: str) -> Book:
    """The driver gave no inventory: what was healthy is suspect, what had failed stays so."""
    cards = tuple(
        card if card.health == "failed" else replace(card, health="suspect", health_reason=reason)
        for card in book.cards
    )
    return Book(cards=cards, well_since_ms=dict.fromkeys(book.well_since_ms))


def _failed(card: Card) -> Card:
    return card if card.health == "failed" else replace(card, health="failed", health_reason=VANISHED)


def _keep_reserved(card: Card, before: Card | None) -> Card:
    if before is None or before.memory_reserved_mib <= card.memory_reserved_mib:
        return card
    return replace(card, memory_reserved_mib=before.memory_reserved_mib)


def _well_since(before: Mapping[CardUuid, int | None], cards: list[Card], now_ms: int) -> dict[CardUuid, int | None]:
    """None while failed; from the first good look on, its time."""
    since: dict[CardUuid, int | None] = {}
    for card in cards:
        if card.health == "failed":
            since[card.uuid] = None
        elif card.uuid in before:
            first_well = before[card.uuid]
            since[card.uuid] = now_ms if first_well is None else first_well
    return since


def _damped(card: Card, well_since: Mapping[CardUuid, int | None], now_ms: int, hold_ms: int) -> Card:
    since = well_since.get(card.uuid)
    if card.health != "healthy" or since is None or now_ms - since >= hold_ms:
        return card
    return replace(card, health="suspect", health_reason=f"it failed; healthy again after {hold_ms // 1000} s without")
