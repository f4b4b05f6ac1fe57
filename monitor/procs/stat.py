"""The texts of /proc/<pid>: who a process is, since when, and in which cgroup. Pure; what cannot be read is None.

`stat` holds the program's name in brackets, and the name may hold blanks, brackets and line ends: everything up to
the *last* closing bracket is name, what follows are fields 3 to 52. `started_ticks` is field 22: with the pid it names
a process for ever, while a pid alone is given out again once it is free.

`cgroup` has a line for each hierarchy, `number:controllers:path`; a path may hold colons. v2 is number 0. A process
is in the same pod in all of them, so the first line that names a pod counts; a process that the kernel is just moving
may still be at the root of some.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from contracts.units import MAX_INTEGER
from monitor.cgroups.paths import Home, home_of
from monitor.cgroups.stats import number

_UTIME, _STIME, _STARTED = 14 - 3, 15 - 3, 22 - 3
"""Positions behind the name of the fields that proc(5) counts from 1; the first behind the name is field 3."""
_LONGEST_NAME = 64
_CGROUP_PARTS = 3


class ProcessStat(msgspec.Struct, frozen=True, kw_only=True):
    """What /proc/<pid>/stat says."""

    pid: int
    command: str
    parent: int
    started_ticks: int
    cpu_ticks: int
    """User and system time so far, without children."""


def process_stat(text: str) -> ProcessStat | None:
    """The line, or None when it is not one."""
    head, opened, rest = text.partition("(")
    name, closed, tail = rest.rpartition(")")
    fields = tail.split()
    pid = number(head)
    if not opened or not closed or pid is None or len(fields) <= _STARTED:
        return None
    parent, user, system, started = (number(fields[at]) for at in (1, _UTIME, _STIME, _STARTED))
    if parent is None or user is None or system is None or started is None or max(pid, started) > MAX_INTEGER:
        return None
    return ProcessStat(pid=pid, command=printable(name), parent=parent, started_ticks=started, cpu_ticks=user + system)


@lru_cache(maxsize=1024)  # the same each second, and for each process of a container: a third of a look at a node
def home(text: str) -> Home:
    """Where /proc/<pid>/cgroup says that the process is; an empty home when it is in no pod and no container."""
    parts = [line.split(":", 2) for line in text.splitlines()]
    homes = [found for line in parts if len(line) == _CGROUP_PARTS and (found := home_of(line[2])) is not None]
    pods = (found for found in homes if found.pod_uid and found.container)
    return next(pods, None) or next(iter(homes), None) or Home()


def printable(name: str) -> str:
    """A program's name as it may stand in a message: a process chooses its own."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:_LONGEST_NAME]
