"""The fragment of a node by lifetimes and models, as tables: what the next pod of a typical class could not use.

F = R - U, R the idle share, U what a random next pod could use, as in `scheduler.core.fragments`, with two changes:
classes count by `PodClass.weight`, and on a card model only those count that it admits, renormalised to one. In micro:

    U(n) = sum over cards of  free x 1000 x W(free) // N   +   wholes x 1,000,000 x S(wholes) // N

    W(free)    weight of the one-card classes that fit the free CPU, the model, and the card
    S(wholes)  the same of the classes of several whole cards, by how many cards are free
    N          weight of all typical classes that the model admits, those without cards included
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.units import WHOLE_CARD
from scheduler.core.menu.classes import PodClass
from scheduler.core.menu.terms import MICRO
from scheduler.core.menu.value import MAX_WHOLES

Kind = tuple[str, ...]
"""The models of a node's cards, sorted: mostly one."""

_WEIGHT_BITS = 36
"""Weights are cut to so many bits in all: 16 cards x 1,000,000 x 2^36 is below 2^63."""


def admitted(each: PodClass, kind: Kind) -> bool:
    """Whether the class may use a card of these models."""
    return not each.models or not each.models.isdisjoint(kind)


def cut(classes: Sequence[PodClass]) -> list[int]:
    """Weights that add up to less than 2^36."""
    excess = max(0, sum(each.weight for each in classes).bit_length() - _WEIGHT_BITS)
    return [each.weight >> excess for each in classes]


def cpu_levels(classes: Sequence[PodClass]) -> list[int]:
    """Distinct CPU sizes: between two of them nothing changes."""
    return sorted({each.cpu_milli for each in classes})


def usable_micro(
    classes: Sequence[PodClass], weights: Sequence[int], kind: Kind, cpu_milli: int, idle_milli: Sequence[int]
) -> int:
    """U, in plain Python: the reference of the tables below."""
    here = [(c, w) for c, w in zip(classes, weights, strict=True) if admitted(c, kind)]
    total = sum(w for _, w in here) or 1
    fitting = [(c, w) for c, w in here if c.cpu_milli <= cpu_milli]
    wholes = min(MAX_WHOLES, sum(idle == WHOLE_CARD for idle in idle_milli))
    several = sum(w for c, w in fitting if 1 < c.cards <= wholes)
    used = wholes * WHOLE_CARD * MICRO * several // total
    for idle in idle_milli:
        used += idle * MICRO * sum(w for c, w in fitting if c.cards == 1 and c.share_milli <= idle) // total
    return used


def usable_tables(
    classes: Sequence[PodClass], weights: Sequence[int], kind: Kind
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """By CPU level (0 = no class fits) and free share, and by CPU level and number of whole cards; in micro."""
    levels = cpu_levels(classes)
    parts = np.zeros((len(levels) + 1, WHOLE_CARD + 1), np.int64)
    several = np.zeros((len(levels) + 1, MAX_WHOLES + 1), np.int64)
    total = 0
    for each, weight in zip(classes, weights, strict=True):
        if not admitted(each, kind):
            continue
        total += weight
        level = bisect_right(levels, each.cpu_milli)
        if each.cards == 1:
            parts[level:, each.share_milli :] += weight
        elif 1 < each.cards <= MAX_WHOLES:
            several[level:, each.cards :] += weight
    parts *= np.arange(WHOLE_CARD + 1) * MICRO
    several *= np.arange(MAX_WHOLES + 1) * WHOLE_CARD * MICRO
    return (parts // max(1, total)).astype(np.int32), (several // max(1, total)).astype(np.int32)
