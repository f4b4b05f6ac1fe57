"""What people type, as the integers that messages hold: memory in MiB, shares in thousandths, times in seconds.

What flows in: one word of a command line. What flows out: an exact integer (or seconds), or `BadQuantity` that names
the word, the bound and how to write it. Nothing is guessed and nothing is dropped: a unit that can be read in two ways
(`2000mb`: milli or mega? bits or bytes?) is refused with both ways spelt out.

    memory   8000 and 8000Mi  MiB as they stand          8Gi, 1.5Gi, 1Ti  powers of 1024, exact
             2G, 2000M, 1T    powers of 1000, as Kubernetes has them, rounded up to a whole MiB: 2G = 1908 MiB
    share    500              thousandths                0.5, 1.0, 50%  of one card, exact to a thousandth
    time     90, 90s, 5m, 2h, 1d
"""

from __future__ import annotations

import re
from fractions import Fraction

from contracts.units import MAX_MEMORY_MIB, WHOLE_CARD

_MIB = 1024 * 1024
_BINARY = {"": _MIB, "Ki": 1024, "Mi": _MIB, "Gi": 1024**3, "Ti": 1024**4}
_DECIMAL = {"k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([A-Za-z%]*)")


class BadQuantity(ValueError):  # noqa: N818 - named by what is the case
    """A word that is no quantity of its kind: `value` as typed, `bound` is what would be accepted."""

    def __init__(self, value: str, bound: str, why: str) -> None:
        super().__init__(f"{value!r}: {why}; {bound}")
        self.value = value
        self.bound = bound


_MEMORY_FORMS = "write 8000 or 8000Mi (MiB), 8Gi, 1.5Gi, or 8G (powers of 1000, rounded up to a whole MiB)"
_SHARE_FORMS = "write thousandths (500, 1000 = a whole card), a fraction (0.5, 1.0) or a percentage (50%)"
_TIME_FORMS = "write 90, 90s, 5m, 2h or 1d"


def memory_mib(text: str) -> int:
    """MiB of a memory quantity.

    Raises:
        BadQuantity: no number, an ambiguous unit, not a whole MiB in a binary unit, or out of bounds.
    """
    number, unit = _split(text, _MEMORY_FORMS)
    if unit in _BINARY:
        exact = number * _BINARY[unit] / _MIB
        if exact.denominator != 1:
            raise BadQuantity(text, _MEMORY_FORMS, f"{float(exact):g} MiB is not a whole number of MiB")
        mib = int(exact)
    elif unit in _DECIMAL:
        mib = -(-number * _DECIMAL[unit] // _MIB)
    else:
        raise BadQuantity(text, _memory_hint(text, unit), f"unit {unit!r} can be read in more than one way")
    if mib > MAX_MEMORY_MIB:
        raise BadQuantity(text, f"at most {MAX_MEMORY_MIB} MiB", f"{mib} MiB is too much")
    return mib


def _memory_hint(text: str, unit: str) -> str:
    letter = unit[:1].upper()
    if letter not in {"K", "M", "G", "T"}:
        return _MEMORY_FORMS
    number = text.strip()[: -len(unit)]
    decimal = "k" if letter == "K" else letter
    return f"write {number}{letter}i for powers of 1024 or {number}{decimal} for powers of 1000"


def share_milli(text: str) -> int:
    """Thousandths of one card.

    Raises:
        BadQuantity: not exact to a thousandth, outside 1..1000, or `1`, which could be one card or one thousandth.
    """
    number, unit = _split(text, _SHARE_FORMS)
    if text.strip() == "1":
        raise BadQuantity(text, "write 1.0 or 1000 for a whole card", "could be one card or one thousandth")
    if unit == "%":
        exact = number * WHOLE_CARD / 100
    elif unit == "":
        exact = number * WHOLE_CARD if "." in text else number
    else:
        raise BadQuantity(text, _SHARE_FORMS, f"{unit!r} is no unit of a share")
    if exact.denominator != 1:
        raise BadQuantity(text, _SHARE_FORMS, "not a whole number of thousandths of a card")
    if not 1 <= exact <= WHOLE_CARD:
        raise BadQuantity(text, f"between 1 and {WHOLE_CARD} thousandths", f"{int(exact)} thousandths")
    return int(exact)


def seconds(text: str) -> float:
    """Seconds of a length of time.

    Raises:
        BadQuantity: no number or no unit of time.
    """
    number, unit = _split(text, _TIME_FORMS)
    if unit not in _SECONDS:
        raise BadQuantity(text, _TIME_FORMS, f"{unit!r} is no unit of time")
    return float(number * _SECONDS[unit])


def _split(text: str, forms: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise BadQuantity(text, forms, "not a number with a unit")
    return Fraction(match[1]), match[2]
