"""What was learned, as the arrays that kernels read; built in small steps, so that no decision waits for a whole table.

In: menus and classes. Out: `Tables`. `building` is a generator: each `next` does one piece (a position of the draw, one
menu, the CPU values: some 0.2 ms); `build` runs it through. `Reach` holds what depends on the cluster as well, on the
kinds of its nodes and their chassis: fragments and tied demand; it is made again when a new one appears.

`value_tables` is open to other menus: a linear program's prices are one menu of all classes, each item worth its share
less its price.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler.core.arrays import kernels as k
from scheduler.core.menu.classes import PodClass, mean_lifetime, pod_classes, typical
from scheduler.core.menu.cpu_value import CPU_STEPS, cpu_menus
from scheduler.core.menu.demand import Demand, demand_of, fragment_weight
from scheduler.core.menu.drain import PSI, minus_ln_q, stays
from scheduler.core.menu.draw import Menu, draw_menus
from scheduler.core.menu.spoil import Kind, cpu_levels, cut, usable_tables
from scheduler.core.menu.terms import CPU_PRICES, MICRO, STEPS, MenuTerms
from scheduler.core.menu.ties import Chassis, Ties, ties_of
from scheduler.core.menu.value import MAX_WHOLES

Ints = NDArray[Any]
T = TypeVar("T")

GRID = np.array(CPU_PRICES, np.int64)
PSI_TABLE = np.array(PSI, np.int64)

CPU_PIECE = 8
"""Menus of CPU in one piece."""


class ValueTables(msgspec.Struct, frozen=True):
    """t[row][price][menu] in micro: a row for each step of a begun card, then one for each number of whole cards."""

    t: Ints


def empty_tables(menus: int) -> ValueTables:
    """Nothing is worth anything."""
    return ValueTables(np.zeros((STEPS + MAX_WHOLES + 1, len(CPU_PRICES), menus), np.int32))


def fill_menu(tables: ValueTables, place: int, menu: Menu) -> None:
    """One menu into its place."""
    items = [(item.cards, item.steps, item.cpu_milli, item.worth_micro) for item in menu if item.cards <= MAX_WHOLES]
    k.fill_menu(tables.t, place, np.array(items, np.int64).reshape(-1, 4), GRID)


def value_tables(menus: Sequence[Menu]) -> ValueTables:
    """All menus at once."""
    tables = empty_tables(len(menus))
    for place, menu in enumerate(menus):
        fill_menu(tables, place, menu)
    return tables


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """One learned mix under one form."""

    terms: MenuTerms
    classes: tuple[PodClass, ...]
    menus: tuple[Menu, ...]
    values: ValueTables
    cpu_values: Ints
    """X x 64 by steps of CPU."""
    minus_ln_q: Mapping[str, int]
    """By class; classes without cards 0."""
    stays: Mapping[str, int]
    """1 - q by class, in 1/2^20."""
    others: tuple[int, int]
    """The same two of a class that has not been learned: by the mean lifetime of those that have been."""

    def reach(self, kinds: Sequence[Kind], chassis: Sequence[Chassis]) -> Reach:
        """For a cluster with these kinds of nodes and chassis."""
        return Reach.of(self, kinds, chassis)

    def leaves(self, key: str) -> int:
        """-ln q of a class."""
        known = self.minus_ln_q.get(key)
        if known is not None:
            return known
        return self.others[0] if key.split("|", 2)[1] != "0" else 0

    def remains(self, key: str) -> int:
        """1 - q of a class, in 1/2^20."""
        return self.stays.get(key, self.others[1])


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Tables for the kinds of nodes that a cluster has."""

    demand: Demand
    parts: Ints
    """[kind][CPU level][free share]"""
    several: Ints
    """[kind][CPU level][whole cards]"""
    tied: Ints
    """[set] = groups as bits, odds or share."""
    chassis: Ints
    """[chassis] = group, CPU."""
    constants: Ints
    """The whole mix, in the order of `kernels`."""

    @property
    def fragment_weight(self) -> int:
        """In thousandths; 0 while nothing is known."""
        return int(self.constants[k.FRAGMENT])

    @property
    def levels(self) -> list[int]:
        """Distinct CPU sizes, ascending."""
        found: list[int] = self.constants[self.constants[k.LEVELS_AT] :].tolist()
        return found

    @staticmethod
    def of(tables: Tables, kinds: Sequence[Kind], chassis: Sequence[Chassis]) -> Reach:
        """See `Tables.reach`."""
        common = typical(tables.classes)
        weights = cut(common)
        pairs = [usable_tables(common, weights, kind) for kind in kinds or [()]]
        demand = demand_of(tables.classes, chassis, by_shape=tables.terms.by_shape)
        return Reach(
            demand=demand,
            parts=np.stack([parts for parts, _ in pairs]),
            several=np.stack([several for _, several in pairs]),
            tied=np.array(demand.ties.sets, np.int64).reshape(-1, 2),
            chassis=_grouped(demand.ties, chassis),
            constants=mix_of(constants_of(tables.terms, demand, knows=bool(common)), tables, cpu_levels(common)),
        )

    def stretched(self, tables: Tables, chassis: Sequence[Chassis]) -> Reach:
        """The same kinds of nodes, more chassis."""
        ties = ties_of(tables.classes, chassis, by_shape=tables.terms.by_shape)
        return replace(self, demand=replace(self.demand, ties=ties), chassis=_grouped(ties, chassis))


def _grouped(ties: Ties, chassis: Sequence[Chassis]) -> Ints:
    """Group and CPU of each."""
    pairs = [(group, one.cpu_milli) for group, one in zip(ties.groups, chassis, strict=True)]
    return np.array(pairs, np.int64).reshape(-1, 2)


def constants_of(terms: MenuTerms, demand: Demand, *, knows: bool) -> Ints:
    """In the order of `kernels`. Nothing is known: everything is a fragment, which tells no node from another."""
    found = np.zeros(k.CONSTANTS, np.int64)
    found[k.MENUS], found[k.ROUNDING], found[k.FRAGMENT] = (
        terms.menus,
        terms.rounding_milli * MICRO,
        fragment_weight(demand, terms) * knows,
    )
    found[k.SLOT_CPU : k.SLOT_CPU + 3] = demand.slot_cpu_milli
    found[k.SLOT_SHARE : k.SLOT_SHARE + 3] = demand.slot_shares
    found[k.CPU_PER_MILLI] = demand.cpu_per_milli
    found[k.TIE_W], found[k.TIE_T], found[k.BY_SHAPE] = terms.tie_weight, terms.tie_threshold, terms.by_shape
    found[k.TIE_STANDING], found[k.TIE_FLOOR] = terms.tie_standing, terms.tie_floor
    found[k.SLOT_W], found[k.SLOT_T] = terms.slot_weight, terms.slot_threshold
    found[k.CPU_W], found[k.CPU_T] = terms.cpu_weight, terms.cpu_threshold
    found[k.DRAIN_W], found[k.DRAIN_T] = terms.drain_weight, terms.drain_threshold
    return found


def mix_of(constants: Ints, tables: Tables, levels: Sequence[int]) -> Ints:
    """Everything of one mix that is a list of numbers, as one list: each array more costs a call 0.1 us."""
    parts = [constants, GRID, PSI_TABLE, tables.cpu_values, np.array(levels, np.int64)]
    at = np.cumsum([len(part) for part in parts]).tolist()
    constants[[k.PSI_AT, k.VALUES_AT, k.LEVELS_AT]] = at[1:4]
    return np.concatenate(parts)


def building(
    terms: MenuTerms, counts: Mapping[str, int], service: Mapping[str, tuple[int, int]]
) -> Generator[None, None, Tables]:
    """The tables of a learned mix, piece by piece; the generator's return value."""
    classes = pod_classes(counts, service, by_lifetime=terms.by_lifetime)
    menus: tuple[Menu, ...] = ()
    for menus in draw_menus(classes, terms.menus, terms.menu_size, terms.seed):  # noqa: B007 - the last is wanted
        yield
    values = empty_tables(terms.menus)
    for place, menu in enumerate(menus):
        fill_menu(values, place, menu)
        if place % 4 == 3:  # noqa: PLR2004 - four menus
            yield
    cpu_values = np.zeros(CPU_STEPS, np.int64)
    sizes = np.array(cpu_menus(classes, terms.seed + 1), np.int64).reshape(-1, 2)
    for first in range(0, len(sizes), CPU_PIECE):
        k.fill_cpu(cpu_values, sizes[first : first + CPU_PIECE])
        yield
    horizon, mean = terms.drain_horizon_ms, mean_lifetime(service)
    return Tables(
        terms=terms,
        classes=classes,
        menus=menus,
        values=values,
        cpu_values=cpu_values,
        minus_ln_q={c.key: minus_ln_q(c.lifetime_ms, horizon) if c.cards else 0 for c in classes},
        stays={c.key: stays(c.lifetime_ms, horizon) for c in classes},
        others=(minus_ln_q(mean, horizon), stays(mean, horizon)),
    )


def finish(piecewise: Generator[None, None, T]) -> T:
    """The rest at once."""
    while True:
        try:
            next(piecewise)
        except StopIteration as done:
            found: T = done.value
            return found


def build(terms: MenuTerms, counts: Mapping[str, int], service: Mapping[str, tuple[int, int]]) -> Tables:
    """All at once."""
    return finish(building(terms, counts, service))
