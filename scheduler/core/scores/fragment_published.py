"""The fragmentation gradient as its authors round it (Weng et al., USENIX ATC 2023): the cut of a sigmoid."""

from __future__ import annotations

from bisect import bisect_right
from decimal import Decimal

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.scores.fragment import lessening
from scheduler.core.view import NodeView

MIDDLE = 50
"""Nothing changes, or nothing is known."""

FINE = 1000
"""Bounds are kept in thousandths of thousandths of a card."""

BOUNDS = tuple(round((Decimal(score) / (100 - score)).ln() * 1000 * FINE) for score in range(1, 100))
"""The least change that scores 1, 2, ... 99: 1000 x ln(score / (100 - score)) thousandths of a card, to three places.
49 begins at -40.005, 50 at 0, 51 at 40.005, 75 at 1098.612, 90 at 2197.225. Decimal logarithms are the same on any
machine."""


def fragment_published(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """floor(100 / (1 + exp(-(F before - F after) / 1000 thousandths))), F as in `scheduler.core.fragments`; 0 to 99.

    Found by the bounds between the scores, in integers. Around the middle a step is 40 thousandths, further out it
    grows: at a loss of one card it is 51, of two cards 96.
    """
    if not mix.total:
        return MIDDLE
    return bisect_right(BOUNDS, lessening(shape, view, chosen, mix) * FINE // mix.total)
