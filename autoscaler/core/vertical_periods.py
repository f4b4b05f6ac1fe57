"""Times and numbers that people wrote, read with patience: what cannot be read is the default, and said. Pure.

In: `2s`, `500ms`, `5min`, `1.5 m`; the text of a pod's annotation. Out: the number, and a warning or an empty string.
A text that one person mistyped must neither stop the autoscaler nor be obeyed as something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from contracts.messages import Value

TOKENS_KEY = "kuauto.token"
"""KuScale's annotation: tokens a second that a pod may spend, or `auto` for what it was sold."""
AUTO = "auto"
SHORTEST_MS, LONGEST_MS = 100, 3_600_000
MOST_TOKENS = 1_000_000

_UNITS_MS = {"ms": 1, "": 1000, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_INTERVAL = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([a-z]*)\s*")


class Read(Value, frozen=True, kw_only=True):
    """What was understood; `warning` says what was not."""

    number: int | None
    warning: str = ""


def interval_ms(text: str, default_ms: int) -> Read:
    """Milliseconds, rounded down; a bare number is seconds."""
    match = _INTERVAL.fullmatch(text)
    unit = _UNITS_MS.get(match.group(2)) if match else None
    if match is None or unit is None:
        known = ", ".join(name for name in _UNITS_MS if name)
        return Read(
            number=default_ms, warning=f"{text[:40]!r} is no interval like 2s ({known}); {default_ms} ms is used"
        )
    found = int(Fraction(match.group(1)) * unit)
    if not SHORTEST_MS <= found <= LONGEST_MS:
        bounds = f"between {SHORTEST_MS} and {LONGEST_MS} ms"
        return Read(number=default_ms, warning=f"{text[:40]!r} is not {bounds}; {default_ms} ms is used")
    return Read(number=found)


def tokens(annotations: Mapping[str, str]) -> Read | None:
    """A pod's own income a second; None = its owner asked for nothing, a number None = as it was sold."""
    text = annotations.get(TOKENS_KEY)
    if text is None:
        return None
    if text == AUTO:
        return Read(number=None)
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_TOKENS:
        return Read(number=int(text))
    return Read(number=None, warning=f"{TOKENS_KEY}={text[:40]!r} is no number from 1 to {MOST_TOKENS}; auto is used")
