"""Prices in tables: the knapsack beside a brute force, the value of a node by hand, and whom the policy spares."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.decisions import Reserved
from contracts.requests import PodRequest
from scheduler.core.mix import Class, Mix
from scheduler.core.placer import Placer
from scheduler.core.policies import POLICIES
from scheduler.core.prices import priced
from scheduler.core.prices.priced import CPU_PRICES, MICRO, PricedMix
from scheduler.core.prices.solver import NoSolver
from scheduler.core.prices.stock import Stock
from scheduler.core.prices.supply import Pool
from scheduler.core.request import shape_of
from scheduler.core.scores.node_value import loss, node_value, rounded
from scheduler.core.view import view_of
from tests.builders.ledger import Cluster, cluster, node, request

pytest.importorskip("highspy")


def kind(share: int, weight: int, *, cpu: int = 0, cards: int = 1, models: tuple[str, ...] = ()) -> Class:
    """One class of requests."""
    return Class(cpu, cards, share, frozenset(models), weight)


def learned(drawn: Cluster, *classes: Class) -> None:
    """The ledger knows this mix."""
    drawn.state.learned = {
        f"{c.cpu_milli}|{c.cards}|{c.share_milli}|{','.join(sorted(c.models))}": c.weight for c in classes
    }
    drawn.state.learned_at = 1


def brute(pieces: list[tuple[int, int]], room: int) -> int:
    """Every number of every piece."""
    ranges = [range(room // size + 1) for size, _ in pieces]
    return max(
        sum(n * worth for n, (_, worth) in zip(counts, pieces, strict=True))
        for counts in itertools.product(*ranges)
        if sum(n * size for n, (size, _) in zip(counts, pieces, strict=True)) <= room
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(20, 100), st.integers(-50, 900)), min_size=1, max_size=3, unique_by=lambda p: p[0])
)
def test_the_tables_hold_the_best_filling(pieces: list[tuple[int, int]]) -> None:
    """For every room, against all fillings; what costs more than it is worth is never taken."""
    table = priced._knapsack(pieces)

    assert [table[room] for room in (0, 19, 50, 77, 100)] == [
        brute([(size, max(0, worth)) for size, worth in pieces], room) for room in (0, 19, 50, 77, 100)
    ]


def test_the_value_of_a_node_by_hand() -> None:
    """One class of 500 with 1000 milli-cores, in plenty: no price. Two cards and 3000 milli-cores hold three of them.

    V = min over u of u x 3000 + 2 x 2 x max(0, 500,000 - 1000 u), in millionths: the last slope change is at u = 500:
    at 0 it is 2,000,000, at 320 it is 960,000 + 720,000, at 500 it is 1,500,000: three halves.
    """
    drawn = cluster([node("n").gpus(2).cpu(3000)])
    mix = PricedMix((kind(500, 9, cpu=1000),), (Pool(model="A100", cards=2, cpu_milli=3000),))
    state = drawn.state.nodes["n"]
    one, none = (request("r").share(500).cpu(1000).build(), request("c").cards(0).cpu(1000).build())
    view = view_of(state, drawn.state.requests)

    assert mix.prices == (0,) or mix.prices[0] < 500 * MICRO
    assert CPU_PRICES[-2] == 500
    assert loss(shape_of(none), view, (), mix) == 500_000
    assert loss(shape_of(one), view, (view.cards[0],), mix) == 500_000


def test_rounding_is_to_the_nearest_step() -> None:
    """Steps of 20 thousandths, halves up."""
    assert [rounded(milli * MICRO) for milli in (0, 9, 10, 29, 30, -10, -11)] == [0, 0, 1, 1, 2, 0, -1]


def test_nothing_known_is_first_fit() -> None:
    """Before anything was learned every node is worth the same."""
    drawn = cluster(node(f"n{i}").gpus(2) for i in range(3))
    asked = drawn.accept(request("r").share(300))
    by = [Placer(drawn.state, policy).place(asked) for policy in ("node-value", "first-fit")]

    assert by[0] is not None
    assert by[1] is not None
    assert by[0].placement == by[1].placement
    assert node_value(shape_of(request("x").build()), view_of(drawn.state.nodes["n0"], {}), (), Mix(())) == 0


def decided(drawn: Cluster, asked: PodRequest) -> Reserved:
    """By node-value."""
    record = Placer(drawn.state, "node-value").place(drawn.accept(asked))
    assert record is not None
    return record


def test_a_wanted_model_is_spared() -> None:
    """Half of all demand names the T4, of which there are few: who does not name it goes elsewhere, in any order."""
    for seed in range(6):
        drawn = cluster(
            [node(f"t{seed}").gpus(2, model="T4"), *(node(f"a{seed}{i}").gpus(2, model="A10") for i in range(3))]
        )
        learned(drawn, kind(1000, 50, models=("T4",)), kind(1000, 50))
        free, tied = decided(drawn, request("any").build()), decided(drawn, request("tied").models("T4").build())

        assert free.placement.node.startswith("a")
        assert tied.placement.node.startswith("t")


def test_prices_are_a_function_of_mix_and_hardware() -> None:
    """The same object while both stay; a node more makes another one, and its going brings equal prices back."""
    drawn, stock, mix = cluster([node("n1").gpus(2), node("n2").gpus(4)]), Stock(), Mix((kind(600, 2), kind(300, 1)))
    for each in drawn.state.nodes.values():
        stock.refresh(each)
    first = stock.priced(mix)
    again = stock.priced(mix)
    drawn.fold(*node("n3").gpus(8).records())
    stock.refresh(drawn.state.nodes["n3"])
    more = stock.priced(mix)
    stock.drop("n3")
    back = stock.priced(mix)

    assert isinstance(first, PricedMix)
    assert isinstance(back, PricedMix)
    assert first is again is not more
    assert (first.prices, first.pools) == (back.prices, back.pools)


def test_without_the_solver_the_default_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record says what to install; the place is that of the default policy."""

    def none(*_: object) -> None:
        raise NoSolver

    monkeypatch.setattr("scheduler.core.prices.columns.solve", none)
    drawn = cluster(node(f"n{i}").gpus(2) for i in range(3))
    learned(drawn, kind(500, 5))
    record = decided(drawn, request("r").share(500).build())

    assert record.rationale.policy == "menu-value"
    assert record.rationale.instead_of.startswith("node-value: linear programs need highspy")


def test_by_lifetime_the_class_that_stays_is_no_longer_scarce() -> None:
    """Two A100 and two T4 cards; nine of ten arrivals name the A100 and stay 10 s, one takes any card for 1,000 s.

    At 1.05 of four cards, arrivals make 3.78 pods for two A100s and 0.42 that could fill a T4: one more of these would
    add a card, and its price is all of it. By lifetime 90 s in 1,090 s are for the A100, 3.85 pods take any card, and
    one more adds nothing.
    """
    drawn = cluster([node("a").gpus(2, model="A100"), node("t").gpus(2, model="T4")])
    learned(drawn, kind(1000, 9, models=("A100",)), kind(1000, 1))
    drawn.state.learned_service = {"0|1|1000|A100": (90_000, 9), "0|1|1000|": (1_000_000, 1)}
    rankings = Placer(drawn.state, "node-value").rankings
    rankings.sync(drawn.state)

    by_arrivals, by_lifetime = (rankings.mix_for(POLICIES[name]) for name in ("node-value", "node-value-life"))
    again = rankings.mix_for(POLICIES["node-value"])

    assert (price_of_any(by_arrivals), price_of_any(by_lifetime)) == (1000 * MICRO, 0)
    assert again is by_arrivals, "policies that take turns solve nothing again"


def price_of_any(mix: Mix) -> int:
    """Of the class that names no model."""
    assert isinstance(mix, PricedMix)
    return next(p for each, p in zip(mix.classes, mix.prices, strict=True) if not each.models)
