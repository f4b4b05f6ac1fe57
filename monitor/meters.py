"""Containers over time: from two looks at a cgroup to what a container did between them. Pure.

In: the meters of before, one look at each container, the monotonic time of the look, whose the pods are. Out: one
`ContainerUsage` for each, and the meters for the next time. Meters are made anew from what was found, so a container
that is gone leaves nothing behind, however many come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from contracts.units import MAX_MEMORY_MIB, CardUuid, RequestUid
from contracts.usage import CardUsage, ContainerUsage, SliceUsage
from monitor.attribution import Owner
from monitor.cgroups.stats import Limit, Reading
from monitor.cgroups.tree import Found
from monitor.usage import rise
from monitor.windows import WHOLE_MILLI, Averaged, Mark, averaged, use

MOST_CPU_MILLI = 10_000_000
_NS_PER_MS = 1_000_000


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """One container at its last look."""

    mark: Mark | None
    periods: int | None
    throttled_periods: int | None
    throttled_ns: int | None
    cpu: Averaged


Meters = Mapping[str, Meter]
"""By container id."""
Piece = tuple[CardUuid, RequestUid]
Averages = Mapping[Piece, Averaged]


def measured(
    before: Meters, found: Iterable[Found], owners: Mapping[str, Owner], *, at_ns: int
) -> tuple[tuple[ContainerUsage, ...], dict[str, Meter]]:
    """What each container of a pod of ours did since `before`, in the order of `found`; and the new meters."""
    usages: list[ContainerUsage] = []
    meters: dict[str, Meter] = {}
    for one in found:
        owner = owners.get(one.pod_uid)
        if owner is not None:
            old = before.get(one.container)
            meters[one.container] = meter(old, one.reading, at_ns)
            usages.append(_usage(one, owner, old, meters[one.container]))
    return tuple(usages), meters


def meter(old: Meter | None, reading: Reading, at_ns: int) -> Meter:
    """The next state of a container's meter."""
    mark = None if reading.cpu_ns is None else Mark(at_ns=at_ns, busy_ns=reading.cpu_ns)
    return Meter(
        mark=mark,
        periods=reading.periods,
        throttled_periods=reading.throttled_periods,
        throttled_ns=reading.throttled_ns,
        cpu=averaged(old.cpu if old else Averaged(), use(old.mark if old else None, mark)),
    )


def with_averages(before: Averages, cards: Iterable[CardUsage]) -> tuple[tuple[CardUsage, ...], dict[Piece, Averaged]]:
    """The cards with the running mean of each request's part, and the means for the next time: of these alone."""
    averages: dict[Piece, Averaged] = {}
    found = []
    for card in cards:
        slices = None if card.slices is None else tuple(_averaged(before, averages, card, one) for one in card.slices)
        found.append(card if slices is None else replace(card, slices=slices))
    return tuple(found), averages


def _averaged(before: Averages, after: dict[Piece, Averaged], card: CardUsage, one: SliceUsage) -> SliceUsage:
    key = (card.uuid, one.uid)
    used_milli = None if one.compute_percent is None else one.compute_percent * WHOLE_MILLI // 100
    after[key] = averaged(before.get(key, Averaged()), used_milli)
    return replace(one, average_milli=after[key].average_milli)


def _usage(one: Found, owner: Owner, old: Meter | None, new: Meter) -> ContainerUsage:
    reading = one.reading
    throttled_ns = rise(old.throttled_ns, new.throttled_ns) if old else None
    cpu_limited, cpu_limit = _limit(reading.cpu_limit_milli, MOST_CPU_MILLI)
    memory_limited, memory_limit = _limit(reading.memory_limit_mib, MAX_MEMORY_MIB)
    return ContainerUsage(
        container=one.container,
        runtime=one.runtime,
        pod_uid=one.pod_uid,
        uid=owner.uid,
        namespace=owner.namespace,
        pod=owner.pod,
        own=one.container == owner.container if owner.container else None,
        cpu_used_milli=_most(new.cpu.used_milli),
        cpu_average_milli=_most(new.cpu.average_milli),
        throttled_ms=None if throttled_ns is None else throttled_ns // _NS_PER_MS,
        throttled_permille=_held_back(old, new),
        cpu_limited=cpu_limited,
        cpu_limit_milli=cpu_limit,
        memory_mib=reading.memory_mib,
        memory_working_mib=reading.working_mib,
        memory_limited=memory_limited,
        memory_limit_mib=memory_limit,
    )


def _held_back(old: Meter | None, new: Meter) -> int | None:
    """Thousandths of the scheduling periods between the two."""
    periods = rise(old.periods, new.periods) if old else None
    throttled = rise(old.throttled_periods, new.throttled_periods) if old else None
    return min(1000, 1000 * throttled // periods) if periods and throttled is not None else None


def _limit(limit: Limit | None, most: int) -> tuple[bool | None, int | None]:
    if limit is None:
        return None, None
    return limit.value is not None, None if limit.value is None else min(limit.value, most)


def _most(milli: int | None) -> int | None:
    return None if milli is None else min(milli, MOST_CPU_MILLI)
