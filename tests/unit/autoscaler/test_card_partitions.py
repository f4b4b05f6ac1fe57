"""Slices of time × multiprocessors: where they fit, what they serve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.partition_cards import CardArea, Rule, choose
from autoscaler.core.partitions import WHOLE, Rectangle, area_milli, free, place, place_all
from autoscaler.core.profiles import (
    Point,
    Slices,
    added,
    capacity_of,
    difference,
    learned,
    measured_milli,
    most_efficient,
    usable,
)


def packed(slices: list[tuple[int, int]]) -> list[Rectangle]:
    """Those that found a place, in this order."""
    taken: list[Rectangle] = []
    for width, height in slices:
        found = place(taken, width, height)
        if found is not None:
            taken.append(found)
    return taken


def rect(time: int, unit: int, width: int, height: int) -> Rectangle:
    return Rectangle(time=time, unit=unit, width=width, height=height)


def test_a_slice_leaves_two_maximal_rectangles() -> None:
    """The worked numbers of the module."""
    assert free([rect(0, 0, 400, 40)]) == (rect(0, 40, 1000, 60), rect(400, 0, 600, 100))


def test_the_published_packing_fits_one_card() -> None:
    """4 ResNet (40 % x 12 %), 2 RNNT (40 % x 24 %), 2 BERT (60 % x 50 %): one card where time sharing takes four."""
    slices = [(400, 12)] * 4 + [(400, 24)] * 2 + [(600, 50)] * 2
    places = [found for found in place_all((), slices) if found is not None]

    assert [(found.width, found.height) for found in places] == slices
    assert sum(found.area for found in places) == 98_400
    assert not any(one.meets(other) for i, one in enumerate(places) for other in places[:i])
    assert len(packed(slices)) == 7


def test_what_finds_no_place_among_many_is_none_of_them() -> None:
    """The others are placed nevertheless, in the caller's order."""
    assert place_all((), [(1000, 10), (1000, 95)]) == (None, rect(0, 0, 1000, 95))


def test_the_place_with_the_least_waste_is_taken() -> None:
    """Of two free corners the one whose area is nearly used up."""
    taken = [rect(0, 50, 1000, 50), rect(300, 0, 100, 50)]

    assert free(taken) == (rect(0, 0, 300, 50), rect(400, 0, 600, 50))
    assert place(taken, 250, 50) == rect(0, 0, 250, 50)
    assert place(taken, 301, 50) == rect(400, 0, 301, 50)


def test_of_equal_waste_the_shorter_side_left_over_decides() -> None:
    """400 x 50 and 500 x 40 are equally large; beside 300 x 30 the shorter sides left are 20 and 10."""
    taken = [rect(0, 50, 500, 50), rect(400, 0, 600, 50), rect(500, 50, 500, 10)]

    assert free(taken) == (rect(0, 0, 400, 50), rect(500, 60, 500, 40))
    assert place(taken, 300, 30) == rect(500, 60, 300, 30)


def test_what_does_not_fit_has_no_place() -> None:
    """Half of the area is free, and no rectangle of that shape."""
    taken = [rect(0, 0, 1000, 50)]

    assert place(taken, 1, 51) is None
    assert place(taken, 1000, 50) == rect(0, 50, 1000, 50)
    assert place([WHOLE], 1, 1) is None


@pytest.mark.parametrize(("width", "height"), [(0, 50), (50, 0), (1001, 1), (1, 101)])
def test_a_slice_larger_than_a_card_is_an_error(width: int, height: int) -> None:
    """Named with the bounds."""
    with pytest.raises(ValueError, match=r"sides are 1\.\.1000 thousandths and 1\.\.100 percent"):
        place([], width, height)


def test_area_is_rounded_up() -> None:
    """A slice is never counted as nothing."""
    assert (area_milli(400, 12), area_milli(1, 1), area_milli(1000, 100)) == (48, 1, 1000)


SLICES = st.lists(
    st.tuples(st.sampled_from([100, 200, 250, 333, 500, 1000]), st.sampled_from([6, 12, 24, 50, 60, 100])), max_size=10
)


@given(SLICES, st.data())
def test_free_is_all_that_is_free_and_nothing_else(slices: list[tuple[int, int]], data: st.DataObject) -> None:
    """No two slices meet; free rectangles meet none, lie in no other, and hold every free point. Freeing merges."""
    taken = packed(slices)
    room = free(taken)

    assert not any(one.meets(other) for i, one in enumerate(taken) for other in taken[:i])
    assert not any(one.meets(other) for one in room for other in taken)
    assert not any(one.holds(other) for one in room for other in room if one != other)
    for time in (0, 99, 100, 333, 500, 999):
        for unit in (0, 12, 24, 50, 99):
            point = rect(time, unit, 1, 1)
            assert any(r.holds(point) for r in room) != any(r.holds(point) for r in taken)
    assert free([]) == (WHOLE,)
    if taken:
        gone = data.draw(st.sampled_from(taken))
        rest = [r for r in taken if r != gone]
        assert any(r.holds(gone) for r in free(rest))
        assert free(rest) == free(rest[::-1])


def test_on_cards_the_least_waste_over_all_wins() -> None:
    """A gap of the right size on the second card before an empty first one; no card at all is no place."""
    cards = [CardArea(uuid="A"), CardArea(uuid="B", taken=(rect(0, 0, 600, 100),))]

    assert choose(cards, 400, 100) is not None
    found = choose(cards, 400, 100)
    assert found is not None
    assert (found.card, found.place) == ("B", rect(600, 0, 400, 100))
    assert choose([], 1, 1) is None


HALF = (rect(0, 0, 500, 100),)
PLAIN = CardArea(uuid="P", taken=HALF)
RED = CardArea(uuid="R", taken=HALF, affinity=frozenset({"red"}))
FULL_RED = CardArea(uuid="R", taken=(WHOLE,), affinity=frozenset({"red"}))
BLUE = CardArea(uuid="B", taken=(rect(0, 0, 700, 100),), affinity=frozenset({"blue"}))
EMPTY = CardArea(uuid="E")

TAGS: list[tuple[str, list[CardArea], str | None, Rule, str | None]] = [
    ("who has a tag goes to its card", [PLAIN, RED, EMPTY], "red", "stay", "R"),
    ("or nowhere", [PLAIN, FULL_RED, EMPTY], "red", "stay", None),
    ("a new tag opens an empty card", [PLAIN, BLUE, EMPTY], "red", "stay", "E"),
    ("or waits", [PLAIN, BLUE], "red", "stay", None),
    ("without a tag: cards without one, best fit", [RED, PLAIN, EMPTY], None, "stay", "P"),
    ("then tagged ones, worst fit", [BLUE, RED], None, "stay", "R"),
    ("without the rule tags mean nothing here", [BLUE, PLAIN], "red", "any", "B"),
]


@pytest.mark.parametrize(("claim", "cards", "tag", "rule", "card"), TAGS, ids=[row[0] for row in TAGS])
def test_affinity_as_published(
    claim: str, cards: list[CardArea], tag: str | None, rule: Rule, card: str | None
) -> None:
    """KubeShare's rule for a slice of 30 % of the time on all multiprocessors."""
    found = choose(cards, 300, 100, affinity=tag, rule=rule)

    assert (found and found.card) == card


def point(share: int, partition: int, rate: int, latency: int | None = None, model: str = "V100") -> Point:
    return Point(model=model, share_milli=share, partition_percent=partition, rate_milli=rate, latency_ms=latency)


SMALL, LARGE = point(250, 24, 30_000, 60), point(500, 24, 50_000, 35)
TINY = point(100, 12, 2_000, 200)
PROFILE = (TINY, SMALL, LARGE)


def test_the_most_calls_per_area_win() -> None:
    """30 per 6,000 against 50 per 12,000 and 2 per 1,200; of equals the smaller."""
    assert most_efficient(PROFILE) == SMALL
    assert most_efficient((point(500, 24, 60_000), SMALL)) == SMALL
    assert most_efficient(()) is None


def test_so_many_more_calls_take_so_many_slices() -> None:
    """100 more: three of the efficient ones and for 10 the one that exceeds it least; 2 more take the tiny one."""
    assert added(PROFILE, 100_000) == (Slices(point=SMALL, count=3), Slices(point=SMALL, count=1))
    assert added(PROFILE, 92_000) == (Slices(point=SMALL, count=3), Slices(point=TINY, count=1))
    assert added(PROFILE, 90_000) == (Slices(point=SMALL, count=3),)
    assert added(PROFILE, 1) == (Slices(point=TINY, count=1),)
    assert added(PROFILE, 0) == added((), 5) == ()


def test_a_latency_keeps_slow_slices_out() -> None:
    """Under 40 ms only the large one; a point without a latency keeps no promise."""
    assert usable(PROFILE, "V100", 40) == (LARGE,)
    assert usable((*PROFILE, point(1000, 100, 90_000)), "V100", 69) == (SMALL, LARGE)
    assert added(usable(PROFILE, "V100", 40), 10_000) == (Slices(point=LARGE, count=1),)


def test_one_card_model_says_nothing_about_another() -> None:
    """S136: no point, no answer; the exact slice or nothing."""
    assert usable(PROFILE, "A100") == ()
    assert capacity_of(PROFILE, "A100", 250, 24) is None
    assert capacity_of(PROFILE, "V100", 250, 25) is None
    assert capacity_of(PROFILE, "V100", 250, 24) == 30_000


def test_a_difference_within_a_fifth_is_none() -> None:
    """Up and down; at no capacity any arrival is a difference."""
    numbers = [(120, 100), (121, 100), (80, 100), (79, 100), (1, 0), (0, 0)]

    assert [difference(*pair) for pair in numbers] == [0, 21, 0, -21, 1, 0]


def test_a_new_measurement_replaces_the_old_one_of_its_slice() -> None:
    """Of that slice of that model only."""
    faster = point(250, 24, 33_000)

    assert learned(PROFILE, faster) == (TINY, LARGE, faster)
    assert learned(PROFILE, point(250, 24, 1, model="A100"))[:3] == PROFILE


def test_a_rate_needs_a_hundred_calls() -> None:
    """250 calls in 10 s at full load are 25 a second."""
    assert measured_milli(250, 10_000) == 25_000
    assert measured_milli(99, 10_000) is None
    assert measured_milli(250, 0) is None
