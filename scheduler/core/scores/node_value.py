"""Least loss of what the node is worth at scarcity prices, in steps of 20 thousandths; see `scheduler.core.prices`.

    V(before) - V(after),  V = min over CPU prices u of ( u x free CPU + sum over cards of v[u][idle] )

Rounded, because near-equal nodes must be equal for the fixed order to keep its hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.units import WHOLE_CARD
from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.prices.priced import CPU_PRICES, MICRO, STEP_MILLI, PricedMix
from scheduler.core.request import Shape
from scheduler.core.view import CardView, NodeView

ROUNDED_TO = 20 * MICRO
MEMO = "node-value"


def node_value(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """0 or less; 0 while nothing is known of what is coming."""
    if not isinstance(mix, PricedMix):
        return 0
    return -rounded(loss(shape, view, chosen, mix))


def least_value(shape: Shape, view: NodeView, mix: Mix) -> Sequence[CardView]:
    """Cards by what taking one of them loses; whole cards lose the same, and go by position."""
    fitting = [card for card in view.cards if card.free_milli >= shape.share_milli]
    if shape.share_milli == WHOLE_CARD or not isinstance(mix, PricedMix) or len(fitting) < 2:  # noqa: PLR2004
        return fitting
    losses = {}
    for card in fitting:
        kind = (card.free_milli, card.model)
        if kind not in losses:
            losses[kind] = rounded(loss(shape, view, (card,), mix))
    return sorted(fitting, key=lambda card: (losses[card.free_milli, card.model], card.position))


def loss(shape: Shape, view: NodeView, chosen: Choice, mix: PricedMix) -> int:
    """What the node loses, in millionths of a card."""
    sums, value = worth(view, mix)
    cpu = view.cpu_milli - shape.cpu_milli
    after = list(sums)
    for card in chosen:
        table = mix.tables(card.model)
        old, new = table[card.free_milli // STEP_MILLI], table[(card.free_milli - shape.share_milli) // STEP_MILLI]
        after = [total - before + now for total, before, now in zip(after, old, new, strict=True)]
    return value - min(u * cpu + total for u, total in zip(CPU_PRICES, after, strict=True))


def worth(view: NodeView, mix: PricedMix) -> tuple[list[int], int]:
    """By CPU price the sum over cards, and V; kept in the view, because every shape asks for it."""
    found: tuple[PricedMix, list[int], int] | None = view.memo.get(MEMO)
    if found is not None and found[0] is mix:
        return found[1], found[2]
    rows = [mix.tables(card.model)[card.free_milli // STEP_MILLI] for card in view.cards]
    sums = [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(CPU_PRICES)
    value = min(u * view.cpu_milli + total for u, total in zip(CPU_PRICES, sums, strict=True))
    view.memo[MEMO] = (mix, sums, value)
    return sums, value


def rounded(micro: int) -> int:
    """To the nearest step, halves up."""
    return (2 * micro + ROUNDED_TO) // (2 * ROUNDED_TO)
