"""Who presses on what: shares of the demand that a price can rest on, and the pressures and prices that follow. Pure.

In: classes with their weights (`Demand`), idle sums of the cluster (`Idle`). Out: `Prices`. ramp(x, p0) = 0 up to p0, 1
from 1 on, straight between, in 64 steps. I = idle milli of the cluster.

    ties   who can only go to some nodes presses on these: see `ties`
    slots  for k = 2, 4, 8: slots_k = sum over nodes of min(whole cards // k, free CPU // mean CPU of k-card pods)
           P_k = share of k-card pods x I / (1000 k slots_k); a slot costs weight x 1000 k x ramp(P_k)
    CPU    P_c = CPU asked per milli of cards x I / free CPU; CPU value costs weight x ramp(P_c)
    drain  d_k = weight x 1000 k x ramp(P_k), see `drain`
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from contracts.units import WHOLE_CARD
from scheduler.core.menu.classes import PodClass
from scheduler.core.menu.terms import RAMP, SLOT_SIZES, MenuTerms
from scheduler.core.menu.ties import ONE, Chassis, Ties, odds_ratio, ties_of, within

MAX_KINDS = 60
"""Kinds of nodes that a shape can be told to be allowed on: one bit each."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What the mix presses with."""

    slot_shares: tuple[int, ...] = (0, 0, 0)
    """Of pods of 2, 4 and 8 whole cards in the demand for cards, in 1/65536."""
    slot_cpu_milli: tuple[int, ...] = (0, 0, 0)
    """Their mean CPU."""
    cpu_per_milli: int = 0
    """Milli-cores asked per milli of cards, in 1/65536."""
    parts: int = 0
    """Share of pods that ask for a part of a card in the demand for cards, in 1/65536."""
    ties: Ties = Ties()


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """What is left in the cluster."""

    milli: int
    cpu_milli: int
    slots: tuple[int, ...]
    """For 2, 4 and 8 cards."""
    by_group: tuple[int, ...]
    """Idle milli by group of nodes, as `Ties` numbers them, those of no group last."""
    cards_by_group: tuple[int, ...]
    """The cards themselves, likewise."""


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """In micro; 0 while nothing is scarce."""

    tie: tuple[int, ...] = ()
    """By group of nodes, per milli."""
    floor: tuple[int, ...] = ()
    """The part of it that needs no pressure."""
    slot: tuple[int, ...] = (0, 0, 0)
    """Per slot destroyed."""
    drain: tuple[int, ...] = (0, 0, 0)
    cpu: int = 0
    """Times 64, per milli-core."""


def demand_of(classes: Sequence[PodClass], chassis: Sequence[Chassis], *, by_shape: bool) -> Demand:
    """All shares."""
    total = sum(each.demand for each in classes)
    ties = ties_of(classes, chassis, by_shape=by_shape)
    if not total:
        return Demand(ties=ties)
    several = [[each for each in classes if each.cards == size] for size in SLOT_SIZES]
    return Demand(
        slot_shares=tuple(ONE * sum(each.demand for each in group) // total for group in several),
        slot_cpu_milli=tuple(_mean_cpu(group) for group in several),
        cpu_per_milli=ONE * sum(each.weight * each.cpu_milli for each in classes) // total,
        parts=ONE * sum(each.demand for each in classes if each.share_milli < WHOLE_CARD) // total,
        ties=ties,
    )


def _mean_cpu(group: Sequence[PodClass]) -> int:
    weight = sum(each.weight for each in group)
    return sum(each.weight * each.cpu_milli for each in group) // weight if weight else 0


def fragment_weight(demand: Demand, terms: MenuTerms) -> int:
    """In thousandths: as it stands, and more of it the more of the demand beyond a half is for parts of cards."""
    beyond_half = max(0, 2 * demand.parts - ONE)
    return terms.fragment_weight + terms.fragment_parts * beyond_half // ONE


def ramp(pressure: int, threshold: int) -> int:
    """0 to 64; pressure in 1/65536, threshold in thousandths."""
    top, here = (1000 - threshold) * ONE, pressure * 1000 - threshold * ONE
    return min(RAMP, max(0, here * RAMP // top))


def prices_of(demand: Demand, idle: Idle, terms: MenuTerms) -> Prices:
    """All prices."""
    pressures = [
        share * idle.milli // max(1, WHOLE_CARD * size * slots or WHOLE_CARD * size // 2)
        for share, size, slots in zip(demand.slot_shares, SLOT_SIZES, idle.slots, strict=True)
    ]
    tie, floor = tie_prices(demand, idle, terms)
    return Prices(
        tie=tie,
        floor=floor,
        slot=tuple(_per_size(terms.slot_weight, terms.slot_threshold, pressures)),
        drain=tuple(_per_size(terms.drain_weight, terms.drain_threshold, pressures)),
        cpu=terms.cpu_weight * ramp(demand.cpu_per_milli * idle.milli // max(1, idle.cpu_milli), terms.cpu_threshold),
    )


def _per_size(weight: int, threshold: int, pressures: Sequence[int]) -> list[int]:
    """1000 k milli = 1,000,000 k micro, times weight / 1000."""
    steps = [ramp(pressure, threshold) for pressure in pressures]
    return [weight * WHOLE_CARD * size * step // RAMP for size, step in zip(SLOT_SIZES, steps, strict=True)]


def tie_prices(demand: Demand, idle: Idle, terms: MenuTerms) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Price and floor by group of nodes, micro per milli; see `ties`."""
    room, cards, count = sum(idle.by_group), sum(idle.cards_by_group), demand.ties.count
    pressures, floors = [0] * (count + 1), [0] * (count + 1)
    for mask, tied in demand.ties.sets:
        free = within(mask, idle.by_group)
        standing = odds_ratio(tied, within(mask, idle.cards_by_group), cards) if terms.by_shape else 0
        now = odds_ratio(tied, free, room) if terms.by_shape else tied * room // max(1, free)
        pressure = max(now, standing * terms.tie_standing // 1000)
        floor = min(terms.tie_floor, standing * 1000 // ONE)
        for group in range(count):
            if mask >> group & 1:
                pressures[group] = max(pressures[group], pressure)
                floors[group] = max(floors[group], floor)
    ramps = [terms.tie_weight * ramp(pressure, terms.tie_threshold) // RAMP for pressure in pressures]
    return tuple(max(pair) for pair in zip(ramps, floors, strict=True)), tuple(floors)


def slots_of(wholes: int, cpu_milli: int, demand: Demand) -> tuple[int, ...]:
    """Room of one node for pods of 2, 4 and 8 cards."""
    return tuple(
        min(wholes // size, max(0, cpu_milli) // mean) if mean else wholes // size
        for size, mean in zip(SLOT_SIZES, demand.slot_cpu_milli, strict=True)
    )
