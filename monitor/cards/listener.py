"""The one thread that waits for what the driver says by itself, and hands it to the event loop.

In: a provider that warns. Out: calls in the event loop, with the signs. An error is told once, and waited out.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from monitor.cards.protocol import DriverError, Sign, Warns

log = logging.getLogger(__name__)

SPELL_MS = 250
"""One wait in the driver: how long the end of a session may have to wait for it. Events end a wait at once."""
PAUSE_S = 1.0
"""Before the next try after an error: a set with a lost card in it may fail without waiting."""


class Listener:
    """The thread that waits. It is a daemon; `stop` does not wait for it.

    Args:
        source: who is waited for.
        deliver: called in the event loop with what was heard.
    """

    def __init__(self, source: Warns, deliver: Callable[[tuple[Sign, ...]], None]) -> None:
        self._source = source
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        threading.Thread(target=self._work, name="card events", daemon=True).start()

    def stop(self) -> None:
        """The thread ends after its present spell."""
        self._over.set()

    def _work(self) -> None:
        told = ""
        while not self._over.is_set():
            try:
                signs = self._source.wait(SPELL_MS)
            except DriverError as error:
                if str(error) != told:
                    log.warning("card events are not heard", extra={"reason": str(error)})
                told = str(error)
                self._over.wait(PAUSE_S)
                continue
            if signs and not self._hand_over(signs):
                return

    def _hand_over(self, signs: tuple[Sign, ...]) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._deliver, signs)
        except RuntimeError:  # the loop is closed
            return False
        return True
