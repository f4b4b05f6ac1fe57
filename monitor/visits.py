"""Calls that are out: who was asked when, what came back, who has not answered for too long.

In: a runner and the calls. Out: answers, `DriverSilent`, or the round of all seats. A lane whose call is out is not
asked again; it is only looked at, which costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from monitor.cards.protocol import DriverSilent, Look
from monitor.cards.runner import Lane, Runner, T
from monitor.health import Round


class Visits:
    """Made inside the event loop.

    Args:
        runner: makes the calls.
        deadline_s: after so long without an answer a call counts as hanging.
    """

    def __init__(self, runner: Runner, *, deadline_s: float) -> None:
        self._runner = runner
        self._deadline_s = deadline_s
        self._out: dict[Lane, tuple[asyncio.Future[Any], float]] = {}

    @property
    def out(self) -> tuple[Lane, ...]:
        """Lanes whose call has not come back."""
        return tuple(lane for lane, (answer, _) in self._out.items() if not answer.done())

    @property
    def hanging(self) -> tuple[Lane, ...]:
        """Those of them that are out for longer than the deadline: one thread each is left behind."""
        return tuple(lane for lane in self.out if self._silence(lane) >= self._deadline_s)

    async def ask(self, lane: Lane, function: Callable[[], T], *, patience_s: float | None = None) -> T | None:
        """What the function returns or raises; None when it is out for less than the deadline (and may be).

        A call of the same lane that has been out before is taken for this one.

        Raises:
            DriverSilent: it is out for longer.
        """
        answer = self._start(lane, function)
        patience_s = self._deadline_s if patience_s is None else patience_s
        await asyncio.wait({answer}, timeout=min(patience_s, self._left(lane)))
        if answer.done():
            del self._out[lane]
            return answer.result()
        if self._left(lane) > 0:
            return None
        raise DriverSilent(self._deadline_s)

    async def round(self, seats: tuple[int, ...], look: Callable[[int], Look], *, patience_s: float) -> Round:
        """Look at all seats at once, and wait for those who have a chance. Raises what a look raises."""
        answers = {seat: self._start(seat, partial(look, seat)) for seat in seats}
        hopeful = {answer for seat, answer in answers.items() if answer.done() or self._left(seat) > 0}
        if hopeful:
            await asyncio.wait(hopeful, timeout=min(patience_s, max(map(self._left, answers))))
        looks = {seat: self._take(seat) for seat, answer in answers.items() if answer.done()}
        quiet = [seat for seat in answers if seat not in looks]
        words = str(DriverSilent(self._deadline_s))
        return Round(
            looks=looks,
            silent={seat: words for seat in quiet if self._left(seat) <= 0},
            waiting=frozenset(seat for seat in quiet if self._left(seat) > 0),
        )

    def _take(self, seat: int) -> Look:
        answer, _ = self._out.pop(seat)
        look: Look = answer.result()
        return look

    def _start(self, lane: Lane, function: Callable[[], T]) -> asyncio.Future[T]:
        if lane not in self._out:
            self._out[lane] = (self._runner.start(lane, function), _now())
        return self._out[lane][0]

    def _silence(self, lane: Lane) -> float:
        return _now() - self._out[lane][1]

    def _left(self, lane: Lane) -> float:
        return max(0.0, self._deadline_s - self._silence(lane))


def _now() -> float:
    return asyncio.get_running_loop().time()
