"""What a node is worth to menus of pods: worked by hand, and the compiled tables against the plain reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.tables import build, value_tables
from scheduler.core.arrays.values import node_value as compiled_value
from scheduler.core.arrays.values import usable
from scheduler.core.menu.classes import pod_classes, typical
from scheduler.core.menu.cpu_value import fillings
from scheduler.core.menu.drain import LN_NEVER, LN_ONE, PSI_ONE, minus_ln_q, psi, stays
from scheduler.core.menu.draw import Item, draw_menus, strata
from scheduler.core.menu.splitmix import permutation, splitmix
from scheduler.core.menu.spoil import cut, usable_micro
from scheduler.core.menu.terms import CPU_PRICES, DEPARTURES, rounded_cost
from scheduler.core.menu.value import node_value, one_card, whole_cards

HALF = Item(cards=1, steps=50, cpu_milli=4000, worth_micro=500_000)
PAIR = Item(cards=2, steps=100, cpu_milli=10_000, worth_micro=2_000_000)
BY_HAND = (HALF, PAIR)


@pytest.mark.parametrize(
    ("cpu_milli", "idle", "value"),
    [
        # Two empty cards, 8 cores: the pair asks 10. At price u it costs 8000 u + 2,000,000 - 10,000 u, falling; at 160
        # that is 1,280,000 + 400,000, at 220 nothing pays its CPU and 1,760,000 of CPU is left.
        pytest.param(8000, [1000, 1000], 1_680_000, id="empty"),
        # CPU to spare: one half fits the first card, nothing the second.
        pytest.param(100_000, [500, 300], 500_000, id="part filled, CPU to spare"),
        # Room for three halves, CPU for one: 4000 u + 3 (500,000 - 4000 u); at 120: 480,000 + 3 x 20,000.
        pytest.param(4000, [1000, 590], 540_000, id="part filled, CPU short"),
    ],
)
def test_values_worked_by_hand(cpu_milli: int, idle: list[int], value: int) -> None:
    """V of an empty and of two part-filled nodes for one menu of a half and a pair."""
    assert node_value([BY_HAND], cpu_milli, idle) == value
    assert compiled_value(value_tables([BY_HAND]), cpu_milli, idle) == value


def test_tables_worked_by_hand() -> None:
    """A half twice on a card; the pair beats four halves once CPU costs something."""
    assert [one_card(BY_HAND, 0)[r] for r in (49, 50, 99, 100)] == [0, 500_000, 500_000, 1_000_000]
    v = one_card(BY_HAND, 100)
    assert (v[100], whole_cards(BY_HAND, 100, v)[:4]) == (200_000, [0, 200_000, 1_000_000, 1_200_000])


items = st.builds(
    Item,
    st.integers(1, 8),
    st.integers(1, 100),
    st.integers(0, 200_000),
    st.integers(0, 8_000_000),
)
menus = st.lists(st.lists(items, max_size=5).map(tuple), min_size=1, max_size=3)
idles = st.lists(st.one_of(st.just(1000), st.integers(0, 1000)), max_size=8)


@settings(max_examples=40, deadline=None)
@given(menus, st.integers(0, 500_000), idles)
def test_compiled_values_are_the_plain_ones(drawn: list[tuple[Item, ...]], cpu_milli: int, idle: list[int]) -> None:
    """Also where the compiled minimum over prices ends early, because no menu got less."""
    drawn = [
        tuple(Item(i.cards, 100 if i.cards > 1 else i.steps, i.cpu_milli, i.worth_micro) for i in m) for m in drawn
    ]
    assert compiled_value(value_tables(drawn), cpu_milli, idle) == node_value(drawn, cpu_milli, idle)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), max_size=4))
def test_compiled_cpu_values_are_the_plain_ones(sizes: list[tuple[int, int]]) -> None:
    """X, summed over the menus."""
    sums = np.zeros(200, np.int64)
    k.fill_cpu(sums, np.array(sizes, np.int64).reshape(-1, 2))
    assert sums.tolist() == fillings(sizes, 200)


MIX = {
    "1000|1|100|": 40,
    "4000|1|500|": 25,
    "8000|1|1000|": 20,
    "3000|1|330|T4": 12,
    "16000|2|1000|A100": 6,
    "64000|8|1000|": 3,
    "2000|2|250|": 4,
    "2000|0|0|": 30,
}
SERVICE = {"1000|1|100|": (4_000_000, 20), "64000|8|1000|": (90_000_000, 3), "2000|0|0|": (1_000_000, 9)}
TABLES = build(DEPARTURES, MIX, SERVICE)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), idles, st.sampled_from([("T4",), ("A100",), ("A100", "T4")]))
def test_tables_of_fragments_are_the_plain_sums(cpu_milli: int, idle: list[int], kind: tuple[str, ...]) -> None:
    """By lifetimes, and only classes that the models admit."""
    common = typical(TABLES.classes)
    assert usable(TABLES.reach([kind], []), 0, cpu_milli, idle) == usable_micro(
        common, cut(common), kind, cpu_milli, idle
    )


def test_parts_of_several_cards_count_as_pods_of_one() -> None:
    """Two quarters with two cores: twice a quarter with one."""
    found = {each.key: each for each in pod_classes(MIX, {}, by_lifetime=True)}["2000|2|250|"]
    assert (found.cards, found.share_milli, found.cpu_milli, found.weight) == (1, 250, 1000, 8)


def test_lifetimes_are_drawn_to_the_overall_mean() -> None:
    """L = (time + 3 overall means) / (ended + 3): (4,000 + 3 x 2,968 s) / 23, and nothing known is the overall mean."""
    found = {each.key: each for each in pod_classes(MIX, SERVICE, by_lifetime=True)}
    overall = 95_000_000 // 32
    assert found["1000|1|100|"].lifetime_ms == (4_000_000 + 3 * overall) // 23
    assert found["4000|1|500|"].lifetime_ms == overall
    assert found["4000|1|500|"].weight == 25 * (overall // 1000)
    assert pod_classes(MIX, {}, by_lifetime=True)[0].lifetime_ms is None


def test_the_generator_is_the_published_one() -> None:
    """The first numbers of splitmix64 from seed 0."""
    assert [splitmix(0, i) for i in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert sorted(permutation(7, 48)) == list(range(48))


def test_a_draw_is_stratified_and_repeats() -> None:
    """Of 48 menus each class gets its share within two, at every position; the same seed gives the same menus."""
    classes = [each for each in pod_classes(MIX, {}, by_lifetime=False) if each.cards]
    total = sum(each.weight for each in classes)
    for position in range(16):
        drawn = strata(classes, 48, position, 5)
        for each in classes:
            assert abs(drawn.count(each) - 48 * each.weight / total) < 2
    assert list(draw_menus(classes, 48, 16, 5))[-1] == list(draw_menus(classes, 48, 16, 5))[-1]
    assert list(draw_menus(classes, 48, 16, 5))[-1] != list(draw_menus(classes, 48, 16, 6))[-1]


def test_who_leaves_when() -> None:
    """Chances are H / (H + L): a pod of mean life H leaves within H with chance 1/2; for ever is never."""
    horizon = DEPARTURES.drain_horizon_ms
    assert minus_ln_q(horizon, horizon) == round(0.6931471805599453 * LN_ONE)
    assert stays(horizon, horizon) == PSI_ONE // 2
    assert (minus_ln_q(None, horizon), stays(None, horizon), psi(LN_NEVER), psi(0)) == (LN_NEVER, PSI_ONE, 0, PSI_ONE)
    assert psi(2 * minus_ln_q(horizon, horizon)) == pytest.approx(PSI_ONE / 4, rel=0.005)


def test_costs_are_rounded_to_the_nearest_step_halves_up() -> None:
    """Steps of 40 thousandths."""
    given_micro = (0, 19_999, 20_000, 59_999, 60_000, -20_000, -20_001)
    assert [rounded_cost(micro, DEPARTURES) for micro in given_micro] == [0, 0, 40, 40, 80, 0, -40]
    assert list(CPU_PRICES) == sorted(CPU_PRICES)
