"""Reading processes from /proc: the thin shell around `stat`.

In: where the host's /proc is (hostPID, or a mount), and pids. Out: `Process`, or None for one that is not there or
must not be seen. The start time is read before and after the cgroup: when a pid is given to another process between the
two, what was read belongs to neither. A process that was seen in a pod stays in it, so of one that is known from the
last look only the start time is read again: two files of three saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from monitor import smallfile
from monitor.cgroups.paths import Home
from monitor.procs import stat
from monitor.procs.stat import ProcessStat

_FIRST_OF_THE_KERNEL = (2, "kthreadd")
"""The kernel's own second process; in a pid namespace of one's own, 2 is something else or nothing."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process at one time."""

    pid: int
    started_ticks: int
    command: str
    home: Home


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the pids that were asked for; one in neither is there and must not be seen."""

    processes: dict[int, Process]
    ended: frozenset[int]


def look(proc: Path, pids: Iterable[int], known: Mapping[int, Process] | None = None) -> Looked | None:
    """Those of the pids that can be looked at, and those that are no more; `known`: from the last look.

    None when this is not the host's /proc: the driver's pids are the host's, and the same number is another process
    in a container's own pid namespace (`hostPID: true` is what is missing then).
    """
    if not sees_host(proc):
        return None
    wanted = list(pids)
    old = known or {}
    found = {pid: one for pid in wanted if (one := process(proc, pid, old.get(pid))) is not None}
    ended = frozenset(pid for pid in wanted if pid not in found and not (proc / str(pid)).exists())
    return Looked(processes=found, ended=ended)


def sees_host(proc: Path) -> bool:
    """Whether pids below `proc` are the host's."""
    pid, command = _FIRST_OF_THE_KERNEL
    second = read_stat(proc, pid)
    return second is not None and second.command == command


def process(proc: Path, pid: int, known: Process | None = None) -> Process | None:
    """Who a pid is now. One that was in no pod is looked for again: a runtime moves a process before it starts it."""
    before = read_stat(proc, pid)
    if known and before and known.home.pod_uid and known.started_ticks == before.started_ticks:
        return Process(pid=pid, started_ticks=before.started_ticks, command=before.command, home=known.home)
    cgroup = _text(f"{proc}/{pid}/cgroup")
    after = read_stat(proc, pid)
    if before is None or cgroup is None or after is None or before.started_ticks != after.started_ticks:
        return None
    return Process(pid=pid, started_ticks=after.started_ticks, command=after.command, home=stat.home(cgroup))


def read_stat(proc: Path, pid: int) -> ProcessStat | None:
    """The stat of a pid; None when it is gone, or hidden from us."""
    text = _text(f"{proc}/{pid}/stat")
    return stat.process_stat(text) if text is not None else None


def pids(proc: Path) -> list[int]:
    """All processes that we may see, by pid."""
    try:
        return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal() and entry.name.isascii())
    except OSError:
        return []


def _text(path: str) -> str | None:
    """A program may name itself in any bytes."""
    found = smallfile.read(path)
    return found.decode("utf-8", "replace") if found is not None else None
