"""The node's CPUs and host memory, from the texts of /proc/stat and /proc/meminfo.

In: the two texts, at two times. Out: `CpuUsage` for the time between. The functions are pure; `read` is the thin reader
around them, and its folder is an argument because a container may see the host's /proc elsewhere.

    used_milli = cores × 1000 × (1 - idle / all)   over what the counters rose by; idle includes iowait
    memory used = MemTotal - MemAvailable          as the kernel reckons what could be had without swapping

Guest time is part of user time in /proc/stat and is not counted again. Within a few ticks the kernel's iowait goes
back now and then (documented in proc(5)); busy time is therefore held between 0 and all.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.units import MAX_MEMORY_MIB
from contracts.usage import CpuUsage
from monitor.cgroups.stats import number
from monitor.usage import rise

_SUMMED = 8
"""user nice system idle iowait irq softirq steal; then guest and guest_nice, which user and nice contain."""
_IDLE = (3, 4)
_KIB_PER_MIB = 1024


class HostCounters(msgspec.Struct, frozen=True, kw_only=True):
    """One look: ticks since boot over all CPUs, and memory now. None = the text does not tell."""

    cores: int
    busy_ticks: int | None = None
    all_ticks: int | None = None
    memory_total_mib: int | None = None
    memory_available_mib: int | None = None


def counters(stat: str, meminfo: str) -> HostCounters:
    """What the two texts say; lines that cannot be read are unknown."""
    lines = [line.split() for line in stat.splitlines() if line.startswith("cpu")]  # `intr` has thousands of numbers
    ticks = next((_numbers(words[1 : 1 + _SUMMED]) for words in lines if words[:1] == ["cpu"]), None)
    idle = sum(ticks[i] for i in _IDLE if i < len(ticks)) if ticks else 0
    return HostCounters(
        cores=sum(1 for words in lines if words and words[0].startswith("cpu") and words[0] != "cpu"),
        busy_ticks=sum(ticks) - idle if ticks else None,
        all_ticks=sum(ticks) if ticks else None,
        memory_total_mib=_meminfo_mib(meminfo, "MemTotal:"),
        memory_available_mib=_meminfo_mib(meminfo, "MemAvailable:"),
    )


def host_usage(before: HostCounters | None, after: HostCounters) -> CpuUsage:
    """The use between two looks; CPU is unknown after the first look and when the counters went back."""
    return CpuUsage(
        cores=after.cores,
        used_milli=_used_milli(before, after),
        memory_total_mib=after.memory_total_mib,
        memory_used_mib=rise(after.memory_available_mib, after.memory_total_mib),
    )


def read(proc: Path) -> HostCounters | None:
    """One look at the files below `proc`; None when they cannot be read."""
    try:
        return counters((proc / "stat").read_text(), (proc / "meminfo").read_text())
    except (OSError, UnicodeDecodeError):
        return None


def _used_milli(before: HostCounters | None, after: HostCounters) -> int | None:
    if before is None or before.cores != after.cores:  # a CPU went on- or offline: the sums do not compare
        return None
    total = rise(before.all_ticks, after.all_ticks)
    if not total or after.busy_ticks is None or before.busy_ticks is None:
        return None
    busy = min(total, max(0, after.busy_ticks - before.busy_ticks))
    return after.cores * 1000 * busy // total


def _numbers(words: list[str]) -> list[int] | None:
    found = [known for word in words if (known := number(word)) is not None]
    return found if words and len(found) == len(words) else None


def _meminfo_mib(text: str, key: str) -> int | None:
    words = next((line.split() for line in text.splitlines() if line.startswith(key)), [])
    found = number(words[1]) if len(words) > 1 else None
    return found // _KIB_PER_MIB if found is not None and found // _KIB_PER_MIB <= MAX_MEMORY_MIB else None
