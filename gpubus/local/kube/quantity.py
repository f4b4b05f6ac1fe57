"""Kubernetes quantities ("500m", "2", "1Gi") as integers of thousandths."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

__all__ = ["is_whole", "milli"]

_FORM = re.compile(r"^([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
_BINARY = {f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGTPE")}
_DECIMAL = {letter: 1000 ** (power + 1) for power, letter in enumerate("kMGTPE")}
_THOUSANDTHS = {"": 1000, "m": 1, **{k: v * 1000 for k, v in (_BINARY | _DECIMAL).items()}}


def milli(quantity: object) -> int:
    """Thousandths of a quantity, rounded up as the server does: "500m" -> 500, "1" -> 1000, "1Ki" -> 1_024_000.

    ValueError for anything else. No float takes part.
    """
    found = _FORM.match(str(quantity))
    if found is None:
        raise ValueError(f"not a quantity: {quantity!r}")
    exact = Decimal(found[1]) * _THOUSANDTHS[found[2] or ""]
    return int(exact.to_integral_value(rounding=ROUND_CEILING))


def is_whole(quantity: object) -> bool:
    """Whether it is a whole number of things (what an extended resource must be)."""
    return milli(quantity) % 1000 == 0
