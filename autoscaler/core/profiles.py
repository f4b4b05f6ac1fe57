"""What a replica does on which slice: calls per second by card model and share, given or measured.

In: rows (`contracts.workloads.Profile`) that the function brings along or that were measured, what the function asks
for. Out: what one replica carries where it is, and the slice with the most calls per thousandth of a card (the
configuration rule of FaST-GShare, ICPP 2023, for slices of time). Rows of one card model say nothing about another:
without a row there is no answer.

    250 thousandths serve 30/s, 500 serve 50/s: 30/250 > 50/500, so the first is the cheaper. Where a call may take
    40 ms, and the first needs 60 ms for it and the second 35, it is the second.

All in thousandths of a call per second; fractions are compared by cross-multiplication.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from contracts.requests import GpuAsk
from contracts.workloads import Function, Profile

LEAST_CALLS = 100
"""A rate measured from fewer says little."""
MAX_PROFILES = 64


def usable(profiles: Iterable[Profile], model: str, latency_ms: int | None = None) -> tuple[Profile, ...]:
    """Rows of a card model that keep the latency; a latency that is not known keeps none. In a fixed order."""
    kept = [row for row in profiles if row.model == model and _quick(row, latency_ms)]
    return tuple(sorted(kept, key=lambda row: (row.share_milli, -row.rate_milli)))


def most_efficient(profiles: Sequence[Profile]) -> Profile | None:
    """Most calls per thousandth of a card; of equals the smaller slice: it fits into more gaps."""
    best: Profile | None = None
    for row in sorted(profiles, key=lambda row: row.share_milli):
        if best is None or row.rate_milli * best.share_milli > best.rate_milli * row.share_milli:
            best = row
    return best


def model_of(function: Function) -> str | None:
    """The card model that slices are chosen for: the one that is asked for, or that all rows are of."""
    named = function.gpu.models or tuple(sorted({row.model for row in function.scaling.profiles}))
    return named[0] if len(named) == 1 else None


def cheapest(function: Function) -> GpuAsk:
    """What a new replica asks for: as the function says, or the cheapest slice that its rows know.

    One whose rows name several models without saying which, or none that is quick enough, asks as it stands.
    """
    scaling, model = function.scaling, model_of(function)
    if scaling.slices == "as-asked" or model is None:
        return function.gpu
    row = most_efficient(usable(scaling.profiles, model, scaling.latency_ms))
    if row is None:
        return function.gpu
    return msgspec.structs.replace(function.gpu, share_milli=row.share_milli, models=(model,))


def capacity_of(profiles: Iterable[Profile], model: str, share_milli: int) -> int | None:
    """What one replica on this very slice serves (thousandths of a call per second); None = nobody has measured it."""
    here = [row.rate_milli for row in profiles if (row.model, row.share_milli) == (model, share_milli)]
    return min(here, default=None)


def capacity_on(profiles: Collection[Profile], slices: Iterable[tuple[str, int]]) -> int | None:
    """What each of several replicas serves at least; None where one of them is on a slice that nobody has measured."""
    found = [capacity_of(profiles, model, share_milli) for model, share_milli in sorted(set(slices))]
    known = [rate for rate in found if rate is not None]
    return min(known) if found and len(known) == len(found) else None


def learned(profiles: Iterable[Profile], new: Profile) -> tuple[Profile, ...]:
    """With a new measurement in the place of the older one of the same slice, if there is one; the oldest make room."""
    here = (new.model, new.share_milli)
    return (*(row for row in profiles if (row.model, row.share_milli) != here), new)[-MAX_PROFILES:]


def measured_milli(answered: int, busy_ms: int) -> int | None:
    """Calls per second of one replica at full load; None = too few calls to tell.

    Args:
        answered: calls in the time.
        busy_ms: time during which a replica had as many calls as it may have, summed over replicas.
    """
    return None if answered < LEAST_CALLS or busy_ms <= 0 else max(1, answered * 1_000_000 // busy_ms)


def _quick(row: Profile, latency_ms: int | None) -> bool:
    return latency_ms is None or (row.latency_ms is not None and row.latency_ms <= latency_ms)
