"""The cards of a node as we hold them: what was last known of each, and how each stands. Pure.

In: rounds of looks, events, the news that the driver does not answer, each with its time. Out: the `Book`, whose cards
are what the inventory publishes. What follows for one card is decided in `monitor.standing`; here it is decided which
card is meant:

    listed           the look's card, with what the look found against it
    not listed       failed: within one boot a card does not leave, so the driver lost it
    MIG              instances come and go with their card, and a card that is split is not listed beside them
    seat silent      the cards of that seat are suspect, the others go on
    driver silent    all suspect

What an earlier monitor knew comes in through `monitor.past`. Driver-reserved memory only grows within a book: it wavers
by some MiB, and what is sellable must neither be overstated nor be news every second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from contracts.inventory import Card
from contracts.units import CardUuid
from monitor import standing
from monitor.cards.protocol import Look, Sign
from monitor.standing import FINE, At, Rules, Standing

VANISHED = "the driver does not list it any more"

Step = Callable[[Standing], Standing]


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The cards as we hold them; by index, then UUID."""

    cards: tuple[Card, ...] = ()
    standings: Mapping[CardUuid, Standing] = {}
    """Of the cards that do not stand as if nothing had ever happened."""

    @property
    def unhealthy(self) -> tuple[CardUuid, ...]:
        """UUIDs of all cards that should get no new pods."""
        return tuple(card.uuid for card in self.cards if card.health != "healthy")

    def standing(self, uuid: CardUuid) -> Standing:
        """How one card stands."""
        return self.standings.get(uuid, FINE)


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of looks brought, by seat. Seats that were asked a moment ago are in neither: nothing is known."""

    looks: Mapping[int, Look] = {}
    silent: Mapping[int, str] = {}
    """Seats whose call has not come back by its deadline, with the words for it."""
    waiting: frozenset[int] = frozenset()
    """Seats whose call is still out, and may be."""


def observe(book: Book, seen: Round, at: At, rules: Rules) -> Book:
    """Fold one round."""
    looks = _sorted_out(seen.looks.values())
    found = {card.uuid: card for look in looks for card in look.cards}
    known = {card.uuid: card for card in book.cards}
    kept = known if seen.waiting else {u: c for u, c in known.items() if u in found or not _resliced(c, found)}
    held = {uuid: _keep_reserved(card, known.get(uuid)) for uuid, card in found.items()}
    against = _by_card(sign for look in looks for sign in look.signs)

    def step(card: Card) -> Step:
        if card.uuid in found:
            return lambda s: _looked(s, against.get(card.uuid, ()), at, rules)
        if card.index in seen.silent:
            return lambda s: standing.silent(s, seen.silent[card.index], at, rules)
        gone = Sign(card=card.uuid, weight="fatal", reason=VANISHED)
        return lambda s: s if seen.waiting else standing.troubled(s, gone, at, rules)

    return book_of((kept | held).values(), book, step)


def warned(book: Book, signs: Iterable[Sign], at: At, rules: Rules) -> Book:
    """Fold events; those of cards that we do not hold say nothing."""
    against = _by_card(signs)

    def step(card: Card) -> Step:
        return lambda s: _troubled(s, against.get(card.uuid, ()), at, rules)

    return book_of(book.cards, book, step)


def silent(book: Book, reason: str, at: At, rules: Rules) -> Book:
    """The driver gave no answer: what was healthy is suspect, what had failed stays so."""
    return book_of(book.cards, book, lambda _: lambda s: standing.silent(s, reason, at, rules))


def released(book: Book, cards: Iterable[CardUuid] | None = None) -> Book:
    """There was a reset of these cards, or of all: an answer is enough now."""
    meant = None if cards is None else set(cards)
    return book_of(
        book.cards, book, lambda card: standing.released if meant is None or card.uuid in meant else unchanged
    )


# --- one card -------------------------------------------------------------------------------------------------------


def _sorted_out(looks: Iterable[Look]) -> list[Look]:
    """Without what was said in the name of a card that speaks for itself at another seat."""
    looks = list(looks)
    speaking = {card.uuid for look in looks if look.named for card in look.cards}
    return [look if look.named else _without(look, speaking) for look in looks]


def _without(look: Look, speaking: set[CardUuid]) -> Look:
    cards = tuple(card for card in look.cards if card.uuid not in speaking)
    return replace(look, cards=cards, signs=tuple(sign for sign in look.signs if sign.card not in speaking))


def _looked(s: Standing, signs: Iterable[Sign], at: At, rules: Rules) -> Standing:
    signs = tuple(signs)
    return _troubled(s, signs, at, rules) if signs else standing.good(s, at, rules)


def _troubled(s: Standing, signs: Iterable[Sign], at: At, rules: Rules) -> Standing:
    for sign in signs:
        s = standing.troubled(s, sign, at, rules)
    return s


def _resliced(card: Card, found: Mapping[CardUuid, Card]) -> bool:
    """Whether the card made room for its instances, or the instance for others or for its whole card."""
    parents = {other.parent for other in found.values() if other.parent}
    whole_again = card.parent is not None and (card.parent in found or card.parent in parents)
    return card.uuid in parents or whole_again


def _keep_reserved(card: Card, before: Card | None) -> Card:
    if before is None or before.memory_reserved_mib <= card.memory_reserved_mib:
        return card
    return replace(card, memory_reserved_mib=before.memory_reserved_mib)


# --- the book -------------------------------------------------------------------------------------------------------


def book_of(cards: Iterable[Card], before: Book, step: Callable[[Card], Step]) -> Book:
    """Each card a step further, with its standing written into it."""
    stands = {card.uuid: step(card)(before.standing(card.uuid)) for card in cards}
    told = (marked(card, stands[card.uuid]) for card in cards)
    return Book(
        cards=tuple(sorted(told, key=lambda card: (card.index, card.uuid))),
        standings={uuid: s for uuid, s in stands.items() if s != FINE},
    )


def marked(card: Card, s: Standing) -> Card:
    """The card with how it stands written into it; itself when it says so already."""
    said = (card.health, card.health_reason, card.health_needs, card.health_since_ms)
    if said == (s.health, s.reason, s.needs, s.since_ms):
        return card
    return replace(card, health=s.health, health_reason=s.reason, health_needs=s.needs, health_since_ms=s.since_ms)


def _by_card(signs: Iterable[Sign]) -> dict[CardUuid, tuple[Sign, ...]]:
    found: dict[CardUuid, tuple[Sign, ...]] = {}
    for sign in signs:
        found[sign.card] = (*found.get(sign.card, ()), sign)
    return found


def unchanged(s: Standing) -> Standing:
    """No step."""
    return s
