"""What nodes enforce, as words: a column for cards, and lines for a request that has a place.

What flows in: the nodes' own reports. What flows out: text. A card of which no report speaks enforces nothing if it has
no mode to do so, and is unknown otherwise; nothing is claimed on the word of a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from contracts.answers import CardView
from contracts.shares import CPU, CardEnforcement, NodeEnforcement
from gpubus.render.words import UNKNOWN


def by_card(reports: Iterable[NodeEnforcement]) -> dict[str, CardEnforcement]:
    """What was found to hold on each card, by UUID."""
    return {card.card: card for report in reports for card in report.cards}


def of_card(view: CardView, found: dict[str, CardEnforcement]) -> str:
    """`both`, `none`, or `none of both` where a mode does not hold what it should."""
    told = found.get(view.card.uuid)
    if told is None or told.mode != view.card.isolation:
        return "none" if view.card.isolation == "none" else UNKNOWN
    return told.enforced if told.enforced == told.declared else f"{told.enforced} of {told.declared}"


def of_request(uid: str, cards: Iterable[str], report: NodeEnforcement | None) -> Iterator[str]:
    """What holds a placed request to its share, and what it waits for; one line each."""
    if report is None:
        return
    known = by_card([report])
    for card in cards:
        if (told := known.get(card)) is not None:
            because = f": {told.reason}" if told.reason else ""
            yield f"{told.enforced} by {told.mode} on {card}{because} ({told.note})"
    for one in report.pods:
        if one.uid == uid and one.state != "applied":
            yield f"{one.state}: {one.reason}"
        elif one.uid == uid and one.what == CPU and one.limit_milli is not None:
            yield f"CPU at most {one.limit_milli}m"
