"""Tags on cards: what residents carry, and whether a card is open to a shape.

A card has no tags of its own; it carries those of the requests that live on it, and none when it is empty. So an empty
card is open to everybody, whatever lived there before.

    affinity T        open: empty, or some resident has affinity T
    anti-affinity T   open: no resident has anti-affinity T
    exclusion T       open: every resident has exclusion T
    no exclusion      open: no resident has any exclusion

The three hold together. Who shares a card by affinity does not exclude strangers: a request without tags may join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from bus.ledger.state import RequestState
from contracts.requests import Locality
from contracts.units import RequestUid
from scheduler.core.request import NOT_TAGGED


class Tags(msgspec.Struct, frozen=True):
    """The tags of all residents of one card; `exclusions` holds None for residents without one."""

    affinity: frozenset[str] = frozenset()
    anti_affinity: frozenset[str] = frozenset()
    exclusions: frozenset[str | None] = frozenset()


EMPTY = Tags()
"""No residents."""
UNTAGGED = Tags(exclusions=frozenset({None}))
"""Residents, none of them tagged."""

Requests = Mapping[RequestUid, RequestState]


def tags_of(residents: Iterable[RequestUid], requests: Requests) -> Tags:
    """What the residents of a card carry together."""
    found = [requests[uid].accepted.request.locality for uid in residents]
    if not found:
        return EMPTY
    return Tags(
        affinity=frozenset(tag.affinity for tag in found if tag.affinity),
        anti_affinity=frozenset(tag.anti_affinity for tag in found if tag.anti_affinity),
        exclusions=frozenset(tag.exclusion for tag in found),
    )


def any_tagged(residents: Iterable[RequestUid], requests: Requests) -> bool:
    """Whether any resident carries a tag onto a card: almost never, so that the common case costs one look each."""
    for uid in residents:
        request = requests[uid].accepted.request
        if request.locality is not NOT_TAGGED and request.locality != NOT_TAGGED and request.gpu.cards:
            return True
    return False


def affine(locality: Locality, tags: Tags) -> bool:
    """The affinity tag lets it in."""
    return locality.affinity is None or not tags.exclusions or locality.affinity in tags.affinity


def distant(locality: Locality, tags: Tags) -> bool:
    """The anti-affinity tag lets it in."""
    return locality.anti_affinity is None or locality.anti_affinity not in tags.anti_affinity


def exclusive(locality: Locality, tags: Tags) -> bool:
    """The exclusion tags of both sides let it in."""
    return all(tag == locality.exclusion for tag in tags.exclusions)


def rivals(locality: Locality, resident: Locality) -> bool:
    """One resident alone keeps it away, by anti-affinity or exclusion; affinity is a matter of all of them."""
    same = locality.anti_affinity is not None and locality.anti_affinity == resident.anti_affinity
    return same or locality.exclusion != resident.exclusion


def open_to(locality: Locality, tags: Tags) -> bool:
    """All three let it in."""
    return affine(locality, tags) and distant(locality, tags) and exclusive(locality, tags)
