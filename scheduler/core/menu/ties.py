"""Who can only go where: sets of nodes that demand is tied to, and the price on a node that somebody else needs more.

A pod is tied by its models, and as much by its *shape*: eight cards with 120 cores fit only nodes of eight cards and
128 cores, however many other nodes have eight. Both are one thing here. A *chassis* is what never changes about a node:
models, cards, CPU. E_i = the chassis that a pod of class i fits when they are empty. For a set A of chassis

    s_A = share of the demand for cards with E_i inside A         a = share of A in some room
    T(A, a) = s (1 - a) / (a (1 - s))          odds of being tied to A over odds of finding room there

T = 1 exactly when A has the room that its demand asks for; it goes to 0 for a large A that lacks nothing, where s / a
stays near 1. "All nodes but the smallest", s = 0.84 and a = 0.98, would be priced always with s / a = 0.86, and with it
nearly every node alike, which hides the price of the few that matter; T = 0.84 x 0.02 / (0.98 x 0.16) = 0.11. By hand:
a tenth of the demand needs A, A is a twentieth of the cluster: T = 0.1 x 0.95 / (0.05 x 0.9) = 2.11.

    S_A  = T(A, A's share of all cards)        P_h = max over A with h of max(0.9 S_A, T(A, A's share of what is idle))
    floor f_h = min(0.1, max over A with h of S_A)       price p_h = max(f_h, weight x ramp(P_h, 0.7))
    cost = p_h k g + f_h x max(0, 1000 cards(h) x cpu / CPU(h) - k g)

The live part alone comes too late where few large pods come seldom, hence S_A; hence also the floor: a price that needs
no pressure, small enough to decide only between nodes that are otherwise nearly alike. The last term is what a pod
takes of the node's CPU beyond its part of the cards, pods without cards included: CPU is what makes such nodes special.

Without departures the ties are of models alone, the pressure is Hall's ratio s_A / a_A, and there is no floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from contracts.units import WHOLE_CARD
from scheduler.core.menu.classes import PodClass
from scheduler.core.menu.spoil import Kind, admitted

ONE = 1 << 16
"""Pressures, shares and odds: 65,536 = 1."""

MOST = 1000 * ONE
"""Of a pressure: where a set has no room at all."""

ALL_PER_MILLE = 999
"""A set that holds more of the demand is everybody: nobody would be left to be kept away."""

MAX_SETS = 512
"""Sets that are looked at: 1 to 13 where only shapes tie on the openb traces, up to 400 with models."""

MAX_GROUPS = 60
"""Groups of chassis that can have a price, one bit each."""


class Chassis(msgspec.Struct, frozen=True, order=True):
    """What never changes about a node."""

    models: Kind
    cards: int
    cpu_milli: int


class Ties(msgspec.Struct, frozen=True, kw_only=True):
    """What the mix is tied to in one cluster."""

    groups: tuple[int, ...] = ()
    """By chassis: chassis that no class tells apart are one group. `count` = of no group, never priced."""
    count: int = 0
    sets: tuple[tuple[int, int], ...] = ()
    """Groups as bits, and what is tied inside: its odds, or its share without shapes; in 1/65536."""


def suits(each: PodClass, chassis: Chassis, *, by_shape: bool) -> bool:
    """The class can go there when nobody else is there."""
    fits = each.cards <= chassis.cards and each.cpu_milli <= chassis.cpu_milli
    return admitted(each, chassis.models) and (fits or not by_shape)


def ties_of(classes: Sequence[PodClass], chassis: Sequence[Chassis], *, by_shape: bool) -> Ties:
    """Groups, sets, and what is tied inside them."""
    wanting = _alike(classes, by_shape=by_shape)
    told = [
        sum(1 << bit for bit, (each, _) in enumerate(wanting) if suits(each, one, by_shape=by_shape)) for one in chassis
    ]
    first = {sign: one for one, sign in sorted(zip(chassis, told, strict=True), reverse=True) if sign}
    signs = sorted(first, key=lambda sign: first[sign])[:MAX_GROUPS]
    number = {sign: group for group, sign in enumerate(signs)}
    demand: dict[int, int] = {}
    for bit, (_, weight) in enumerate(wanting):
        mask = sum(1 << group for group, sign in enumerate(signs) if sign >> bit & 1)
        demand[mask] = demand.get(mask, 0) + weight
    return Ties(
        groups=tuple(number.get(sign, len(signs)) for sign in told),
        count=len(signs),
        sets=_weighed(demand, (1 << len(signs)) - 1, by_shape=by_shape),
    )


def _alike(classes: Sequence[PodClass], *, by_shape: bool) -> list[tuple[PodClass, int]]:
    """One of each sort of class that is tied alike, with the demand of all of them."""
    found: dict[tuple[object, ...], tuple[PodClass, int]] = {}
    for each in classes:
        if each.demand:
            key = (each.models, each.cards, each.cpu_milli) if by_shape else (each.models,)
            found[key] = (each, found.get(key, (each, 0))[1] + each.demand)
    return list(found.values())


def _weighed(demand: Mapping[int, int], everything: int, *, by_shape: bool) -> tuple[tuple[int, int], ...]:
    """The sets with their odds or shares."""
    total = sum(demand.values())
    found = []
    for mask in sorted(unions({m: w for m, w in demand.items() if m not in {0, everything}}) - {everything}):
        inside = sum(weight for m, weight in demand.items() if m and m & ~mask == 0)
        if inside * 1000 <= ALL_PER_MILLE * total:
            found.append((mask, ONE * inside // (total - inside if by_shape else total)))
    return tuple(found)


def unions(demand: Mapping[int, int]) -> set[int]:
    """These sets and their unions; past `MAX_SETS`, the unions of those with the most demand only.

    Nothing but unions can have the highest pressure: adding a chassis that nobody inside asks for only adds room.
    """
    single = sorted(demand, key=lambda mask: (-demand[mask], mask))[:MAX_SETS]
    found = set(single)
    joined: set[int] = set()
    for mask in single:
        joined |= {mask} | {mask | other for other in joined}
        if len(found | joined) > MAX_SETS:
            break
        found |= joined
    return found


def odds_ratio(odds: int, inside: int, whole: int) -> int:
    """T(A, inside / whole) in 1/65536, of the odds s / (1 - s)."""
    return min(MOST, odds * (whole - inside) // inside) if inside else MOST


def within(mask: int, by_group: Iterable[int]) -> int:
    """The sum over the groups of a set."""
    return sum(amount for group, amount in enumerate(by_group) if mask >> group & 1)


def beyond(cards: int, share_milli: int, cpu_milli: int, chassis: Chassis) -> int:
    """Milli of cards that a pod's part of the CPU is worth beyond the cards that it takes."""
    return max(0, WHOLE_CARD * chassis.cards * cpu_milli // max(1, chassis.cpu_milli) - cards * share_milli)
