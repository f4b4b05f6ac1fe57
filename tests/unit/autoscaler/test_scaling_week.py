"""A week of one function in virtual time, with metrics that flap, lie and vanish, cards that run out, and a freeze.

One look every 20 s. The stated bounds:

1. Never above the maximum.
2. Never above what the told load of the last minutes needs, nor the minimum or the fallback. The horizon is what a way
   down takes: the burst's memory, the long window, the delay, and eight periods of the rate limit.
3. A lie of one look adds one step of the rate limit to the true need, at most.
4. The direction turns no more often than something happens: the load changes, the metric lies or fails, cards run out,
   scaling is frozen.
"""

from __future__ import annotations

from collections import deque
from random import Random

import msgspec

from autoscaler.core.horizontal import decide, wanted
from autoscaler.core.limits import UNLIMITED
from autoscaler.core.numbers import Decision, Inputs, Memory, ceil_div
from tests.unit.autoscaler.function_world import inputs

TICK_S = 20
WEEK = 7 * 86_400 // TICK_S
EACH = 630
"""Thousandths of a call for each: the aim less the tolerance. So few keep a replica from being taken away."""
MAXIMUM = 60
STARTS = 2
"""Looks until a replica is ready."""
HORIZON = (60 + 60 + 30 + 8 * 15) // TICK_S
FALLBACK = 2


class Weather:
    """The load, and what becomes of its metric: (true calls, told calls or None, frozen, room)."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.level = 0
        self.swing = 0
        self.left = 0
        self.out = 0
        self.still = 0
        self.turns = 0
        self.lied = False
        self.since_lie = 0
        self.full = 0

    def look(self, tick: int) -> tuple[int, int | None, bool, int | None]:
        self._changes()
        calls = max(0, self.level + (self.swing if tick % 2 else 0))
        told = None if self.out else self._told(calls)
        room = None if self.full < 0 else 1 if self.full > 0 else UNLIMITED
        return calls, told, self.still > 0, room

    def _changes(self) -> None:
        self.left, self.out, self.still = self.left - 1, max(0, self.out - 1), max(0, self.still - 1)
        self.full -= (self.full > 0) - (self.full < 0)
        if self.left <= 0:
            self.level = self.chance.choice([0, 0, 1, 3, 8, 20, 35])
            self.swing = self.chance.choice([0, 0, self.level])
            self.left = self.chance.randint(30, 400)
            self.turns += 1
        roll = self.chance.random()
        if roll < 0.001:
            self.out, self.turns = self.chance.randint(1, 60), self.turns + 1
        elif roll < 0.0015:
            self.still, self.turns = self.chance.randint(1, 30), self.turns + 1
        elif roll < 0.0025:
            self.full, self.turns = self.chance.choice([-20, 20]), self.turns + 1

    def _told(self, calls: int) -> int:
        self.since_lie = 0 if self.lied else self.since_lie + 1
        self.lied = self.since_lie > HORIZON and self.chance.random() < 0.003
        self.turns += self.lied
        return calls * self.chance.choice([0, 10]) + self.chance.choice([0, 500]) if self.lied else calls


class Week:
    """The function under that weather."""

    def __init__(self, seed: int) -> None:
        self.weather = Weather(seed)
        self.memory = Memory()
        self.ready = 0
        self.starting: deque[int] = deque()
        self.loads: deque[int | None] = deque(maxlen=3)
        self.told: deque[int] = deque(maxlen=HORIZON)
        self.true: deque[int] = deque(maxlen=HORIZON)
        self.silent = 0
        self.rules: dict[str, int] = {}
        self.directions: list[int] = []

    def run(self) -> None:
        for tick in range(WEEK):
            while self.starting and tick - self.starting[0] >= STARTS:
                self.starting.popleft()
                self.ready += 1
            calls, told, frozen, room = self.weather.look(tick)
            before = self.memory.target or 0
            decision = self.decide(tick, calls, told, frozen, room)
            self.check(decision.target, before, frozen, calls, told)
            self.apply(tick, decision.target)

    def decide(self, tick: int, calls: int, told: int | None, frozen: bool, room: int | None) -> Decision:
        self.loads.append(told)
        self.silent = 0 if told is not None else self.silent + 1
        known = [load for load in self.loads if load is not None]
        memory = {f"last_{k}" if k == "target" else k: getattr(self.memory, k) for k in Memory.__struct_fields__}
        busy = min(calls, self.ready)
        seen: Inputs = inputs(
            None if not known else ceil_div(sum(known) * 1000, len(known)),
            now_ms=tick * TICK_S * 1000,
            panic_milli=None if told is None else told * 1000,
            stable_full=int(len(known) == 3),
            silent_ms=self.silent * TICK_S * 1000,
            waiting=None if told is None else max(0, told - busy),
            hot_ready=self.ready,
            coming=len(self.starting),
            busy=busy,
            max_replicas=MAXIMUM,
            fallback=FALLBACK,
            frozen=int(frozen),
            placeable=None,
            **memory,
        )
        if wanted(seen) > seen.planned:
            seen = msgspec.structs.replace(seen, placeable=room)
        decision = decide(seen)
        self.memory = decision.memory
        first = decision.rule.split("+")[0]
        self.rules[first] = self.rules.get(first, 0) + 1
        return decision

    def check(self, target: int, before: int, frozen: bool, calls: int, told: int | None) -> None:
        if told is not None and not frozen:
            self.told.append(told)
            self.true.append(calls)
        assert target <= MAXIMUM
        if not frozen:
            need = ceil_div(max(self.told, default=0) * 1000, EACH)
            honest = ceil_div(max(self.true, default=0) * 1000, EACH)
            assert target <= max(need, FALLBACK, 1)
            assert target <= max(4 * honest, honest + 4, FALLBACK)
            now = self.memory.target or 0
            if now != before:
                self.directions.append(1 if now > before else -1)

    def apply(self, tick: int, target: int) -> None:
        while self.ready + len(self.starting) < target:
            self.starting.append(tick)
        while self.starting and self.ready + len(self.starting) > target:
            self.starting.pop()
        self.ready = min(self.ready, target)


def test_a_week_keeps_the_bounds() -> None:
    """All four bounds, at each of 30,240 looks; and the week was no easy one: most rules have fired."""
    week = Week(seed=1)
    week.run()
    turns = sum(one != other for one, other in zip(week.directions, week.directions[1:], strict=False))

    assert turns <= week.weather.turns
    assert {
        "wake",
        "waking",
        "panic",
        "up",
        "down",
        "delay",
        "zero",
        "idle",
        "missing-hold",
        "missing-fallback",
    } <= set(week.rules)
    assert week.rules["frozen"] > 20
