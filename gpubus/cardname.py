"""Which card is meant by `NODE CARD`: an index, a UUID, or the beginning of one. Pure.

In: what was typed and the cards as the ledger has them. Out: the one card, or an error that says what there is.
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.answers import CardView
from gpubus.errors import AnswerIsNo


def find(rows: Iterable[CardView], node: str, card: str) -> CardView | None:
    """The card of that node; None when what was typed is a whole UUID of a card that is not there.

    Raises:
        AnswerIsNo: no such node, no card of that index, or several that could be meant.
    """
    here = [row for row in rows if row.node == node]
    if not here:
        raise AnswerIsNo(f"{node} is no node with cards; `gpubus get cards` shows them")
    found = [row for row in here if card in (row.card.uuid, str(row.card.index))]
    found = found or [row for row in here if row.card.uuid.startswith(card)]
    if len(found) == 1:
        return found[0]
    if not found and "-" in card:
        return None
    what = f"{card} could be any of" if found else f"{node} has no card {card}; it has"
    raise AnswerIsNo(f"{what} {', '.join(f'{row.card.index} {row.card.uuid}' for row in found or here)}")
