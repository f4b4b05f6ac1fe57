"""Load over time: samples in, averages out.

A sample speaks for the time from its reading to the next one that succeeds, and for `SPEAKS_MS` at most; what no sample
speaks for is a gap, and a gap is never zero load. So a source that fails every other time leaves none. The average of a
window is weighted by time:

    10 calls at 0 s, 20 at 4 s, asked at 6 s over 6 s:    (10 x 4 s + 20 x 2 s) / 6 s = 13.333 calls, 6 s covered
    10 calls at 0 s, then nothing, asked at 60 s:         10 calls, 6 s covered of 60
    the same, asked at 60 s over 6 s:                     not known

All in thousandths of a call (or of a call per second), rounded up, so that load that is there is never called none.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.messages import Value

SPEAKS_MS = 6_000
"""Three readings of 2 s may be lost before there is a gap."""
FULL_MILLI = 800
"""A window is full when so many thousandths of it are covered."""
MAX_SAMPLES = 4_096
"""Readings kept of one function; a window of an hour at one a second."""


class Sample(Value, frozen=True, kw_only=True):
    """One reading of the load."""

    at_ms: int
    load_milli: int | None
    """None = it failed."""


class Samples(Value, frozen=True, kw_only=True):
    """Readings of one function that succeeded, oldest first, times strictly growing."""

    items: tuple[Sample, ...] = ()
    since_ms: int | None = None
    """When the first reading was tried."""


class Average(Value, frozen=True, kw_only=True):
    """Load over a window; None = no sample speaks for any of it."""

    load_milli: int | None
    covered_ms: int


def add(samples: Samples, sample: Sample, keep_ms: int) -> Samples:
    """With one more reading, without those that ended `keep_ms` ago.

    A reading that is not newer than the last is dropped.
    """
    since_ms = sample.at_ms if samples.since_ms is None else samples.since_ms
    if sample.load_milli is None or (samples.items and sample.at_ms <= samples.items[-1].at_ms):
        return Samples(items=samples.items, since_ms=since_ms)
    kept = [s for s in samples.items if s.at_ms > sample.at_ms - keep_ms - SPEAKS_MS]
    return Samples(items=(*kept, sample)[-MAX_SAMPLES:], since_ms=since_ms)


def average(samples: Samples, now_ms: int, window_ms: int) -> Average:
    """Load over the last `window_ms`, weighted by time."""
    weighed = covered = 0
    for sample, end_ms in _spans(samples, now_ms, now_ms - window_ms):
        length = max(0, end_ms - max(sample.at_ms, now_ms - window_ms))
        weighed += (sample.load_milli or 0) * length
        covered += length
    if covered:
        return Average(load_milli=-(-weighed // covered), covered_ms=covered)
    return Average(load_milli=_just_now(samples, now_ms), covered_ms=0)


def fills(found: Average, window_ms: int) -> bool:
    """Whether an average of the window says enough to take replicas away."""
    return found.covered_ms * 1000 >= window_ms * FULL_MILLI


def silent_ms(samples: Samples, now_ms: int) -> int:
    """How long nothing has been read; 0 when nothing was ever tried."""
    known = samples.items[-1].at_ms if samples.items else samples.since_ms
    return 0 if known is None else max(0, now_ms - known)


def _just_now(samples: Samples, now_ms: int) -> int | None:
    """The very first reading, which has not lasted yet."""
    newest = samples.items[-1] if samples.items else None
    return newest.load_milli if newest is not None and newest.at_ms == now_ms else None


def _spans(samples: Samples, now_ms: int, from_ms: int) -> Iterator[tuple[Sample, int]]:
    """Each sample that speaks after `from_ms`, newest first, and when it ceases to."""
    next_ms = now_ms
    for sample in reversed(samples.items):
        if sample.at_ms + SPEAKS_MS <= from_ms:
            return
        yield sample, min(next_ms, sample.at_ms + SPEAKS_MS)
        next_ms = sample.at_ms
