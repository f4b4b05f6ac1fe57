"""Kubernetes quantities as integers: `500m`, `3840Mi`, `1.5`, `2e3`, `107374182400`.

Exact: a quantity is a ratio of integers until it is rounded, and the caller says in which direction, because capacity
rounds down and use rounds up. No float on the way.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_FORM = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_SUFFIX = {
    "": Fraction(1),
    **{name: Fraction(1, 1000**power) for power, name in enumerate("mun", 1)},
    **{name: Fraction(1000**power) for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Fraction(1024**power) for power, name in enumerate("KMGTPE", 1)},
}
MILLI = Fraction(1, 1000)
MIB = Fraction(1024 * 1024)


class BadQuantity(ValueError):  # noqa: N818 - named by what is the case
    """Not a Kubernetes quantity."""


@lru_cache(maxsize=4096)
def parse(text: str | int) -> Fraction:
    """The exact value.

    Raises:
        BadQuantity: the text is not in Kubernetes' form.
    """
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise BadQuantity(f"{text!r} is not a quantity")
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits) * _SUFFIX[suffix or ""]
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    return -value if sign == "-" else value


def floor_in(value: Fraction, unit: Fraction) -> int:
    """Whole units that certainly fit: for capacity."""
    return value // unit


def ceil_in(value: Fraction, unit: Fraction) -> int:
    """Whole units that certainly suffice: for use."""
    return -(-value // unit)
