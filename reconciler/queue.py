"""Work by key: one worker per key at a time, ordered within it, many keys at once.

What flows in: keys that something happened to, any number of times. What flows out: one call of `work(key)` after the
last of them. A key that is added while it is worked on is worked on again afterwards; a key that failed comes back
after a growing pause, unless it is added before. While the gate is closed, keys gather and none is taken.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import islice

from reconciler.backoff import Backoff

WIDTH = 64
"""Keys at once. Calls to Kubernetes are bounded where they are made; the rest of the work only waits."""


class WorkQueue:
    """The queue. Args: how pauses after a failure grow, and the randomness for their jitter."""

    def __init__(self, *, base_s: float = 0.2, cap_s: float = 60.0, rng: random.Random) -> None:
        self.gate = asyncio.Event()
        """Open = keys are taken."""
        self._base_s, self._cap_s, self._rng = base_s, cap_s, rng
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._active: set[str] = set()
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._pauses: dict[str, Backoff] = {}

    def __len__(self) -> int:
        """Keys that wait or are worked on."""
        return len(self._dirty | self._active)

    def __repr__(self) -> str:
        return f"<WorkQueue dirty={len(self._dirty)} active={len(self._active)} later={len(self._later)}>"

    def add(self, key: str) -> None:
        """Something happened to it."""
        if timer := self._later.pop(key, None):
            timer.cancel()
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._ready.put_nowait(key)

    def add_later(self, key: str, delay_s: float) -> None:
        """Look again then; the earlier of two orders stands."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + delay_s
        before = self._later.get(key)
        if key in self._dirty or (before is not None and before.when() <= at_s):
            return
        if before is not None:
            before.cancel()
        self._later[key] = loop.call_at(at_s, self._due, key)

    def failed(self, key: str, *, at_least_s: float = 0.0) -> float:
        """It did not work: look again after a pause, which is returned."""
        pause = self._pauses.get(key)
        if pause is None:
            pause = self._pauses[key] = Backoff(base_s=self._base_s, cap_s=self._cap_s, rng=self._rng)
        delay_s = max(at_least_s, pause())
        self.add_later(key, delay_s)
        return delay_s

    def hurry(self, most: int | None = None) -> None:
        """What made them fail may be over: look again now at keys that wait for another try, or at so many of them."""
        for key in list(islice(self._later, most)):
            self.add(key)

    def worked(self, key: str) -> None:
        """It worked: the next failure pauses as little as the first."""
        self._pauses.pop(key, None)

    async def run(self, work: Callable[[str], Awaitable[None]], *, width: int = WIDTH) -> None:
        """Work until cancelled. `work` must not raise: a worker that dies takes the process with it."""
        async with asyncio.TaskGroup() as group:
            for number in range(width):
                group.create_task(self._worker(work), name=f"reconcile-{number}")

    async def quiet(self) -> None:
        """Wait until nothing is worked on; what waits goes on waiting."""
        while self._active:  # noqa: ASYNC110 - for draining, not worth an event per key
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Forget all timers."""
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()

    def _due(self, key: str) -> None:
        self._later.pop(key, None)
        self.add(key)

    async def _worker(self, work: Callable[[str], Awaitable[None]]) -> None:
        while True:
            key = await self._ready.get()
            await self.gate.wait()
            self._dirty.discard(key)
            self._active.add(key)
            try:
                await work(key)
                await asyncio.sleep(0)  # most keys need nothing: a sweep over thousands must not hold the loop
            finally:
                self._active.discard(key)
                if key in self._dirty:
                    self._ready.put_nowait(key)
