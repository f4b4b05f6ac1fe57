"""Slices of time × multiprocessors: where they fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.partition_cards import CardArea, Rule, choose
from autoscaler.core.partitions import WHOLE, Rectangle, free


def place(taken: list[Rectangle], width: int, height: int) -> Rectangle | None:
    """On the one card there is."""
    found = choose([CardArea(uuid="A", taken=tuple(taken))], width, height)
    return None if found is None else found.place


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
