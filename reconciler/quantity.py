"""Kubernetes quantities as integers: `500m`, `3840Mi`, `1.5`, `2e3`, `107374182400`.

A quantity is kept in billionths, the finest that Kubernetes itself keeps (it rounds up what is finer), so that sums are
sums of integers. The caller says in which direction to round to larger units, because capacity rounds down and use
rounds up. No float on the way.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

ONE = 10**9
"""One unit (a core, a byte, a pod) in billionths."""
MILLI = ONE // 1000
MIB = 1024 * 1024 * ONE

_FORM = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_SUFFIX = {
    "": Fraction(1),
    **{name: Fraction(1, 1000**power) for power, name in enumerate("mun", 1)},
    **{name: Fraction(1000**power) for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Fraction(1024**power) for power, name in enumerate("KMGTPE", 1)},
}


class BadQuantity(ValueError):  # noqa: N818 - named by what is the case
    """Not a Kubernetes quantity."""


@lru_cache(maxsize=4096)
def parse(text: str | int) -> int:
    """The value in billionths.

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
    billionths = -(-value * ONE // 1)
    return -billionths if sign == "-" else billionths


def floor_in(billionths: int, unit: int) -> int:
    """Whole units that certainly fit: for capacity."""
    return billionths // unit


def ceil_in(billionths: int, unit: int) -> int:
    """Whole units that certainly suffice: for use."""
    return -(-billionths // unit)
