"""Who presses on what: shares of the demand that a price can rest on, and the pressures and prices that follow. Pure.

In: classes with their weights (`Demand`), idle sums of the cluster (`Idle`). Out: `Prices`. ramp(x, p0) = 0 up to p0, 1
from 1 on, straight between, in 64 steps. I = idle milli of the cluster.

    model  for every set A of models that some classes are tied to: P(A) = share of the demand tied inside A x I / I(A),
           Hall's condition as a ratio; h of a model = weight x ramp(max of P(A) over the sets A that it is in)
    slots  for k = 2, 4, 8: slots_k = sum over nodes of min(whole cards // k, free CPU // mean CPU of k-card pods)
           P_k = share of k-card pods x I / (1000 k slots_k); a slot costs weight x 1000 k x ramp(P_k)
    CPU    P_c = CPU asked per milli of cards x I / free CPU; CPU value costs weight x ramp(P_c)
    drain  d_k = weight x 1000 k x ramp(P_k), see `drain`

Sets: only unions of the sets that classes name can have the highest pressure (adding a model that nobody in A names
only adds idle cards), so not all 2^n are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from contracts.units import WHOLE_CARD
from scheduler.core.menu.classes import PodClass
from scheduler.core.menu.spoil import Kind, admitted
from scheduler.core.menu.terms import MICRO, RAMP, SLOT_SIZES, MenuTerms

ONE = 1 << 16
"""Pressures and shares: 65,536 = 1."""

MAX_SETS = 256
"""Sets of models that are looked at."""

MAX_KINDS = 60
"""Kinds of nodes that can have a price: one bit each."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What the mix presses with."""

    slot_shares: tuple[int, ...] = (0, 0, 0)
    """Of pods of 2, 4 and 8 whole cards in the demand for cards, in 1/65536."""
    slot_cpu_milli: tuple[int, ...] = (0, 0, 0)
    """Their mean CPU."""
    cpu_per_milli: int = 0
    """Milli-cores asked per milli of cards, in 1/65536."""
    tied: tuple[tuple[int, int], ...] = ()
    """Sets of kinds of nodes as bits, with the share of the demand that is tied inside."""


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """What is left in the cluster."""

    milli: int
    cpu_milli: int
    slots: tuple[int, ...]
    """For 2, 4 and 8 cards."""
    by_kind: tuple[int, ...]
    """Idle milli by kind of node."""


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """In micro; 0 while nothing is scarce."""

    model: tuple[int, ...] = ()
    """By kind of node, per milli."""
    slot: tuple[int, ...] = (0, 0, 0)
    """Per slot destroyed."""
    drain: tuple[int, ...] = (0, 0, 0)
    cpu: int = 0
    """Times 64, per milli-core."""


def demand_of(classes: Sequence[PodClass], kinds: Sequence[Kind]) -> Demand:
    """All shares."""
    total = sum(each.demand for each in classes)
    if not total:
        return Demand()
    several = [[each for each in classes if each.cards == size] for size in SLOT_SIZES]
    return Demand(
        slot_shares=tuple(ONE * sum(each.demand for each in group) // total for group in several),
        slot_cpu_milli=tuple(_mean_cpu(group) for group in several),
        cpu_per_milli=ONE * sum(each.weight * each.cpu_milli for each in classes) // total,
        tied=tied_sets(classes, kinds),
    )


def _mean_cpu(group: Sequence[PodClass]) -> int:
    weight = sum(each.weight for each in group)
    return sum(each.weight * each.cpu_milli for each in group) // weight if weight else 0


def tied_sets(classes: Sequence[PodClass], kinds: Sequence[Kind]) -> tuple[tuple[int, int], ...]:
    """Unions of the sets that classes are tied to, all kinds left out, with the share of the demand inside."""
    everything = (1 << min(len(kinds), MAX_KINDS)) - 1
    weights: dict[int, int] = {}
    for each in classes:
        mask = sum(1 << bit for bit, kind in enumerate(kinds[:MAX_KINDS]) if admitted(each, kind))
        if each.cards and mask:
            weights[mask] = weights.get(mask, 0) + each.demand
    total = sum(each.demand for each in classes)
    unions = sorted(_unions(mask for mask in sorted(weights) if mask != everything) - {everything})
    inside = [(mask, sum(w for m, w in weights.items() if m & ~mask == 0)) for mask in unions]
    return tuple((mask, ONE * weight // total) for mask, weight in inside)


def _unions(masks: Iterable[int]) -> set[int]:
    found: set[int] = set()
    for mask in masks:
        found |= {mask} | {mask | other for other in found}
        if len(found) > MAX_SETS:
            return set(sorted(found)[:MAX_SETS])
    return found


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
    return Prices(
        model=model_prices(demand, idle, terms),
        slot=tuple(_per_size(terms.slot_weight, terms.slot_threshold, pressures)),
        drain=tuple(_per_size(terms.drain_weight, terms.drain_threshold, pressures)),
        cpu=terms.cpu_weight * ramp(demand.cpu_per_milli * idle.milli // max(1, idle.cpu_milli), terms.cpu_threshold),
    )


def _per_size(weight: int, threshold: int, pressures: Sequence[int]) -> list[int]:
    """1000 k milli = 1,000,000 k micro, times weight / 1000."""
    steps = [ramp(pressure, threshold) for pressure in pressures]
    return [weight * WHOLE_CARD * size * step // RAMP for size, step in zip(SLOT_SIZES, steps, strict=True)]


def model_prices(demand: Demand, idle: Idle, terms: MenuTerms) -> tuple[int, ...]:
    """By kind of node, micro per milli."""
    pressures = [0] * len(idle.by_kind)
    for mask, share in demand.tied:
        inside = [kind for kind in range(min(len(pressures), MAX_KINDS)) if mask >> kind & 1]
        pressure = share * idle.milli // max(1, sum(idle.by_kind[kind] for kind in inside))
        for kind in inside:
            pressures[kind] = max(pressures[kind], pressure)
    return tuple(terms.model_weight * MICRO * ramp(p, terms.model_threshold) // RAMP // 1000 for p in pressures)


def slots_of(wholes: int, cpu_milli: int, demand: Demand) -> tuple[int, ...]:
    """Room of one node for pods of 2, 4 and 8 cards."""
    return tuple(
        min(wholes // size, max(0, cpu_milli) // mean) if mean else wholes // size
        for size, mean in zip(SLOT_SIZES, demand.slot_cpu_milli, strict=True)
    )
