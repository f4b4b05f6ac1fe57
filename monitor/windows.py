"""Counters to use, and use to averages: the arithmetic of one resource over time, in integers. Pure.

In: what a counter of busy time stood at, and when (monotonic). Out: thousandths of one core or card.

    use        1000 × (a - a₀) / (t - t₀)                  over the last period
    average    (7 × average + use) / 8                     the newest has one eighth; what is 5 periods old, half
    increment  (a[n] - a[n-w]) / w, rounded down           the mean rise a sample over the last w intervals

The formulas are those of KuScale's monitor (Konkuk University), which works on the wall clock and on unsigned
counters, with the repairs that its readers need:

    first sample     has no use, and the first use *is* the average (KuScale's keeps an eighth of garbage)
    counter reset    the interval has no use and leaves the average alone (there: 2^64 underflows to a huge use)
    no time between  no use; time that goes back cannot be, as it is monotonic, and counts as none
    history          `increment` is given what is kept; nothing here grows

Averages carry three more digits than they show, or 7/8 of a small number would never reach zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

WHOLE_MILLI = 1000
_FINE = 1000
"""Digits that an average carries beyond thousandths."""
_OLD, _ALL = 7, 8


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A counter of busy nanoseconds at one monotonic time."""

    at_ns: int
    busy_ns: int


class Averaged(msgspec.Struct, frozen=True, kw_only=True):
    """The use of the last interval and the running mean; None = nothing is known yet."""

    used_milli: int | None = None
    fine_average: int | None = None
    """Millionths."""

    @property
    def average_milli(self) -> int | None:
        """Thousandths, rounded half up."""
        return None if self.fine_average is None else (2 * self.fine_average + _FINE) // (2 * _FINE)


def use(before: Mark | None, after: Mark | None) -> int | None:
    """Thousandths of one core (or card) between two marks, rounded half up; several cores are more than 1000."""
    if before is None or after is None:
        return None
    elapsed, busy = after.at_ns - before.at_ns, after.busy_ns - before.busy_ns
    if elapsed <= 0 or busy < 0:
        return None
    return (2 * WHOLE_MILLI * busy + elapsed) // (2 * elapsed)


def averaged(before: Averaged, used_milli: int | None) -> Averaged:
    """One more interval; one without use says nothing about the mean."""
    if used_milli is None:
        return msgspec.structs.replace(before, used_milli=None)
    fine = used_milli * _FINE
    old = before.fine_average
    return Averaged(used_milli=used_milli, fine_average=fine if old is None else (_OLD * old + fine) // _ALL)


def increment(counter: Sequence[int], window: int) -> int:
    """Mean rise a sample over the last `window` intervals, rounded down; 0 of a single sample, of none, of window 0.

    An interval in which the counter went back is left out on both sides of the division.
    """
    intervals = min(window, len(counter) - 1)
    if intervals <= 0:
        return 0
    last = counter[-intervals - 1 :]
    rises = [b - a for a, b in pairwise(last) if b >= a]
    return sum(rises) // len(rises) if rises else 0
