"""What a function can do on which slice: throughput at points of share × partition, given or measured.

In: points (card model, thousandths of time, percent of the multiprocessors, calls per second, latency). Out: the slice
with the most calls per area, and which slices to add for so many more calls per second (the configuration rule of
FaST-GShare, ICPP 2023). Points of one card model say nothing about another: without a point there is no answer.

    250 ‰ x 24 % serve 30/s, 500 ‰ x 24 % serve 50/s: 30/6000 > 50/12000, so the first is the more efficient.
    100 more per second: three of the first (90/s), and for the other 10/s the slice that exceeds it least.

All in thousandths of a call per second; fractions are compared by cross-multiplication.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from contracts.messages import Value

DEAD_BAND_PERCENT = 20
"""Of the capacity: arrivals may differ so much from it before slices are added or taken away."""
LEAST_CALLS = 100
"""A rate measured from fewer says little."""


class Point(Value, frozen=True, kw_only=True):
    """One measurement of one function."""

    model: str
    share_milli: int
    partition_percent: int
    rate_milli: int
    """Calls per second in thousandths, at full load."""
    latency_ms: int | None = None
    """Of one call, p99; None = not known."""

    @property
    def area(self) -> int:
        """Thousandths of time times percent of multiprocessors; a whole card is 100,000."""
        return self.share_milli * self.partition_percent


class Slices(Value, frozen=True, kw_only=True):
    """So many replicas on slices of one size."""

    point: Point
    count: int


def usable(points: Iterable[Point], model: str, latency_ms: int | None = None) -> tuple[Point, ...]:
    """Points of a card model that keep the latency; a latency that is not known keeps none. In a fixed order."""
    kept = [point for point in points if point.model == model and point.rate_milli > 0 and _quick(point, latency_ms)]
    return tuple(sorted(kept, key=lambda p: (p.area, p.share_milli, p.partition_percent, -p.rate_milli)))


def most_efficient(points: Sequence[Point]) -> Point | None:
    """Most calls per area; of equals the smallest area (it fits into more gaps), then the smallest share."""
    best: Point | None = None
    for point in sorted(points, key=lambda p: (p.area, p.share_milli, p.partition_percent)):
        if best is None or point.rate_milli * best.area > best.rate_milli * point.area:
            best = point
    return best


def added(points: Sequence[Point], more_milli: int) -> tuple[Slices, ...]:
    """Slices that serve `more_milli` more calls per second; empty when there is no point, or nothing to add."""
    best = most_efficient(points)
    if best is None or more_milli <= 0:
        return ()
    whole, rest = divmod(more_milli, best.rate_milli)
    slices = [Slices(point=best, count=whole)] if whole else []
    if rest:
        slices.append(Slices(point=_for_the_rest(points, rest), count=1))
    return tuple(slices)


def difference(arrivals_milli: int, capacity_milli: int) -> int:
    """Calls per second to add (above 0) or take away (below): all of the difference, none within the dead band."""
    missing = arrivals_milli - capacity_milli
    return missing if abs(missing) * 100 > DEAD_BAND_PERCENT * capacity_milli else 0


def capacity_of(points: Iterable[Point], model: str, share_milli: int, partition_percent: int = 100) -> int | None:
    """What one replica on this very slice serves (thousandths of a call per second); None = nobody has measured it."""
    here = [
        p for p in points if (p.model, p.share_milli, p.partition_percent) == (model, share_milli, partition_percent)
    ]
    return min((point.rate_milli for point in here), default=None)


def learned(points: Iterable[Point], new: Point) -> tuple[Point, ...]:
    """With a new measurement in the place of the older one of the same slice, if there is one."""
    here = (new.model, new.share_milli, new.partition_percent)
    return (*(p for p in points if (p.model, p.share_milli, p.partition_percent) != here), new)


def measured_milli(answered: int, busy_ms: int) -> int | None:
    """Calls per second of a replica at full load, from seasoned replicas only; None = too few calls to tell.

    Args:
        answered: calls in the time.
        busy_ms: time during which the replica had as many calls as it may have.
    """
    return None if answered < LEAST_CALLS or busy_ms <= 0 else max(1, answered * 1_000_000 // busy_ms)


def _quick(point: Point, latency_ms: int | None) -> bool:
    return latency_ms is None or (point.latency_ms is not None and point.latency_ms <= latency_ms)


def _for_the_rest(points: Sequence[Point], rest_milli: int) -> Point:
    """The one that exceeds it least; of equals the smallest area. The most efficient one always does."""
    enough = [point for point in points if point.rate_milli >= rest_milli]
    return min(enough, key=lambda p: (p.rate_milli - rest_milli, p.area, p.share_milli, p.partition_percent))
