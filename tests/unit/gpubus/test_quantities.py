"""Quantities as people type them: exact, or refused with the way to write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubus.quantities import BadQuantity, memory_mib, seconds, share_milli


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("8000Mi", 8000),
        ("8000", 8000),
        ("0", 0),
        (" 8Gi ", 8192),
        ("1.5Gi", 1536),
        ("1Ti", 1024 * 1024),
        ("2048Ki", 2),
        ("2G", 1908),  # 2e9 / 1048576 = 1907.35, rounded up
        ("2000M", 1908),
        ("1048576k", 1000),  # 1048576000 / 1048576
        ("1k", 1),  # less than a MiB is not nothing
        ("16Ti", 16 * 1024 * 1024),
    ],
)
def test_memory_is_parsed_to_whole_mib(text: str, mib: int) -> None:
    """Binary units are exact, decimal ones are rounded up to a whole MiB."""
    assert memory_mib(text) == mib


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2000mb", "2000Mi"),
        ("80GB", "80Gi"),
        ("8gi", "8Gi"),
        ("8m", "8M"),
        ("8K", "8Ki"),
        ("8x", "8Gi"),
        ("", "8Gi"),
        ("-1", "8Gi"),
        ("1e3", "8Gi"),
        ("nan", "8Gi"),
        ("1000Ki", "MiB"),  # 0.98 MiB
        ("0.1Mi", "MiB"),
        ("17Ti", "at most"),
        ("8 Gi", "8Gi"),
        ("٣Gi", "8Gi"),  # digits of other scripts
    ],
)
def test_memory_that_could_mean_two_things_is_refused_with_the_way_to_write_it(text: str, hint: str) -> None:
    """Never ignored, never guessed."""
    with pytest.raises(BadQuantity) as caught:
        memory_mib(text)

    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "milli"),
    [("0.5", 500), ("500", 500), ("50%", 500), ("1.0", 1000), ("1000", 1000), ("0.001", 1), ("33.3%", 333), ("2", 2)],
)
def test_a_share_is_thousandths_a_fraction_or_a_percentage(text: str, milli: int) -> None:
    """Three spellings of one number."""
    assert share_milli(text) == milli


@pytest.mark.parametrize(
    "text",
    ["1", "0", "0.0", "1001", "1.5", "101%", "0%", "-0.5", "nan", "abc", "", "1e309", "0.3333", "500m", "0.0001"],
)
def test_a_share_out_of_bounds_or_ambiguous_is_refused(text: str) -> None:
    """`1` is refused because it could be a whole card or a thousandth of one."""
    with pytest.raises(BadQuantity):
        share_milli(text)


@given(st.integers(1, 1000))
def test_every_share_survives_its_three_spellings(milli: int) -> None:
    """No rounding on the way, whatever the number: there is no float in it."""
    whole, rest = divmod(milli, 1000)
    percent, tenth = divmod(milli, 10)

    assert {share_milli(f"{whole}.{rest:03d}"), share_milli(f"{percent}.{tenth}%")} == {milli}


@pytest.mark.parametrize(
    ("text", "wanted"), [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400), ("0.5s", 0.5)]
)
def test_times_have_units(text: str, wanted: float) -> None:
    """Seconds unless said otherwise."""
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["5min", "", "-5", "soon", "1w"])
def test_times_that_do_not_parse_are_refused(text: str) -> None:
    """No silent default."""
    with pytest.raises(BadQuantity):
        seconds(text)
