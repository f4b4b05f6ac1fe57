"""Kubernetes quantities: exact, and rounded in the direction that cannot oversell."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.quantity import MIB, MILLI, ONE, BadQuantity, ceil_in, floor_in, parse

ROWS = [
    ("0", 0),
    ("1", 1),
    (3, 3),
    ("500m", Fraction(1, 2)),
    ("1.5", Fraction(3, 2)),
    (".5", Fraction(1, 2)),
    ("2.", 2),
    ("100n", Fraction(1, 10**7)),
    ("7u", Fraction(7, 10**6)),
    ("3840Mi", 3840 * 1024**2),
    ("1Ki", 1024),
    ("2Gi", 2 * 1024**3),
    ("1.5Ti", 3 * 1024**4 // 2),
    ("1Pi", 1024**5),
    ("1Ei", 1024**6),
    ("128974848", 128974848),
    ("129e6", 129_000_000),
    ("12E3", 12_000),
    ("1E", 10**18),
    ("123M", 123_000_000),
    ("1k", 1000),
    ("-5", -5),
    ("+5m", Fraction(1, 200)),
    ("1e-3", Fraction(1, 1000)),
]


@pytest.mark.parametrize(("text", "value"), ROWS, ids=[str(row[0]) for row in ROWS])
def test_value(text: str | int, value: int | Fraction) -> None:
    """Every form of the notation has its exact value."""
    assert Fraction(parse(text), ONE) == value


def test_what_is_finer_than_a_billionth_is_rounded_up() -> None:
    """As Kubernetes itself keeps it."""
    assert parse("0.0000000001") == parse("1e-12") == 1


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1gi", "1KiB", "1e", "0x10", "NaN", "1e9999", "1,5", "½"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """Anything else is an error, never zero."""
    with pytest.raises(BadQuantity):
        parse(text)


def test_capacity_rounds_down_and_use_rounds_up() -> None:
    """1.9 milli-cores are 1 to sell and 2 used; 1.5 MiB are 1 and 2."""
    assert (floor_in(parse("1900u"), MILLI), ceil_in(parse("1900u"), MILLI)) == (1, 2)
    assert (floor_in(parse("1536Ki"), MIB), ceil_in(parse("1536Ki"), MIB)) == (1, 2)
    assert ceil_in(parse("1"), MILLI) == floor_in(parse("1"), MILLI) == 1000


@given(st.integers(0, 10**9), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi"]))
def test_rounding_never_differs_by_more_than_one(number: int, suffix: str) -> None:
    """Down and up enclose the exact value within one unit."""
    value = parse(f"{number}{suffix}")

    low, high = floor_in(value, MIB), ceil_in(value, MIB)

    assert low * MIB <= value <= high * MIB
    assert high - low <= 1
