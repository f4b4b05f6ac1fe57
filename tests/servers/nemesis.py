"""Faults at random moments: kill -9, SIGSTOP and SIGCONT, each of a process that comes back; drawn from a seed.

    nemesis = Nemesis(random.Random(seed), {process: 3, …, nats.process: 2})      # who, and how often beside others
    await nemesis.rage(25.0)       # and when it returns, everything runs again

Faults overlap: a scheduler may be frozen while the server is killed. Whatever ends by itself is started again, as a
supervisor would do; `told` says what was done when.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping

from tests.servers.line import exit_code
from tests.servers.process import ServerProcess, wait_until

__all__ = ["Nemesis"]

PAUSE_S = (0.3, 1.4)
DOWN_S = (0.0, 1.0)
FROZEN_S = (1.3, 4.0)
"""Longer than the lease of 1.2 s: whoever wakes up has been replaced."""

WATCH_S = 0.1


class Nemesis:
    """Breaks things, and puts them together again."""

    def __init__(self, rng: random.Random, victims: Mapping[ServerProcess, int]) -> None:
        self.told: list[str] = []
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._victims = {process.name: process for process in victims}
        self._weights = {process.name: weight for process, weight in victims.items()}
        self._hurt: set[str] = set()
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        self.told.append(f"{time.monotonic() - self._began:6.2f} s  {text}")

    async def rage(self, seconds: float) -> None:
        """Faults for so long; then wait until the last one is healed."""
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            supervisor = group.create_task(self._supervise(), name="supervisor")
            faults: list[asyncio.Task[None]] = []
            while time.monotonic() - self._began < seconds:
                await asyncio.sleep(self._rng.uniform(*PAUSE_S))
                well = sorted(self._victims.keys() - self._hurt)
                if well:
                    name = self._rng.choices(well, [self._weights[one] for one in well])[0]
                    self._hurt.add(name)
                    faults.append(group.create_task(self._fault(name), name=f"fault of {name}"))
            await asyncio.gather(*faults)
            await wait_until(self._all_run, what="everything runs again", every_s=WATCH_S)
            supervisor.cancel()

    async def _fault(self, name: str) -> None:
        kind = self._rng.choice(("kill", "kill", "freeze"))
        down_s = self._rng.uniform(*(DOWN_S if kind == "kill" else FROZEN_S))
        self.tell(f"{kind} {name} for {down_s:.2f} s")
        self.counts[f"{kind} {name.partition('-')[0]}"] += 1
        process = self._victims[name]
        try:
            if kind == "kill":
                await process.kill()
                await asyncio.sleep(down_s)
                process.launch()
            else:
                process.freeze()
                await asyncio.sleep(down_s)
                process.thaw()
        finally:
            self._hurt.discard(name)

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            for name, process in self._victims.items():
                if name not in self._hurt and not process.running:
                    self.tell(f"{name} has ended by itself with {exit_code(process)}; started again")
                    self.counts[f"{name} ended by itself"] += 1
                    process.launch()

    async def _all_run(self) -> bool:
        return all(process.running for process in self._victims.values())
