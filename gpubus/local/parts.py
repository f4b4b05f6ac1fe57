"""What the processes of a `gpubus local` really use of this machine: its own and its children's, from /proc.

Everything else that a local installation shows is simulated: cards, pods, the CPU of containers. These are not. In: the
pid that the run file names. Out: a `PartUse` per process, between two looks; the first look has no CPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from contracts.messages import Value
from monitor.procs import reading
from monitor.windows import Mark, use

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024


class PartUse(Value, frozen=True, kw_only=True):
    """One process; None = unknown."""

    name: str
    pid: int
    cpu_milli: int | None = None
    """Thousandths of a core since the last look."""
    memory_mib: int | None = None
    """Resident."""


class Parts:
    """The processes of one installation, from look to look."""

    def __init__(self, pid: int, proc: Path = Path("/proc"), clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._pid = pid
        self._proc = proc
        self._clock_ns = clock_ns
        self._marks: dict[tuple[int, int], Mark] = {}
        """By pid and start time: a pid that is given out again begins anew."""

    def look(self) -> list[PartUse]:
        """The installation itself, then its children by pid."""
        at_ns, marks, found = self._clock_ns(), dict[tuple[int, int], Mark](), list[PartUse]()
        for pid in reading.pids(self._proc):
            stat = reading.read_stat(self._proc, pid)
            if stat is None or self._pid not in (stat.pid, stat.parent):
                continue
            who = (pid, stat.started_ticks)
            marks[who] = Mark(at_ns=at_ns, busy_ns=stat.cpu_ticks * _TICK_NS)
            found.append(
                PartUse(
                    name="gpubus local" if pid == self._pid else name_of(self._cmdline(pid), stat.command),
                    pid=pid,
                    cpu_milli=use(self._marks.get(who), marks[who]),
                    memory_mib=self._resident_mib(pid),
                )
            )
        self._marks = marks
        return sorted(found, key=lambda part: (part.pid != self._pid, part.pid))

    def _cmdline(self, pid: int) -> list[str]:
        try:
            return (self._proc / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            return []

    def _resident_mib(self, pid: int) -> int | None:
        try:
            words = (self._proc / str(pid) / "statm").read_text(encoding="ascii").split()
        except OSError:
            return None
        return -(-int(words[1]) * _PAGE // _MIB) if len(words) > 1 and words[1].isdecimal() else None


def name_of(command: list[str], otherwise: str) -> str:
    """`python -m scheduler` is the scheduler; another program is called by its file."""
    if "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    return Path(command[0]).name if command and command[0] else otherwise
