"""The files of a cgroup as numbers: CPU time, throttling, memory and limits, of v1 and v2. Pure; nothing raises.

In: the text of each file, or None where there is none. Out: `Reading`, in the units of the finer of the two versions.

    what          v2                                       v1
    CPU time      cpu.stat usage_usec              µs      cpuacct.usage                  ns
    throttling    cpu.stat nr_*, throttled_usec    µs      cpu.stat nr_*, throttled_time  ns
    CPU limit     cpu.max "quota|max period"       µs      cpu.cfs_quota_us (-1 = none), cpu.cfs_period_us
    memory        memory.current                   bytes   memory.usage_in_bytes
    cache         memory.stat inactive_file        bytes   memory.stat total_inactive_file
    memory limit  memory.max "bytes|max"           bytes   memory.limit_in_bytes (about 2^63 = none)

What cannot be read is None; a limit that is not set is the value `None` in a pair whose first part is False.
"""

from __future__ import annotations

import msgspec

from contracts.units import MAX_INTEGER, MAX_MEMORY_MIB

MIB = 1024 * 1024
_NS_PER_US = 1000
_NO_LIMIT_BYTES = 1 << 62
"""v1 writes 2^63 minus a page for "none"; nothing real is half as much."""
_LONGEST = 20
"""Digits of 2^64. `int` of a million digits would take seconds."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as the kernel has it; `value` is None when nothing is limited."""

    value: int | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one cgroup. Counters run since the cgroup was made."""

    cpu_ns: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_ns: int | None = None
    cpu_limit_milli: Limit | None = None
    memory_mib: int | None = None
    working_mib: int | None = None
    memory_limit_mib: Limit | None = None


class TextsV2(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a v2 cgroup."""

    cpu_stat: str | None = None
    cpu_max: str | None = None
    memory_current: str | None = None
    memory_stat: str | None = None
    memory_max: str | None = None


class TextsV1(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one v1 cgroup in its three hierarchies."""

    cpuacct_usage: str | None = None
    cpu_stat: str | None = None
    cfs_quota_us: str | None = None
    cfs_period_us: str | None = None
    memory_usage: str | None = None
    memory_stat: str | None = None
    memory_limit: str | None = None


def reading_v2(texts: TextsV2) -> Reading:
    """What the files of a v2 cgroup say."""
    stat = table(texts.cpu_stat)
    used, idle_cache = number(texts.memory_current), entry(texts.memory_stat, "inactive_file")
    return Reading(
        cpu_ns=_times(stat.get("usage_usec"), _NS_PER_US),
        periods=stat.get("nr_periods"),
        throttled_periods=stat.get("nr_throttled"),
        throttled_ns=_times(stat.get("throttled_usec"), _NS_PER_US),
        cpu_limit_milli=cpu_max(texts.cpu_max),
        memory_mib=mib(used),
        working_mib=mib(_less(used, idle_cache)),
        memory_limit_mib=memory_limit(texts.memory_max),
    )


def reading_v1(texts: TextsV1) -> Reading:
    """What the files of a v1 cgroup say."""
    stat = table(texts.cpu_stat)
    used, idle_cache = number(texts.memory_usage), entry(texts.memory_stat, "total_inactive_file")
    return Reading(
        cpu_ns=number(texts.cpuacct_usage),
        periods=stat.get("nr_periods"),
        throttled_periods=stat.get("nr_throttled"),
        throttled_ns=stat.get("throttled_time"),
        cpu_limit_milli=cfs_quota(texts.cfs_quota_us, texts.cfs_period_us),
        memory_mib=mib(used),
        working_mib=mib(_less(used, idle_cache)),
        memory_limit_mib=memory_limit(texts.memory_limit),
    )


# --- single files -----------------------------------------------------------------------------------------------------


def number(text: str | None) -> int | None:
    """A file with one number, not negative."""
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= _LONGEST else None


def table(text: str | None) -> dict[str, int]:
    """A file of lines `key number`; what is not of that form is left out, of two equal keys the first counts."""
    found: dict[str, int] = {}
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if (known := number(value)) is not None:
            found.setdefault(key, known)
    return found


def entry(text: str | None, key: str) -> int | None:
    """One key of such a file, as `table` has it; the other forty lines are not read."""
    start = f"{key} "
    known = (number(line[len(start) :]) for line in (text or "").splitlines() if line.startswith(start))
    return next((value for value in known if value is not None), None)


def cpu_max(text: str | None) -> Limit | None:
    """`cpu.max`: "max 100000" or "50000 100000", which is half a core, 500."""
    words = (text or "").split()
    if words[:1] == ["max"]:
        return Limit()
    return _quota(number(words[0]), number(words[1])) if len(words) == 2 else None  # noqa: PLR2004 - quota and period


def cfs_quota(quota: str | None, period: str | None) -> Limit | None:
    """`cpu.cfs_quota_us` and `cpu.cfs_period_us`; any negative quota is none."""
    if (quota or "").strip().startswith("-"):
        return Limit() if number((quota or "").strip()[1:]) is not None else None
    return _quota(number(quota), number(period))


def memory_limit(text: str | None) -> Limit | None:
    """`memory.max` or `memory.limit_in_bytes`, rounded down."""
    if (text or "").strip() == "max":
        return Limit()
    found = number(text)
    if found is None:
        return None
    return Limit() if found >= _NO_LIMIT_BYTES else Limit(value=min(found // MIB, MAX_MEMORY_MIB))


def mib(size: int | None) -> int | None:
    """Bytes to MiB, rounded up: what is used is counted against its user."""
    return min(-(-size // MIB), MAX_MEMORY_MIB) if size is not None else None


def _quota(quota_us: int | None, period_us: int | None) -> Limit | None:
    if quota_us is None or not period_us:
        return None
    return Limit(value=min(quota_us * 1000 // period_us, MAX_INTEGER))


def _times(value: int | None, factor: int) -> int | None:
    return value * factor if value is not None else None


def _less(whole: int | None, part: int | None) -> int | None:
    return max(0, whole - part) if whole is not None and part is not None else None
