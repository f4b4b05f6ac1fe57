"""From samples to one statement about a period, and from counters to rates. Pure, integers, unknown is never zero.

In: what the provider sampled during the period, in order, and the cards we hold. Out: one `CardUsage` for each of those
cards, in their order, also for those that told nothing.

    compute, power      mean of the samples that know, rounded half up (30, unknown, 35 -> 33)
    memory              the peak: a reader sizes by it, and a mean hides what would not have fitted
    temperature         the newest that is known
    processes           those of the newest sample that could list them, each with mean and peak over its samples

Counters (CPU time) have two rules: the first sample has no rate, and a counter that went back was reset and has no rate
either. Both are unknown; a difference below zero never becomes a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from contracts.units import CardUuid
from contracts.usage import CardUsage, ProcessUsage

Sample = tuple[CardUsage, ...]


def over_period(cards: Iterable[CardUuid], samples: Sequence[Sample]) -> tuple[CardUsage, ...]:
    """What each card did over the samples of one period."""
    readings: dict[CardUuid, list[CardUsage]] = {}
    for usage in (usage for sample in samples for usage in sample):
        readings.setdefault(usage.uuid, []).append(usage)
    return tuple(_card(uuid, readings.get(uuid, ())) for uuid in cards)


def mean(values: Iterable[int | None]) -> int | None:
    """The mean of those that are known, rounded half up; None when none is."""
    known = [value for value in values if value is not None]
    return (2 * sum(known) + len(known)) // (2 * len(known)) if known else None


def peak(values: Iterable[int | None]) -> int | None:
    """The largest of those that are known; None when none is."""
    return max((value for value in values if value is not None), default=None)


def newest(values: Sequence[int | None]) -> int | None:
    """The last of those that are known; None when none is."""
    return next((value for value in reversed(values) if value is not None), None)


def rise(before: int | None, after: int | None) -> int | None:
    """How far a counter went; None for the first sample, for a missing one and after a reset."""
    return after - before if before is not None and after is not None and after >= before else None


def _card(uuid: CardUuid, readings: Sequence[CardUsage]) -> CardUsage:
    return CardUsage(
        uuid=uuid,
        compute_percent=mean(r.compute_percent for r in readings),
        memory_used_mib=peak(r.memory_used_mib for r in readings),
        power_w=mean(r.power_w for r in readings),
        temperature_c=newest([r.temperature_c for r in readings]),
        sm_clock_mhz=mean(r.sm_clock_mhz for r in readings),
        memory_clock_mhz=mean(r.memory_clock_mhz for r in readings),
        ecc_corrected=newest([r.ecc_corrected for r in readings]),
        ecc_uncorrected=newest([r.ecc_uncorrected for r in readings]),
        processes=_processes([r.processes for r in readings]),
    )


def _processes(listings: Sequence[tuple[ProcessUsage, ...] | None]) -> tuple[ProcessUsage, ...] | None:
    known = [listing for listing in listings if listing is not None]
    if not known:
        return None
    seen: dict[int, list[ProcessUsage]] = {}
    for process in (process for listing in known for process in listing):
        seen.setdefault(process.pid, []).append(process)
    return tuple(_process(present.pid, seen[present.pid]) for present in known[-1])


def _process(pid: int, seen: Sequence[ProcessUsage]) -> ProcessUsage:
    return ProcessUsage(
        pid=pid,
        memory_mib=peak(p.memory_mib for p in seen),
        compute_percent=mean(p.compute_percent for p in seen),
    )
