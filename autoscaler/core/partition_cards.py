"""Which card a slice goes to, where cards are rectangles of time × multiprocessors.

In: cards with the slices on them, a slice, an affinity tag if it has one. Out: the card and the place, or nothing.
Among all free places on all cards the one with the least waste is taken: best area fit, then the shorter side left
over, then cards that are in use before empty ones, then the card's name.

With `rule="stay"` tags work as KubeShare published them (HPDC 2020): who has a tag that a card carries goes to such a
card or nowhere; a tag that no card carries opens an empty card, which carries it from then on. Who has no tag is placed
among cards without tags by best fit, and only then among tagged ones by worst fit, so that their groups keep room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from autoscaler.core.partitions import Rectangle, free, waste
from contracts.messages import Value

Rule = Literal["any", "stay"]


class CardArea(Value, frozen=True, kw_only=True):
    """A card and the slices on it."""

    uuid: str
    taken: tuple[Rectangle, ...] = ()
    affinity: frozenset[str] = frozenset()
    """Tags of its residents."""


class Spot(Value, frozen=True, kw_only=True):
    """A place on a card."""

    card: str
    place: Rectangle


def choose(
    cards: Sequence[CardArea], width: int, height: int, *, affinity: str | None = None, rule: Rule = "any"
) -> Spot | None:
    """The place for a slice of `width` thousandths of time and `height` percent of multiprocessors."""
    if rule == "any":
        return _best(cards, width, height)
    if affinity is not None:
        tagged = [card for card in cards if affinity in card.affinity]
        return _best(tagged or [card for card in cards if not card.taken], width, height)
    plain = [card for card in cards if not card.affinity]
    return _best(plain, width, height) or _worst([card for card in cards if card.affinity], width, height)


Candidate = tuple[tuple[int, int], CardArea, Rectangle]


def _candidates(cards: Sequence[CardArea], width: int, height: int) -> list[Candidate]:
    """(waste, card, free rectangle) for each that fits."""
    return [
        (waste(rectangle, width, height), card, rectangle)
        for card in cards
        for rectangle in free(card.taken)
        if rectangle.width >= width and rectangle.height >= height
    ]


def _best(cards: Sequence[CardArea], width: int, height: int) -> Spot | None:
    found = _candidates(cards, width, height)
    chosen = min(found, key=lambda c: (c[0], not c[1].taken, c[1].uuid, c[2]), default=None)
    return _spot(chosen, width, height)


def _worst(cards: Sequence[CardArea], width: int, height: int) -> Spot | None:
    """On the card with the most free area; there, in the place with the least waste."""
    found = _candidates(cards, width, height)
    chosen = min(found, key=lambda c: (_used(c[1]), c[1].uuid, c[0], c[2]), default=None)
    return _spot(chosen, width, height)


def _used(card: CardArea) -> int:
    return sum(rectangle.area for rectangle in card.taken)


def _spot(chosen: Candidate | None, width: int, height: int) -> Spot | None:
    if chosen is None:
        return None
    _, card, into = chosen
    return Spot(card=card.uuid, place=Rectangle(time=into.time, unit=into.unit, width=width, height=height))
