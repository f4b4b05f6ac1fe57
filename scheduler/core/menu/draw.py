"""Menus: classes drawn at random, in proportion to their weight. Stratified, so that few menus cover the mix evenly.

For each position of a menu the B menus draw from B strata of the distribution, in a random order: menu b takes the
class at (permutation(b) + U) / B of the cumulated weights, U uniform in [0, 1). With replacement. Equal sizes on one
menu are one item, with the CPU of the *first* one drawn: with the cheapest one V would believe in unlimited cheap pods.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from contracts.units import WHOLE_CARD
from scheduler.core.menu.classes import PodClass
from scheduler.core.menu.splitmix import permutation, splitmix
from scheduler.core.menu.terms import MICRO, STEP_MILLI

_BITS = 32


class Item(msgspec.Struct, frozen=True):
    """One dish: so many whole cards, or a part of one; what it takes of the CPU and what it is worth."""

    cards: int
    steps: int
    """Of `STEP_MILLI`, rounded up, of each card."""
    cpu_milli: int
    worth_micro: int
    """The share it fills, in micro; less when a price is on it."""


Menu = tuple[Item, ...]
"""At most one item of a size, in the order in which they were drawn."""


def item_of(each: PodClass) -> Item:
    """The class at its full worth."""
    steps = -(-each.share_milli // STEP_MILLI)
    return Item(each.cards, steps, each.cpu_milli, each.cards * each.share_milli * MICRO)


def strata(classes: Sequence[PodClass], menus: int, position: int, seed: int) -> list[PodClass]:
    """The class that each menu draws at one position."""
    bounds = list(accumulate(each.weight for each in classes))
    stream = splitmix(seed, position)
    order = permutation(stream, menus)
    drawn = []
    for menu in range(menus):
        uniform = splitmix(stream + 1, menu) >> (64 - _BITS)
        at = (((order[menu] << _BITS) + uniform) * bounds[-1]) // (menus << _BITS)
        drawn.append(classes[bisect_right(bounds, at)])
    return drawn


def draw_menus(classes: Sequence[PodClass], menus: int, size: int, seed: int) -> Iterator[tuple[Menu, ...]]:
    """Menus of the classes with cards; yields after every position, the last time they are complete."""
    offered = [each for each in classes if each.cards and each.weight]
    drawn: list[dict[tuple[int, int], Item]] = [{} for _ in range(menus)]
    for position in range(size if offered else 0):
        for menu, each in zip(drawn, strata(offered, menus, position, seed), strict=True):
            item = item_of(each)
            menu.setdefault((item.cards, WHOLE_CARD if item.cards > 1 else item.steps), item)
        yield tuple(tuple(menu.values()) for menu in drawn)
    yield tuple(tuple(menu.values()) for menu in drawn)
