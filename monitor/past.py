"""What an earlier monitor of this node knew of its cards, as far as it still counts. Pure.

In: the stream's last inventory, and the book that this monitor has begun. Out: one book. It is remembered for the same
boot only: a new boot may have other cards, and then the old ones are forgotten. What a card needs to come back is
remembered, because a restart of its monitor is no evidence of anything; how often it flapped is not.
"""

from __future__ import annotations

from contracts.inventory import Card, NodeInventory
from monitor.cards.protocol import Look
from monitor.health import Book, Round, book_of, marked, observe, unchanged
from monitor.standing import FINE, At, Rules, Standing

UNSEEN = "not yet seen by this monitor"


def remember(last: NodeInventory | None, *, boot_id: str, provider: str, at: At, rules: Rules) -> Book:
    """Begin with what an earlier monitor of this boot published, as suspect; with nothing on another boot.

    Made-up cards are not remembered: they come and go with the settings.
    """
    if last is None or last.boot_id != boot_id or last.provider != provider or provider == "simulated":
        return Book()
    standings = {card.uuid: _remembered(card, at, rules) for card in last.cards}
    return book_of(last.cards, Book(standings=standings), lambda _: unchanged)


def adopt(book: Book, past: Book, at: At, rules: Rules) -> Book:
    """Join what was remembered late, when the stream could first be read, to what has been seen meanwhile.

    A card that is seen well and whose past needs a reset, or time, has not got that by a restart of its monitor.
    """
    if not book.cards:
        return past
    looks = {card.index: Look() for card in book.cards}
    for card in book.cards:
        looks[card.index] = Look(cards=(*looks[card.index].cards, marked(card, FINE)))
    joined = observe(past, Round(looks=looks), at, rules)
    doubted = {uuid: s for uuid, s in book.standings.items() if s.health != "healthy"}
    return book_of(joined.cards, Book(standings={**joined.standings, **doubted}), lambda _: unchanged)


def _remembered(card: Card, at: At, rules: Rules) -> Standing:
    """Doubts go on from now; a card that nothing spoke against only has to answer."""
    if card.health == "healthy" or (card.health == "suspect" and card.health_needs == "answer"):
        return Standing(health="suspect", reason=UNSEEN, needs="answer")
    return Standing(
        health=card.health,
        reason=card.health_reason,
        needs=card.health_needs or "answer",
        since_ms=card.health_since_ms,
        quiet_from_ms=at.now_ms,
        hold_ms=rules.quiet_ms,
        flaps=0,
    )
