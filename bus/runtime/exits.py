"""How a process ends: the exit codes, and the errors that carry one."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What a supervisor sees. Anything but 0 means: start it again, and look at the last log line."""

    STOPPED = 0
    """Asked to stop (SIGTERM, SIGINT), and everything in flight was finished."""
    CRASHED = 1
    """A task failed or ended before it was asked to; the log has the traceback."""
    BAD_SETTINGS = 2
    """Settings or command line are wrong; starting again does not help. Every problem is on stderr."""
    BUS_CLOSED = 3
    """The connection to the bus is gone for good (its watchdog gave up, or the server refused us)."""
    DRAIN_CUT = 4
    """Asked to stop, but work in flight was not finished in time and was cut."""
    LEADERSHIP_LOST = 5
    """Somebody else leads, or the ledger's epoch is another one: what is in memory is no longer true."""


class EndProcess(Exception):  # noqa: N818 - an order, not a fault
    """Raised by any task to end the process with this code and this reason."""

    def __init__(self, code: ExitCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason


class EndedEarly(Exception):  # noqa: N818
    """A task that should run until the stop has returned before it."""

    def __init__(self, task: str) -> None:
        super().__init__(f"task {task!r} ended although nobody asked it to stop")
        self.task = task
