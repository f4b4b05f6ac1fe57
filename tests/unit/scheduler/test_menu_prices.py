"""Prices on what is scarce: worked by hand, and the compiled ones against the plain reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.tables import build
from scheduler.core.menu.classes import pod_classes
from scheduler.core.menu.demand import ONE, Demand, Idle, demand_of, prices_of, ramp, slots_of, tied_sets
from scheduler.core.menu.terms import ARRIVALS, DEPARTURES

KINDS = [("A100",), ("T4",), ("V100",)]
MIX = {
    "1000|1|500|": 40,
    "2000|1|1000|T4": 30,
    "2000|1|1000|T4,V100": 10,
    "16000|8|1000|": 5,
    "1000|0|0|": 20,
}

REACH = build(DEPARTURES, MIX, {}).reach(KINDS)


def test_a_ramp_begins_at_its_threshold_and_ends_at_one() -> None:
    """In 64 steps."""
    assert [ramp(round(ONE * x), 700) for x in (0, 0.7, 0.85, 1, 3)] == [0, 0, 32, 64, 64]


def test_demand_of_a_mix() -> None:
    """100 whole cards asked: 20 by halves, 30 tied to T4, 10 to T4 or V100, 40 by pods of eight."""
    found = demand_of(pod_classes(MIX, {}, by_lifetime=False), KINDS)
    assert found.slot_shares == (0, 0, ONE * 40 // 100)
    assert found.slot_cpu_milli == (0, 0, 16_000)
    assert found.cpu_per_milli == ONE * (40 * 1 + 60 + 20 + 80 + 20) // 100
    assert found.tied == ((0b010, ONE * 30 // 100), (0b110, ONE * 40 // 100))


def test_pressed_models_pressed_slots_and_pressed_cpu_cost() -> None:
    """Half of what is idle is T4 and 60 % of the demand wants it: pressure 1.2, the full price. The rest has none."""
    demand = Demand(
        slot_shares=(0, 0, ONE // 4), slot_cpu_milli=(0, 0, 1000), cpu_per_milli=ONE, tied=((0b10, ONE * 6 // 10),)
    )
    scarce = Idle(milli=64_000, cpu_milli=64_000, slots=(0, 0, 2), by_kind=(32_000, 32_000))
    prices = prices_of(demand, scarce, DEPARTURES)
    assert prices.model == (0, 1000)
    assert prices.slot == (0, 0, 500 * 8000)
    assert prices.drain == (0, 0, 1000 * 8000)
    assert prices.cpu == 50 * 64
    roomy = Idle(milli=64_000, cpu_milli=640_000, slots=(9, 9, 9), by_kind=(1, 63_999))
    assert not any((*prices_of(demand, roomy, DEPARTURES).model, *prices_of(demand, roomy, DEPARTURES).slot))
    assert prices_of(demand, scarce, ARRIVALS).drain == (0, 0, 0)


def test_slots_are_short_of_cards_or_of_cpu() -> None:
    """Eight cards and 40 cores: five pods of eight cores on two cards would fit by CPU, four by cards."""
    demand = Demand(slot_cpu_milli=(8000, 0, 50_000))
    assert slots_of(8, 40_000, demand) == (4, 2, 0)


def test_unions_of_ties_are_looked_at() -> None:
    """Two classes tied to one model each press together on both."""
    classes = pod_classes({"1|1|1000|A100": 1, "1|1|1000|T4": 1, "1|1|1000|": 2}, {}, by_lifetime=False)
    assert tied_sets(classes, KINDS) == ((0b001, ONE // 4), (0b010, ONE // 4), (0b011, ONE // 2))


amounts = st.integers(0, 5_000_000)


@settings(max_examples=80, deadline=None)
@given(st.lists(amounts, min_size=3, max_size=3), amounts, st.lists(st.integers(0, 500), min_size=3, max_size=3))
def test_compiled_prices_are_the_plain_ones(by_kind: list[int], cpu_milli: int, slots: list[int]) -> None:
    """For any sums of the cluster."""
    reach = REACH
    totals = np.array([sum(by_kind), cpu_milli, *slots, *by_kind], np.int64)
    prices = np.zeros(k.P_KINDS + 3, np.int64)
    k._price(totals, reach.constants, reach.tied, prices)
    idle = Idle(milli=sum(by_kind), cpu_milli=cpu_milli, slots=tuple(slots), by_kind=tuple(by_kind))
    plain = prices_of(reach.demand, idle, DEPARTURES)
    assert prices.tolist() == [*plain.slot, *plain.drain, plain.cpu, *plain.model]


def test_a_mix_without_cards_presses_on_nothing() -> None:
    """And no class at all neither."""
    assert demand_of(pod_classes({"1000|0|0|": 3}, {}, by_lifetime=True), KINDS) == Demand()
    assert demand_of((), KINDS) == Demand()
