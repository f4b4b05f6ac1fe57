"""Fragmentation gradient (Weng et al., USENIX ATC 2023): place where least share becomes useless to what is coming."""

from __future__ import annotations

from scheduler.core.feasibility.fast import Choice
from scheduler.core.fragments import change, usable
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView

STEP_MILLI = 40
"""Rounding step of the change. The published score, 100 x sigmoid(change / 1000) cut to an integer, has this slope
around its middle. Coarse steps place better than fine ones: near-equal nodes are then told apart by the fixed node
order."""


def fragment(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """floor((F before - F after) / 40 thousandths), F as in `scheduler.core.fragments`; below zero when fragments grow.

    F = R - U/N, and R falls by what is sold, so the change is sold - (U before - U after) / N. One floor division by
    40 N keeps it exact. Nothing known of the mix: 0 everywhere.
    """
    if not mix.total:
        return 0
    return lessening(shape, view, chosen, mix) // (STEP_MILLI * mix.total)


def lessening(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """N x (F before - F after), thousandths: by how much the placement lessens the fragment, mostly below zero."""
    before, after = mix.level(view.cpu_milli), mix.level(view.cpu_milli - shape.cpu_milli)
    gain = usable(mix, view, after) + change(mix, view, after, chosen, shape.share_milli) - usable(mix, view, before)
    return shape.share_milli * len(chosen) * mix.total + gain
