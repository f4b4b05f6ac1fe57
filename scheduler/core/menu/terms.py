"""The constants of the menu value, in two forms, each with its reason. Chosen by simulation on the openb trace."""

from __future__ import annotations

import msgspec

MICRO = 1000
"""A thousandth of a milli: the unit of values, costs and prices."""

STEP_MILLI = 10
"""Steps of idle share in the tables: what is left over below a step is worth nothing."""

STEPS = 101
"""0, 10, ... 1000 thousandths of a card."""

CPU_PRICES = (0, 10, 20, 30, 45, 60, 75, 90, 120, 160, 220, 320, 500, 1000)
"""Micro-GPU per milli-core: dense where CPU is a side condition, up to where CPU alone decides (one milli-GPU per
milli-core). Half as many prices gave the same allocation."""

SLOT_SIZES = (2, 4, 8)
"""Cards of the pods that whole nodes are kept for."""

RAMP = 64
"""Prices rise in so many steps. A price is computed from sums that change with every decision; in steps it stays the
same most of the time, and so do the scores that were made with it."""


class MenuTerms(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One form of the policy. Weights and thresholds in thousandths."""

    menus: int = 48
    """Random menus whose mean is taken: flat from 24 on."""
    menu_size: int = 16
    """Draws per menu. 16 to 40 are alike without departures; with them a hole must fit the next pod rather than the
    best mix of later ones, and short menus say so."""
    seed: int = 5
    """Of the draw; the same for every table, so that menus stay alike while the mix moves."""
    rounding_milli: int = 40
    """Costs that differ by less are equal, and the fixed order of nodes decides: it keeps later nodes empty."""
    fragment_weight: int = 1000
    """Of the growth of the fragment (FGD): with departures the next pod counts as much as the best mix. 500 to 1000
    are alike on most mixes; shares alone want 1000."""
    fragment_parts: int = 2000
    """Added to that weight where all demand is for parts of cards; half as much where three quarters are, nothing up
    to a half. Such cards are filled again and again by the next pod, not by the best mix: 1000 won 0.2 points of
    gpushare100 and 3000 won 0.3; with 53 % parts (gpushare60) 1000 changed nothing."""
    by_shape: bool = True
    """Pods are tied by models, cards and CPU, and pressure is a ratio of odds (`ties`); else by models alone."""
    tie_weight: int = 1000
    """Of the price on milli of nodes that tied pods need ..."""
    tie_threshold: int = 700
    """... from this pressure on: below it the price only costs packing. 900 lost 0.39 points of gpuspec33."""
    tie_standing: int = 900
    """Of the pressure that the cluster has by its make alone: in full it keeps too much from the others where a model
    is scarce (gpuspec33 -0.6), without it large pods that come seldom find their nodes taken (multigpu40 -0.5)."""
    tie_floor: int = 100
    """Most that pods pay without any pressure: it settles near-ties. None lost 0.2 points of default at load 0.9, 300
    won nothing more and lost 0.2 of gpuspec33."""
    slot_weight: int = 500
    """Of the price on breaking up room for pods of 2, 4 or 8 cards ..."""
    slot_threshold: int = 700
    """... from this pressure on; 300 was too early."""
    cpu_weight: int = 50
    """Of the price on lost CPU value: micro-GPU per milli-core. 30 and 80 lose half a point where CPU is scarce."""
    cpu_threshold: int = 900
    drain_weight: int = 1000
    """Of the price on nodes that are about to be empty: +0.5 points with departures ..."""
    drain_threshold: int = 700
    drain_horizon_ms: int = 2_000_000
    """... that leave within about half an hour; 1,000 s and 3,000 s are alike."""
    by_lifetime: bool = True
    """Classes count by arrivals x mean lifetime: what is *there* at a time, not what comes."""


DEPARTURES = MenuTerms()
"""Where pods end: the default."""

ARRIVALS = MenuTerms(
    menu_size=32,
    rounding_milli=20,
    fragment_weight=0,
    fragment_parts=0,
    by_shape=False,
    tie_weight=500,
    tie_threshold=900,
    tie_floor=0,
    drain_weight=0,
    by_lifetime=False,
)
"""Where pods do not end. Every hole will meet the whole mix: long menus, no fragments, nothing drains; model prices
start late, because room kept for tied pods is lost to the others for good."""

FRAGMENTS = MenuTerms(
    menu_size=0,
    fragment_parts=0,
    tie_weight=0,
    tie_standing=0,
    tie_floor=0,
    slot_weight=0,
    cpu_weight=0,
    drain_weight=0,
)
"""No menus and no prices: what is left is the fragment, its classes weighted by lifetime. To compare with."""


def rounded_cost(micro: int, terms: MenuTerms) -> int:
    """To the nearest step, halves up; in thousandths of a card."""
    step = terms.rounding_milli * MICRO
    return (micro + step // 2) // step * terms.rounding_milli
