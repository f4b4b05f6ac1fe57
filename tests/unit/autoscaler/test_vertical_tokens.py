"""The token economy: every published vector, its repairs, and what holds for any numbers."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.vertical_rooms import Claim, share_out
from autoscaler.core.vertical_tokens import Resource, Rule, cost, saved, solve, weights

NONE = float("-inf")
PRICES = (1, 3)


def pod(used: tuple[float, float], average: tuple[float, float] = (0, 0), low: float = NONE) -> list[Resource]:
    """CPU and card."""
    return [Resource(price=p, used=u, average=a, low=low) for p, u, a in zip(PRICES, used, average, strict=True)]


@pytest.mark.parametrize(
    ("savings", "income", "spent", "elapsed_s", "after"),
    [
        pytest.param(0, 300, 40, 2, 300, id="capped at one second of income"),
        pytest.param(0, 30, 40, 2, 0, id="never below zero"),
        pytest.param(100, 100, 130, 2, 40, id="spends what it saved"),
        pytest.param(7, 300, 40, None, 7, id="the first interval earns nothing"),
        pytest.param(7, 300, 40, -5, 7, id="time does not go back"),
    ],
)
def test_savings(savings: float, income: float, spent: float, elapsed_s: float | None, after: float) -> None:
    """The queue of tokens; the first interval is not the time since 1970."""
    assert saved(savings, income, spent, elapsed_s) == after


VECTORS = [
    (100, (0, 0), (10, 10), "free"),
    (100, (20, 20), (25, 25), "bound"),
    (100, (50, 50), (25, 25), "bound"),
    (100, (100, 60), (55, 15), "bound"),
    (100, (10, 90), (-35, 45), "bound"),
    (300, (0, 0), (30, 30), "free"),
    (300, (20, 20), (50, 50), "free"),
    (300, (50, 50), (75, 75), "bound"),
    (300, (100, 60), (105, 65), "bound"),
    (300, (10, 90), (15, 95), "bound"),
]


@pytest.mark.parametrize(("income", "used", "limits", "rule"), VECTORS)
def test_static_weights(income: int, used: tuple[int, int], limits: tuple[int, int], rule: Rule) -> None:
    """V = 10, T = 2, no bounds: KuScale's own numbers."""
    resources = pod(used)
    found = solve(resources, weights(resources, 10), income * 2, 2)
    assert found.limits == pytest.approx(limits)
    assert found.rule == rule
    if rule == "bound":
        assert cost(resources, found.limits) == pytest.approx(income)


@pytest.mark.parametrize("used", [(0, 0), (20, 20), (30, 50), (45, 45), (45.5, 45), (100, 60), (10, 57), (10, 56)])
def test_when_headroom_is_free(used: tuple[float, float]) -> None:
    """With V = 10, T = 2 the free solution is taken just when use costs at most 0.6 of the income, here 180."""
    resources = pod(used)
    free = solve(resources, weights(resources, 10), 600, 2).rule == "free"
    assert free == (cost(resources, used) <= 0.6 * 300)


@pytest.mark.parametrize(
    ("used", "average", "weighed", "limits", "floored"),
    [
        ((0, 0), (0, 0), (60, 180), (5, 5), (10, 10)),
        ((50, 20), (40, 30), (60.0615, 238.3085), (54.9949, 23.7766), (54.9949, 23.7766)),
    ],
)
def test_dynamic_weights(
    used: tuple[float, float],
    average: tuple[float, float],
    weighed: tuple[float, float],
    limits: tuple[float, float],
    floored: tuple[float, float],
) -> None:
    """Income 300, T = 2: what is used less than its mean gets less headroom."""
    resources = pod(used, average)
    found = weights(resources, 0)
    assert found == pytest.approx(weighed, abs=1e-4)
    assert solve(resources, found, 600, 2).limits == pytest.approx(limits, abs=1e-4)
    assert solve(pod(used, average, low=10), found, 600, 2).limits == pytest.approx(floored, abs=1e-4)


def test_a_burst_gets_more_headroom() -> None:
    """Use above the mean lowers all weights, use below it raises them."""
    calm, burst = pod((40, 30), (40, 30)), pod((80, 60), (40, 30))
    assert all(b < c for b, c in zip(weights(burst, 0), weights(calm, 0), strict=True))


@pytest.mark.parametrize(
    ("income", "used", "limits", "rule"),
    [
        (100, (10, 90), (10, 30), "bound"),  # floored afterwards it would be (10, 45), which costs 145
        (100, (90, 0), (70, 10), "bound"),
        (30, (50, 50), (10, 10), "floors"),
        (100, (0, 0), (10, 10), "free"),
    ],
)
def test_floors_are_part_of_the_problem(income: int, used: tuple[int, int], limits: tuple[int, int], rule: str) -> None:
    """What a floor costs is taken from the others; only floors alone may cost more than there is."""
    resources = pod(used, low=10)
    found = solve(resources, weights(resources, 10), income * 2, 2)
    assert (found.limits, found.rule) == (pytest.approx(limits), rule)


def test_a_cap_leaves_its_money_to_the_other() -> None:
    """A card is at most 100 percent of one: what that saves goes to the CPU."""
    resources = [Resource(price=1, used=100), Resource(price=3, used=99, high=100)]
    assert solve(resources, weights(resources, 10), 820, 2).limits == pytest.approx((110, 100))


@pytest.mark.parametrize("cards", [1, 2, 4])
def test_s146_several_cards_cost_so_many_times(cards: int) -> None:
    """A limit that holds on four cards costs four times as much: ten more tokens a card pay for ten more percent."""
    resources = [Resource(price=3 * cards, used=50, high=100)]
    less, more = (solve(resources, weights(resources, 10), 2 * income * cards, 2).limits[0] for income in (60, 90))
    assert more - less == pytest.approx(10)


numbers = st.integers(0, 2000).map(lambda n: n / 10)
bounds = st.tuples(st.integers(0, 500), st.integers(0, 1500)).map(lambda b: (b[0] / 10, (b[0] + b[1]) / 10))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Resource], float, float]:
    """Resources within bounds, V, income."""
    resources = []
    for price in draw(st.lists(st.sampled_from([1, 3, 12]), min_size=1, max_size=3)):
        low, high = draw(bounds)
        resources.append(Resource(price=price, used=draw(numbers), average=draw(numbers), low=low, high=high))
    return resources, draw(st.sampled_from([0.0, 1.0, 10.0, 500.0])), draw(st.integers(1, 5000)) / 1.0


@given(problems())
def test_limits_are_affordable_within_bounds_and_best(problem: tuple[list[Resource], float, float]) -> None:
    """Within bounds; paid for unless the floors alone are not; no small exchange of two limits is better."""
    resources, static_v, income = problem
    weighed = weights(resources, static_v)
    found = solve(resources, weighed, income * 2, 2)
    assert all(r.low - 1e-9 <= x <= r.high + 1e-9 for r, x in zip(resources, found.limits, strict=True))
    least = cost(resources, [r.low for r in resources])
    assert cost(resources, found.limits) <= max(income, least) + 1e-6

    def loss(limits: list[float]) -> float:
        terms = zip(resources, weighed, limits, strict=True)
        return sum(w * (x - r.used) ** 2 - 2 * income * r.price * x for r, w, x in terms)

    best = loss(list(found.limits))
    for (i, one), (j, other) in product(enumerate(resources), repeat=2):
        moved = list(found.limits)
        moved[i] -= 0.01 / one.price
        if i != j:
            moved[j] += 0.01 / other.price
        if all(r.low <= x <= r.high for r, x in zip(resources, moved, strict=True)):
            assert loss(moved) >= best - 1e-6 * max(1.0, abs(best))


claims = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6).map(
    lambda pairs: [Claim(uid=f"u{i}", owed=owed, wanted=wanted) for i, (owed, wanted) in enumerate(pairs)]
)


@given(st.integers(0, 2000), claims)
def test_nothing_is_promised_twice(capacity: int, asked: list[Claim]) -> None:
    """Everybody gets what it is owed, as far as it wants it; nobody more than it wants; all together what there is."""
    grants = share_out(capacity, asked)
    owed = sum(min(claim.owed, claim.wanted) for claim in asked)
    assert sum(grants.values()) <= max(capacity, owed)
    assert all(min(claim.owed, claim.wanted) <= grants[claim.uid] <= claim.wanted for claim in asked)
    if sum(claim.wanted for claim in asked) <= capacity:
        assert grants == {claim.uid: claim.wanted for claim in asked}
    assert share_out(capacity, list(reversed(asked))) == grants


def test_what_is_left_goes_to_small_wishes_first() -> None:
    """901 are left: the one who wants 100 more gets it, the other two divide 801, the odd one by uid."""
    asked = [Claim(uid=uid, owed=0, wanted=wanted) for uid, wanted in (("a", 1000), ("b", 100), ("c", 1000))]
    assert share_out(901, asked) == {"a": 400, "b": 100, "c": 401}
