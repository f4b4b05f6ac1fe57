"""Ties of demand to nodes: worked by hand, from the sets to the node that is chosen."""

from __future__ import annotations

import pytest

from bus.ledger.state import LedgerState
from scheduler.core.arrays.cluster import Cluster as Arrays
from scheduler.core.decide import Placed, decide
from scheduler.core.menu.classes import PodClass, pod_classes
from scheduler.core.menu.demand import Demand, Idle, tie_prices
from scheduler.core.menu.terms import ARRIVALS, DEPARTURES
from scheduler.core.menu.ties import MAX_GROUPS, MAX_SETS, MOST, ONE, Chassis, beyond, odds_ratio, ties_of, unions
from scheduler.core.policies import POLICIES, score_parts
from scheduler.core.ranking import Rankings
from scheduler.core.request import shape_of
from scheduler.core.view import view_of
from tests.builders.ledger import Cluster, Request, cluster, node, request

SMALL, BIG = Chassis(("G",), 8, 96_000), Chassis(("G",), 8, 128_000)
TIED = {"120000|8|1000|": 1, "4000|1|1000|": 72}
"""A tenth of the demand for cards fits the big nodes only: 8 of 80 cards."""

FIRST = min(range(20), key=lambda i: cluster(node(f"n{i}")).state.nodes[f"n{i}"].tie)
BIG_NODE = f"n{FIRST}"


def classes(mix: dict[str, int]) -> tuple[PodClass, ...]:
    """Of a mix that counts by arrivals."""
    return pod_classes(mix, {}, by_lifetime=False)


def test_a_shape_ties_as_a_model_does() -> None:
    """One set, the big nodes; a tenth of the demand is tied to it: odds of 1 to 9. Models tell nothing here."""
    found = ties_of(classes(TIED), [SMALL, BIG], by_shape=True)
    assert (found.groups, found.count, found.sets) == ((0, 1), 2, ((0b10, ONE // 9),))
    assert ties_of(classes(TIED), [SMALL, BIG], by_shape=False).sets == ()


def test_the_price_of_few_big_nodes() -> None:
    """A twentieth of the cards is on them: S = (1 / 9) x 19 = 2.11, so 1.9 without anybody pressing: the full price.

    With a fifth of the cards S = 4/9: no price from what the cluster is, the floor of 0.1; when all but a tenth of
    what is idle there is gone (a = 0.02 of all) T = 49/9: the full price.
    """
    demand = Demand(ties=ties_of(classes(TIED), [SMALL, BIG], by_shape=True))

    def prices(idle: tuple[int, int], cards: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        room = Idle(milli=sum(idle), cpu_milli=0, slots=(), by_group=(*idle, 0), cards_by_group=(*cards, 0))
        return tie_prices(demand, room, DEPARTURES)

    assert prices((950, 50), (950, 50)) == ((0, 1000, 0), (0, 100, 0))
    assert prices((800, 200), (800, 200)) == ((0, 100, 0), (0, 100, 0))
    assert prices((980, 20), (800, 200)) == ((0, 1000, 0), (0, 100, 0))
    assert prices((0, 0), (800, 200)) == ((0, 1000, 0), (0, 100, 0))


def test_nearly_everything_is_not_scarce() -> None:
    """Half of the demand does not fit the one tiny node. Demand over room says 0.5, odds say 0.01; ends are 1000, 0."""
    assert odds_ratio(ONE, 990, 1000) * 1000 // ONE == 10
    assert (odds_ratio(ONE, 0, 1000), odds_ratio(ONE, 1000, 1000), odds_ratio(0, 5, 1000)) == (MOST, 0, 0)


def test_what_a_pod_takes_beyond_its_cards() -> None:
    """Half of the CPU of eight cards is worth four; a pod that asks for as much in cards owes nothing."""
    assert beyond(0, 0, 64_000, BIG) == 4000
    assert beyond(1, 1000, 64_000, BIG) == 3000
    assert beyond(8, 1000, 120_000, BIG) == 0
    assert beyond(0, 0, 1000, Chassis((), 0, 0)) == 0


def test_unions_of_ties_are_looked_at() -> None:
    """Two classes tied to one model each press together on both."""
    kinds = [Chassis((model,), 8, 64_000) for model in ("A100", "T4", "V100")]
    found = ties_of(classes({"1|1|1000|A100": 1, "1|1|1000|T4": 1, "1|1|1000|": 2}), kinds, by_shape=False)
    assert found.sets == ((0b001, ONE // 4), (0b010, ONE // 4), (0b011, ONE // 2))


def test_a_set_that_everybody_is_tied_to_keeps_nobody_away() -> None:
    """One pod in ten thousand can go where the others cannot; with one in a hundred the set counts."""
    kinds = [SMALL, BIG, Chassis(("A",), 8, 96_000)]
    for many, sets in ((9999, ()), (99, ((0b10, ONE * 99),))):
        mix = {"1000|1|1000|G": many, "1000|1|1000|": 1}
        assert ties_of(classes(mix), kinds, by_shape=True).sets == sets


def test_sets_and_groups_are_bounded() -> None:
    """Of 2^12 unions those are kept that hold most of the demand; more groups than bits: the last have no price."""
    kept = unions({1 << bit: 100 - bit for bit in range(12)})
    assert len(kept) <= MAX_SETS
    assert {0b1, 0b11, 1 << 11} <= kept
    many = [Chassis(("G",), 1, 1000 * cpu) for cpu in range(1, 80)]
    found = ties_of(classes({f"{1000 * cpu}|1|1000|": 1 for cpu in range(1, 80)}), many, by_shape=True)
    assert (found.count, found.groups[0], found.groups[-1]) == (MAX_GROUPS, 0, MAX_GROUPS)
    assert len(found.sets) <= MAX_SETS


def mixed() -> Cluster:
    """Nineteen small nodes and a big one, which comes first; a thirteenth of the demand, few large pods, needs it."""
    drawn = cluster(node(f"n{i}").gpus(8, model="G").cpu(128_000 if i == FIRST else 96_000) for i in range(20))
    drawn.state.learned, drawn.state.learned_at = {"120000|8|1000|": 1, "32000|8|1000|": 3, "400|1|100|": 720}, 1
    return drawn


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(request("a").share(1000).cpu(4000), id="a card"),
        pytest.param(request("a").cards(0).cpu(64_000), id="CPU alone"),
    ],
)
def test_others_are_kept_off_the_big_node(asked: Request) -> None:
    """Who fits elsewhere goes elsewhere; without the price everybody goes to the first node."""
    drawn = mixed()
    state = drawn.accept(asked)
    first, priced = (decide(drawn.state, state, POLICIES[name]) for name in ("menu-value-arrivals", "menu-value"))
    assert isinstance(first, Placed)
    assert isinstance(priced, Placed)
    assert first.placement.node == BIG_NODE
    assert priced.placement.node != BIG_NODE


def test_the_price_is_told() -> None:
    """Eight cards at the full price, 8 whole cards; and half of the CPU beyond no cards, at the floor of 0.1."""
    drawn, rankings = mixed(), Rankings()
    rankings.sync(drawn.state)
    policy = POLICIES["menu-value"]
    mix, view = rankings.mix_for(policy), rankings.views[BIG_NODE]
    eight, alone = (shape_of(request("a").cards(n).cpu(64_000).build(), "default") for n in (8, 0))
    assert score_parts(policy, eight, view, tuple(view.cards), mix)["tie_price"] == -8000 * 1000
    assert score_parts(policy, alone, view, (), mix)["tie_price"] == -4000 * 100
    assert score_parts(policy, alone, rankings.views[f"n{(FIRST + 1) % 20}"], (), mix)["tie_price"] == 0


def test_a_chassis_that_no_class_tells_apart_changes_nothing() -> None:
    """Tables stand when such a node joins, and are made again when the mix sees a difference."""
    drawn = cluster(node("n0").gpus(8, model="G").cpu(96_000))
    drawn.state.learned, drawn.state.learned_at = dict(TIED), 1
    arrays = Arrays(DEPARTURES)
    _follow(arrays, drawn.state)
    boards = arrays.boards
    drawn.add(node("like").gpus(8, model="G").cpu(97_000))
    _follow(arrays, drawn.state)
    assert arrays.boards is boards
    drawn.add(node("half").gpus(4, model="G").cpu(200_000))
    _follow(arrays, drawn.state)
    assert arrays.boards is boards
    drawn.add(node("big").gpus(8, model="G").cpu(128_000))
    _follow(arrays, drawn.state)
    assert arrays.boards is not boards


def test_the_rules_know_a_node_that_came_late() -> None:
    """Its chassis is new, its group and all prices are as before."""
    drawn = cluster(node(f"n{i}").gpus(8, model="G").cpu(128_000 if i % 2 else 96_000) for i in range(20))
    drawn.state.learned, drawn.state.learned_at = dict(TIED), 1
    arrays = Arrays(DEPARTURES)
    _follow(arrays, drawn.state)
    before = arrays.outlook()
    drawn.add(node("late").gpus(8, model="G").cpu(130_000))
    _follow(arrays, drawn.state)
    assert before.prices == arrays.outlook().prices
    assert arrays.outlook().tie(view_of(drawn.state.nodes["late"], {})) == (100, 100)


def test_sums_follow_nodes_that_change() -> None:
    """More CPU, and a node that leaves: whoever was there all the time has the sums of who comes late."""
    drawn = mixed()
    arrays = Arrays(DEPARTURES)
    _follow(arrays, drawn.state)
    before = arrays.told_prices()
    drawn.fold(node("n0").cpu(130_000).records()[1])  # its facts alone
    arrays.leave("n3")
    del drawn.state.nodes["n3"]
    _follow(arrays, drawn.state)
    late = Arrays(DEPARTURES)
    _follow(late, drawn.state)
    assert arrays.totals.tolist() == late.totals.tolist()
    assert arrays.told_prices() == late.told_prices()
    assert arrays.told_prices().tie != before.tie


def _follow(arrays: Arrays, state: LedgerState) -> None:
    for each in state.nodes.values():
        arrays.refresh(each, state.requests)
    arrays.learn(state)
    arrays.absorb()


def test_without_departures_there_are_no_shapes() -> None:
    """The other form goes by models, begins late and has no floor."""
    assert (ARRIVALS.by_shape, ARRIVALS.tie_floor, ARRIVALS.tie_threshold) == (False, 0, 900)
