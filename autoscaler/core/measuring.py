"""How many calls a second a replica can answer, measured where it can do no more.

In: each report of a worker with the slice that it runs on, and how many calls wait. Out: rows for `profiles`. Time
counts while calls have waited at every look and the worker had as many as it may have in two reports that follow one
another: a replica that is not full says how much there was to do, not how much it can do. Replicas that are ready for
less than the warm-up are slow and count for nothing.

    report at 3 s: 4 of 4 in hand, 20 answered; report at 4 s: 4 of 4, 50 answered, calls waited: 30 calls in 1,000 ms
    the same, and at 3.5 s nothing waited: nothing
    after 100 such calls in 3,300 ms: 30,303 thousandths of a call per second, and counting begins anew
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from autoscaler.core.profiles import LEAST_CALLS, learned, measured_milli
from contracts.functions import WorkerReport
from contracts.messages import Value
from contracts.workloads import Profile

Slice = tuple[str, int]
"""Card model, thousandths of it."""


class Last(Value, frozen=True, kw_only=True):
    """The last report of a replica."""

    worker: str
    at_ms: int
    done: int
    full: bool


class Tally(Value, frozen=True, kw_only=True):
    """What was counted on one kind of slice."""

    answered: int = 0
    busy_ms: int = 0


class Meter(Value, frozen=True, kw_only=True):
    """One function's."""

    profiles: tuple[Profile, ...] = ()
    """Given ones, and those measured here in their place."""
    last: Mapping[str, Last] = {}
    tallies: Mapping[Slice, Tally] = {}
    no_wait_ms: int | None = None
    """When a look last found that nobody waits, or did not learn it. None = no look yet."""


def begin(given: tuple[Profile, ...], measured: tuple[Profile, ...]) -> Meter:
    """At the start: what the function brings along, with what was measured before us in its place."""
    profiles = given
    for row in measured:
        profiles = learned(profiles, row)
    return Meter(profiles=profiles)


def looked(meter: Meter, waiting: int | None, now_ms: int) -> Meter:
    """After a look at the queue."""
    return meter if waiting and meter.no_wait_ms is not None else msgspec.structs.replace(meter, no_wait_ms=now_ms)


def reported(meter: Meter, report: WorkerReport, on: Slice | None, *, now_ms: int, seasoned: bool) -> Meter:
    """After a report of a replica on that slice; None = it is not known where it runs."""
    before = meter.last.get(report.replica)
    full = seasoned and report.phase == "ready" and report.in_flight >= report.limit
    now = Last(worker=report.worker, at_ms=now_ms, done=report.done, full=full)
    meter = msgspec.structs.replace(meter, last={**meter.last, report.replica: now})
    if on is None or before is None or not _counts(meter, before, now):
        return meter
    return _counted(meter, on, now.done - before.done, now.at_ms - before.at_ms)


def without(meter: Meter, gone: frozenset[str]) -> Meter:
    """Without replicas that are no more."""
    return msgspec.structs.replace(meter, last={k: v for k, v in meter.last.items() if k not in gone})


def _counts(meter: Meter, before: Last, now: Last) -> bool:
    waited = meter.no_wait_ms is not None and meter.no_wait_ms < before.at_ms
    return waited and before.worker == now.worker and before.full and now.full and now.done >= before.done


def _counted(meter: Meter, on: Slice, answered: int, took_ms: int) -> Meter:
    had = meter.tallies.get(on, Tally())
    tally = Tally(answered=had.answered + answered, busy_ms=had.busy_ms + took_ms)
    rate_milli = measured_milli(tally.answered, tally.busy_ms) if tally.answered >= LEAST_CALLS else None
    if rate_milli is None:
        return msgspec.structs.replace(meter, tallies={**meter.tallies, on: tally})
    row = Profile(model=on[0], share_milli=on[1], rate_milli=rate_milli)
    tallies = {key: value for key, value in meter.tallies.items() if key != on}
    return msgspec.structs.replace(meter, tallies=tallies, profiles=learned(meter.profiles, row))
