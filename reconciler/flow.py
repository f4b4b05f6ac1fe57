"""How many calls go to the API server at once: many while it answers, one now and then while it does not.

What flows in: how each call ended. What flows out: leave to make the next one, at once, later, or not at all. Each key
that fails waits by itself, and longer each time; but a thousand keys that wait still knock thirty times a second at an
API server that is trying to get up. So after a few failures in a row, whichever calls they were of, one call is let
through after a pause that grows to `CAP_S`; all others are told at once that nothing was sent. When one comes through
again, twice as many may go with each success, and whoever was turned away is called back (`on_recovery`).

A refusal, a conflict or a 404 is an answer. So is a single 500 between good ones: a webhook that somebody broke for
pods of its own must not slow down all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Callable

from reconciler.backoff import Backoff
from reconciler.errors import KubeError, NotSent, OutcomeUnknown, Throttled, Unauthorized

IN_A_ROW = 4
"""Failures without a success between them that count as an outage."""
BASE_S, FLOOR_S, CAP_S = 0.5, 0.25, 8.0
_OUTAGE = (NotSent, OutcomeUnknown, Throttled, Unauthorized)


class Flow:
    """Gives leave to call.

    Args:
        most: calls at once while all is well.
        rng: for the jitter of pauses.
    """

    def __init__(self, most: int, *, rng: random.Random) -> None:
        self.on_recovery: Callable[[], None] = lambda: None
        self._most, self._wide = most, most
        self._busy = self._failures = 0
        self._shut_until_s = float("-inf")
        self._pause = Backoff(base_s=BASE_S, cap_s=CAP_S, floor_s=FLOOR_S, rng=rng)
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def troubled(self) -> bool:
        """Nothing came through lately."""
        return self._failures >= IN_A_ROW

    @property
    def asks(self) -> bool:
        """It is time to try whether the API server is back, and nobody is trying."""
        return self.troubled and not self._busy and self._now_s() >= self._shut_until_s

    @contextlib.asynccontextmanager
    async def leave(self, what: str) -> AsyncIterator[None]:
        """Around one call.

        Raises:
            NotSent: the API server does not answer, and it is not this call's turn to find out whether it does again.
        """
        await self._enter(what)
        try:
            yield
        except _OUTAGE as error:
            self._failed(error)
            raise
        except KubeError:
            self._answered()
            raise
        else:
            self._answered()
        finally:
            self._busy -= 1
            self._admit()

    async def _enter(self, what: str) -> None:
        if self.troubled and not self.asks:
            raise NotSent(f"{what}: the API server does not answer; asked again within {CAP_S:g} s")
        if self._busy < self._wide and not self._waiting:
            self._busy += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._busy -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        """Those who wait, while there is room."""
        while self._waiting and self._busy < self._wide and not self.troubled:
            place = self._waiting.popleft()
            if not place.done():
                self._busy += 1
                place.set_result(None)

    def _answered(self) -> None:
        recovered, self._failures = self.troubled, 0
        self._wide = min(self._most, 2 * self._wide)
        self._pause.reset()
        if recovered:
            self.on_recovery()

    def _failed(self, error: KubeError) -> None:
        self._failures += 1
        if not self.troubled:
            return
        self._wide = 1
        if self._now_s() >= self._shut_until_s:  # else it was on its way when the trouble began
            asked_s = error.retry_after_s if isinstance(error, Throttled) else 0.0
            self._shut_until_s = self._now_s() + max(asked_s, self._pause())
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(NotSent(f"the API server does not answer: {error}"))

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
