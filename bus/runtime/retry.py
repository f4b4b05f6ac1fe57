"""The one way that things are tried again: bounded, with growing and jittered pauses, and with the last reason told.

What flows in: a call that may raise, the errors that are the world's fault, and a bound (attempts, seconds or both).
What flows out: its result, or `GaveUp` with the number of tries and the last error.
It never retries what it was not told to, it ends at once when it is cancelled, and it does not cut a try short: the
time bound says when no further try begins, so a call needs a timeout of its own (each call of the bus has one).
All time is the event loop's, so it runs on a virtual clock as well.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import NoReturn, ParamSpec, TypeVar

import tenacity

from bus.protocol import BusUnavailable

P = ParamSpec("P")
T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]

BASE_S = 0.05
MAX_S = 2.0

log = logging.getLogger(__name__)


class GaveUp(Exception):  # noqa: N818 - named by what is the case, as the errors of the bus
    """Every try failed: what was tried, how often, for how long, and the last error (also its `__cause__`)."""

    def __init__(self, what: str, attempts: int, elapsed_s: float, last: BaseException) -> None:
        tries = "try" if attempts == 1 else "tries"
        super().__init__(f"{what}: gave up after {attempts} {tries} in {elapsed_s:.1f} s: {reason_of(last)}")
        self.what = what
        self.attempts = attempts
        self.elapsed_s = elapsed_s
        self.last = last


class retrying:  # noqa: N801 - read as a verb: `await retrying("store the commit", deadline_s=10)(bus.store, subject, data)`
    """Call something until it works: `await retrying(what, ...)(function, *arguments)`; its result is the result.

    Args:
        what: for the log and for GaveUp, as "store the commit".
        on: errors that are worth another try; all others pass through at once.
        attempts: no more than this many tries.
        deadline_s: no try begins later than this after the first; a pause never goes beyond it.
        base_s: the first pause is uniform in 0..base_s, the next in 0..2 base_s, and so on (full jitter, so that
            a thousand clients of one broken server do not come back together) ...
        max_s: ... up to 0..max_s.
        rng: for a repeatable run.

    Raises (when called):
        GaveUp: the bound was reached.
    """

    def __init__(
        self,
        what: str,
        *,
        on: Errors = BusUnavailable,
        attempts: int | None = None,
        deadline_s: float | None = None,
        base_s: float = BASE_S,
        max_s: float = MAX_S,
        rng: random.Random | None = None,
    ) -> None:
        if attempts is None and deadline_s is None:
            raise ValueError(f"{what}: give attempts or deadline_s; nothing is retried for ever")
        self._what = what
        self._on = on
        self._attempts = attempts
        self._deadline_s = deadline_s
        self._base_s = base_s
        self._max_s = max_s
        self._uniform = (rng or random).uniform

    async def __call__(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Try until it works or the bound is reached."""
        clock = asyncio.get_running_loop().time
        began = clock()

        def left_s() -> float:
            return float("inf") if self._deadline_s is None else began + self._deadline_s - clock()

        async def once() -> T:
            return await call(*args, **kwargs)

        def give_up(state: tenacity.RetryCallState) -> NoReturn:
            error = _error_of(state)
            raise GaveUp(self._what, state.attempt_number, clock() - began, error) from error

        return await tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(self._on),
            stop=lambda state: left_s() <= 0 or state.attempt_number >= (self._attempts or float("inf")),
            wait=lambda state: min(self._pause_s(state.attempt_number), max(0.0, left_s())),
            sleep=asyncio.sleep,
            before_sleep=self._say,
            retry_error_callback=give_up,
        )(once)

    def _pause_s(self, attempt: int) -> float:
        # 2 ** 30 x any base is far over any cap; without the min a long outage computes huge integers.
        return self._uniform(0.0, min(self._max_s, self._base_s * 2 ** min(attempt - 1, 30)))

    def _say(self, state: tenacity.RetryCallState) -> None:
        pause = state.next_action.sleep if state.next_action else 0.0
        log.warning(
            "%s failed, trying again",
            self._what,
            extra={
                "attempt": state.attempt_number,
                "pause_s": round(float(pause), 3),
                "reason": reason_of(_error_of(state)),
            },
        )


def _error_of(state: tenacity.RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    if error is None:
        raise AssertionError("tenacity asked about a try that did not fail")
    return error


def reason_of(error: BaseException) -> str:
    """An error in one line: its type and its message."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
