"""The hard end: a thread that ends the process when its time is up, whatever the event loop is doing.

It waits from the start of the process, so that arming it from a signal handler is only a put on a queue (the one
queue that is safe there) and works while the event loop is blocked, cancellation is swallowed or an executor hangs.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable

from bus.runtime.exits import ExitCode

LAST_WORDS_S = 0.2
"""The last log line gets this long: stderr may be a full pipe that nobody reads."""

log = logging.getLogger(__name__)


Order = tuple[float, ExitCode]


def _merged(old: Order, new: Order) -> Order:
    return min(old[0], new[0]), new[1] if old[1] is ExitCode.DRAIN_CUT else old[1]


class Deadline:
    """Armed any number of times; the earliest time wins, and a reason of its own wins over DRAIN_CUT.

    Args:
        stuck: names what is still running, for the last log line. Called from the deadline's thread.
    """

    def __init__(self, stuck: Callable[[], list[str]] = list) -> None:
        self.stuck = stuck
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._wait, name="deadline", daemon=True)
        self._thread.start()

    def arm(self, seconds: float, code: ExitCode) -> None:
        """End the process with `code` in `seconds`, unless it is disarmed before. Safe in a signal handler."""
        self._orders.put((time.monotonic() + seconds, code))

    def disarm(self) -> None:
        """For good; ends the thread."""
        self._orders.put(None)
        self._thread.join()

    def _wait(self) -> None:
        order = self._orders.get()
        while order is not None:
            at, code = order
            try:
                later = self._orders.get(timeout=max(0.0, at - time.monotonic()))
            except queue.Empty:
                self._end(code)
            else:
                order = None if later is None else _merged(order, later)

    def _end(self, code: ExitCode) -> None:
        words = threading.Thread(target=self._last_words, args=(code,), name="last-words", daemon=True)
        words.start()
        words.join(LAST_WORDS_S)
        os._exit(code)

    def _last_words(self, code: ExitCode) -> None:
        main = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - documented, for this
        where = traceback.format_stack(main)[-1].strip() if main else ""
        log.critical(
            "time is up, cutting what is left",
            extra={"exit_code": int(code), "exit": code.name, "stuck": self.stuck(), "main_thread_at": where},
        )
