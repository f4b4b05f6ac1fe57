"""Prices on what is scarce: worked by hand, and the compiled ones against the plain reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.tables import Reach, build
from scheduler.core.menu.classes import pod_classes
from scheduler.core.menu.demand import Demand, Idle, demand_of, fragment_weight, prices_of, ramp, slots_of
from scheduler.core.menu.terms import ARRIVALS, DEPARTURES, FRAGMENTS, MenuTerms
from scheduler.core.menu.ties import ONE, Chassis, Ties

KINDS = [("A100",), ("T4",), ("V100",)]
MORE = DEPARTURES.fragment_parts
CHASSIS = [Chassis(kind, 8, 64_000) for kind in KINDS]
MIX = {
    "1000|1|500|": 40,
    "2000|1|1000|T4": 30,
    "2000|1|1000|T4,V100": 10,
    "16000|8|1000|": 5,
    "1000|0|0|": 20,
}

REACHES = [(terms, build(terms, MIX, {}).reach(KINDS, CHASSIS)) for terms in (DEPARTURES, ARRIVALS)]


def test_a_ramp_begins_at_its_threshold_and_ends_at_one() -> None:
    """In 64 steps."""
    assert [ramp(round(ONE * x), 700) for x in (0, 0.7, 0.85, 1, 3)] == [0, 0, 32, 64, 64]


def test_demand_of_a_mix() -> None:
    """100 whole cards asked: 20 by halves, 30 tied to T4, 10 to T4 or V100, 40 by pods of eight."""
    found = demand_of(pod_classes(MIX, {}, by_lifetime=False), CHASSIS, by_shape=False)
    assert found.slot_shares == (0, 0, ONE * 40 // 100)
    assert found.slot_cpu_milli == (0, 0, 16_000)
    assert found.cpu_per_milli == ONE * (40 * 1 + 60 + 20 + 80 + 20) // 100
    assert found.ties.groups == (0, 1, 2)
    assert found.ties.sets == ((0b010, ONE * 30 // 100), (0b110, ONE * 40 // 100))


@pytest.mark.parametrize(
    ("of_a_thousand", "weight"), [(0, 1000), (300, 1000), (500, 1000), (750, 1000 + MORE // 2), (1000, 1000 + MORE)]
)
def test_the_fragment_counts_more_where_most_demand_is_for_parts_of_cards(of_a_thousand: int, weight: int) -> None:
    """Halves of cards beside whole ones: twice as many halves make the same demand."""
    mix = {"1|1|500|": 2 * of_a_thousand, "1|1|1000|": 1000 - of_a_thousand}
    demand = demand_of(pod_classes(mix, {}, by_lifetime=False), CHASSIS, by_shape=False)

    assert demand.parts == ONE * of_a_thousand // 1000
    assert abs(fragment_weight(demand, DEPARTURES) - weight) <= 1
    assert fragment_weight(demand, ARRIVALS) == 0
    assert fragment_weight(demand, FRAGMENTS) == 1000
    assert abs(build(DEPARTURES, mix, {}).reach(KINDS, CHASSIS).fragment_weight - weight) <= 1


def test_pressed_models_pressed_slots_and_pressed_cpu_cost() -> None:
    """Half of what is idle is T4 and 60 % of the demand wants it: odds of 1.5 against 1, the full price; else none."""
    ties = Ties(groups=(0, 1), count=2, sets=((0b10, ONE * 6 // 4),))
    demand = Demand(slot_shares=(0, 0, ONE // 4), slot_cpu_milli=(0, 0, 1000), cpu_per_milli=ONE, ties=ties)
    even = (32_000, 32_000, 0)
    scarce = Idle(milli=64_000, cpu_milli=64_000, slots=(0, 0, 2), by_group=even, cards_by_group=even)
    prices = prices_of(demand, scarce, DEPARTURES)
    assert (prices.tie, prices.floor) == ((0, 1000, 0), (0, 100, 0))
    assert prices.slot == (0, 0, 500 * 8000)
    assert prices.drain == (0, 0, 1000 * 8000)
    assert prices.cpu == 50 * 64
    roomy = Idle(
        milli=64_000, cpu_milli=640_000, slots=(9, 9, 9), by_group=(1, 63_999, 0), cards_by_group=(1, 63_999, 0)
    )
    assert not any((*prices_of(demand, roomy, DEPARTURES).tie, *prices_of(demand, roomy, DEPARTURES).slot))
    assert prices_of(demand, scarce, ARRIVALS).drain == (0, 0, 0)


def test_slots_are_short_of_cards_or_of_cpu() -> None:
    """Eight cards and 40 cores: five pods of eight cores on two cards would fit by CPU, four by cards."""
    demand = Demand(slot_cpu_milli=(8000, 0, 50_000))
    assert slots_of(8, 40_000, demand) == (4, 2, 0)


amounts = st.integers(0, 5_000_000)
sums = st.lists(amounts, min_size=4, max_size=4)
slotted = st.lists(st.integers(0, 500), min_size=3, max_size=3)
LAST = 3
"""The cards change with the last of four moments only."""


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(sums, sums, amounts, slotted), min_size=1, max_size=4), st.sampled_from(REACHES))
def test_compiled_prices_are_the_plain_ones(
    moments: list[tuple[list[int], list[int], int, list[int]]], form: tuple[MenuTerms, Reach]
) -> None:
    """For any sums of the cluster, in both forms, and whatever was kept of earlier sums."""
    terms, reach = form
    memo, inside = np.full((k.MEMO, 4), -1, np.int64), np.zeros(len(reach.tied), np.int64)
    prices = np.zeros(k.P_GROUPS + 8, np.int64)
    cards_by = moments[0][1]
    for number, (idle_by, others, cpu_milli, slots) in enumerate(moments):
        cards_by = others if number == LAST else cards_by
        totals = np.array([sum(idle_by), cpu_milli, *slots, *idle_by, *cards_by], np.int64)
        k._price(totals, reach.constants, reach.tied, prices, memo, inside)
        idle = Idle(
            milli=sum(idle_by),
            cpu_milli=cpu_milli,
            slots=tuple(slots),
            by_group=tuple(idle_by),
            cards_by_group=tuple(cards_by),
        )
        plain = prices_of(reach.demand, idle, terms)
        assert prices.tolist() == [*plain.slot, *plain.drain, plain.cpu, *plain.tie, *plain.floor]


def test_a_mix_without_cards_presses_on_nothing() -> None:
    """And no class at all neither."""
    nothing = Demand(ties=Ties(groups=(0, 0, 0)))
    assert demand_of(pod_classes({"1000|0|0|": 3}, {}, by_lifetime=True), CHASSIS, by_shape=True) == nothing
    assert demand_of((), CHASSIS, by_shape=True) == nothing
