"""The load of one function at one moment, from what workers report and what the bus holds.

In: the last report of each hot worker, how many calls wait and how many are delivered but not answered. Out: calls in
thousandths, or None when the bus does not answer. The bus is believed before the workers: it counts what it delivered,
so a worker that reports too much or too little, and reports that are lost, change nothing.

Replicas that are ready for less than the warm-up are slow: they hold each call for longer, and by that pretend a load.
Each of them counts as at most the average of the seasoned ones. Only where the bus does not count what it delivered,
workers are summed, and one that is silent counts as that average:

    seasoned 2 and 2, one warming that holds 9, one silent, 3 calls waiting:    2 + 2 + min(9, 2) + 2 + 3 = 11 calls
    the same, 14 calls delivered:                                                    14 - (9 - 2) + 3 = 10 calls
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.messages import Value

FRESH_MS = 5_000
"""Reports come each second; after five lost ones a worker is silent."""
CALL = 1000
"""Thousandths of one call."""


class Report(Value, frozen=True, kw_only=True):
    """What a hot worker said last."""

    replica: str
    at_ms: int
    in_flight: int
    hot_since_ms: int
    """When it became ready, or was promoted."""


class Counter(Value, frozen=True, kw_only=True):
    """Calls that have arrived since the beginning, for example the last sequence of a function's subject."""

    at_ms: int
    total: int


def observe(
    reports: Iterable[Report],
    *,
    now_ms: int,
    hot_ready: int,
    waiting: int | None,
    outstanding: int | None,
    concurrency: int,
    warmup_ms: int,
    fresh_ms: int = FRESH_MS,
) -> int | None:
    """Calls in progress and waiting, in thousandths; None = the bus does not say, whatever the workers do.

    Args:
        reports: of hot workers; one that is older than `fresh_ms` counts as silent.
        now_ms: the clock of the reports.
        hot_ready: replicas that serve, silent ones among them.
        waiting: calls that are kept and not delivered.
        outstanding: calls that are delivered and not answered; None = only the workers know.
        concurrency: a worker cannot work on more; what it says beyond is not believed.
        warmup_ms: how long a replica is slow.
        fresh_ms: see `reports`.
    """
    if waiting is None:
        return None
    fresh = [report for report in reports if now_ms - report.at_ms <= fresh_ms]
    old = [_calls(report, concurrency) for report in fresh if now_ms - report.hot_since_ms >= warmup_ms]
    new = [_calls(report, concurrency) for report in fresh if now_ms - report.hot_since_ms < warmup_ms]
    typical = _ceil_mean(old or new)
    pretended = sum(max(0, calls - typical) for calls in new) if old else 0
    told = sum(old) + sum(new) + max(0, hot_ready - len(fresh)) * typical if fresh or not hot_ready else None
    working = told if outstanding is None else outstanding * CALL
    return None if working is None else waiting * CALL + max(0, working - pretended)


def rate_milli(before: Counter, after: Counter) -> int | None:
    """Arrivals per second in thousandths; None when the counter went back (it was made anew) or no time passed."""
    passed_ms = after.at_ms - before.at_ms
    if passed_ms <= 0 or after.total < before.total:
        return None
    return -(-(after.total - before.total) * CALL * 1000 // passed_ms)


def waiting_rate_milli(waiting: int, within_ms: int) -> int:
    """What calls that wait add to the rate, if they are to be answered within that time."""
    return -(-waiting * CALL * 1000 // max(1, within_ms))


def _calls(report: Report, concurrency: int) -> int:
    return max(0, min(report.in_flight, concurrency)) * CALL


def _ceil_mean(values: list[int]) -> int:
    return -(-sum(values) // len(values)) if values else 0
