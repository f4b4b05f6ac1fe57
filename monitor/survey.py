"""One look at the host, once a period: its CPUs, the processes on the cards, the cgroups of our pods.

In: the pids that the driver lists and the uids of the pods that are ours. Out: a `Survey`, with the monotonic time of
the look. All of it blocks, for some 20 microseconds a file, and a kernel under memory pressure may hold a reader for
long; so it is made in a thread with a deadline where there is one, as the cards are.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from monitor import cpu
from monitor.attribution import Seen
from monitor.cgroups.tree import CgroupTree, Found
from monitor.cpu import HostCounters
from monitor.procs import reading
from monitor.procs.reading import Process


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen; None = it could not be."""

    at_ns: int = 0
    host: HostCounters | None = None
    processes: Seen | None = None
    """None: the pids of this /proc are not the host's."""
    containers: tuple[Found, ...] | None = None


class Looks(Protocol):
    """Who looks at the host."""

    def look(self, pids: Collection[int], pods: Collection[str]) -> Survey:
        """At these processes, and the containers of these pods."""
        ...


class Surveyor:
    """Blocking; for one caller at a time.

    Args:
        proc: the host's /proc.
        cgroups: where the host's cgroups are mounted.
        below: the kubelet's `--cgroup-root`.
    """

    def __init__(self, proc: Path, cgroups: Path, below: str = "") -> None:
        self._proc = proc
        self._tree = CgroupTree(cgroups, below)
        self._known: Mapping[int, Process] = {}
        """Processes of the last look."""

    def look(self, pids: Collection[int], pods: Collection[str]) -> Survey:
        """Everything at once."""
        looked = reading.look(self._proc, pids, self._known)
        self._known = looked.processes if looked else {}
        containers = self._tree.look(pods)
        return Survey(
            at_ns=time.monotonic_ns(),
            host=cpu.read(self._proc),
            processes=Seen(processes=looked.processes, ended=looked.ended) if looked else None,
            containers=containers,
        )
