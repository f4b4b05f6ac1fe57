"""`gpubus pack`: slices of time x multiprocessors on empty cards."""

from __future__ import annotations

import pytest

from gpubus.cli.pack import pack, parsed, placed
from gpubus.errors import UsageError

PUBLISHED = [one for text in ("4:400x12", "2:400x24", "2:600x50") for one in parsed(text)]


def test_the_published_packing_fits_one_card() -> None:
    """4 ResNet (40 % x 12 %), 2 RNNT (40 % x 24 %), 2 BERT (60 % x 50 %): one card where time sharing takes four."""
    places = [one.spot.place for one in placed(PUBLISHED, 1) if one.spot]

    assert len(places) == 8
    assert sum(place.area for place in places) == 98_400
    assert not any(one.meets(other) for i, one in enumerate(places) for other in places[:i])


def test_what_finds_no_place_is_told_and_the_rest_is_placed(capsys: pytest.CaptureFixture[str]) -> None:
    """The larger one has the card; exit status 1."""
    assert pack(("1000x10", "1000x95")) == 1

    shown = capsys.readouterr().out
    assert "1000 x 10 %  no place" in shown
    assert "1 of 2 placed, 95 % of 1 card" in shown


def test_tags_stay_together_where_that_is_asked_for() -> None:
    """The red ones on one card, the others elsewhere while there is room."""
    wanted = [*parsed("3:300x50@red"), *parsed("2:400x100")]
    cards = {(one.tag, one.spot.card) for one in placed(wanted, 2, stay=True) if one.spot}

    assert cards == {("red", "card-002"), (None, "card-001")}


@pytest.mark.parametrize("text", ["400", "0x50", "400x101", "1001x1", "x", "2:400x24@", "-1:4x4"])
def test_what_is_no_slice_is_told_with_its_bounds(text: str) -> None:
    """Form, or sides."""
    with pytest.raises(UsageError, match="slice"):
        parsed(text)


def test_none_and_too_many_are_refused() -> None:
    """Between one and a thousand."""
    with pytest.raises(UsageError, match="1001 slices: from 1 to 1000"):
        pack(("1001:1x1",))
    with pytest.raises(UsageError, match="--cards 0"):
        pack(("1x1",), cards=0)
