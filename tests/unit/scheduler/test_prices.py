"""The linear program: tiny instances solved by hand, a brute force beside it, and what its prices mean."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.prices import columns
from scheduler.core.prices.columns import solve
from scheduler.core.prices.solver import NoSolver
from scheduler.core.prices.supply import Ask, Pool

pytest.importorskip("highspy")


def pool(cards: int, cpu: int = 1_000_000, model: str = "A") -> Pool:
    """Cards with their CPU, in milli-cores."""
    return Pool(model=model, cards=cards, cpu_milli=cpu)


def ask(
    share: int, count: float, *, cards: int = 1, cpu: int = 0, models: tuple[str, ...] = (), must: float = 0
) -> Ask:
    """So many pods of one kind."""
    return Ask(cpu_milli=cpu, cards=cards, share_milli=share, models=frozenset(models), count=count, must=must)


@pytest.mark.parametrize(
    ("pools", "asks", "placed"),
    [
        pytest.param([pool(3)], [ask(600, 10), ask(300, 2)], 2400, id="two cards with 600 + 300, one with 600"),
        pytest.param([pool(2)], [ask(500, 3)], 1500, id="all that is asked for"),
        pytest.param([pool(1)], [ask(340, 9)], 680, id="a third of 340 does not fit"),
        pytest.param([pool(4, cpu=8000)], [ask(1000, 4, cpu=4000)], 2000, id="cores for two of four"),
        pytest.param(
            [pool(2, cpu=9000)], [ask(500, 9, cpu=1000), ask(500, 9, cpu=8000)], 2000, id="the cheaper in cores"
        ),
        pytest.param(
            [pool(1), pool(1, model="B")], [ask(1000, 2, models=("B",))], 1000, id="only one card of the model"
        ),
        pytest.param([pool(3)], [ask(1000, 1, cards=4)], 3000, id="a pod of four is pieces: a bound, not a placement"),
        pytest.param([pool(1)], [], 0, id="nothing is asked for"),
    ],
)
def test_the_bound_is_what_a_person_finds(pools: list[Pool], asks: list[Ask], placed: int) -> None:
    """Thousandths of a card; exact but for the gap at which the program stops."""
    found = solve(pools, asks)

    assert found.feasible
    assert found.placed_milli == pytest.approx(placed, abs=0.1)


def test_a_price_is_what_one_piece_more_would_add() -> None:
    """600 is there in plenty and is worth nothing; one more 300 fills a hole of 300."""
    found = solve([pool(3)], [ask(600, 10), ask(300, 2)])

    assert found.prices == pytest.approx((0.0, 300.0), abs=1e-6)
    assert found.cpu_prices == pytest.approx((0.0,), abs=1e-9)


def test_scarce_cores_have_a_price() -> None:
    """Each milli-core more places a quarter of a thousandth: 1000 thousandths for 4000 milli-cores."""
    found = solve([pool(4, cpu=8000)], [ask(1000, 4, cpu=4000)])

    assert found.cpu_prices == pytest.approx((0.25,), abs=1e-6)


def test_what_must_be_placed_comes_first_and_may_not_fit() -> None:
    """A 600 that must be placed leaves 400 beside it empty; two on one card are impossible."""
    held = solve([pool(1)], [ask(600, 1, must=1), ask(500, 2)])
    none = solve([pool(1)], [ask(600, 2, must=2)])

    assert held.feasible
    assert held.placed_milli == pytest.approx(600, abs=0.1)
    assert not none.feasible


def best_packing(cards: int, sizes: tuple[int, ...]) -> int:
    """Every way to give each pod a card or none."""
    most = 0
    for homes in itertools.product(range(cards + 1), repeat=len(sizes)):
        loads = [0] * (cards + 1)
        for home, size in zip(homes, sizes, strict=True):
            loads[home] += size
        if all(load <= 1000 for load in loads[1:]):
            most = max(most, sum(loads[1:]))
    return most


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.lists(st.sampled_from((250, 300, 400, 600, 700, 1000)), min_size=1, max_size=5))
def test_no_packing_passes_the_bound(cards: int, sizes: list[int]) -> None:
    """The bound is never under the best of all packings, and never over what is there or asked for."""
    asks = [ask(size, sizes.count(size)) for size in sorted(set(sizes))]
    found = solve([pool(cards)], asks).placed_milli

    assert found >= best_packing(cards, tuple(sizes)) - 0.1
    assert found <= min(1000 * cards, sum(sizes)) + 0.1


def test_without_the_solver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of the extra."""
    monkeypatch.setattr(columns, "solver_there", lambda: False)

    with pytest.raises(NoSolver, match=r"pip install 'gpubus\[lp\]'"):
        solve([pool(1)], [ask(500, 1)])
