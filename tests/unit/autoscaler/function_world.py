"""A function in virtual time: load comes, replicas start and stop, one decision a tick. Every decision is replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from autoscaler.core.horizontal import decide, wanted
from autoscaler.core.limits import UNLIMITED
from autoscaler.core.numbers import Decision, Inputs, Memory
from autoscaler.core.record import inputs_of, message, replay
from autoscaler.core.replicas import Counts
from autoscaler.core.windows import Sample, Samples, add
from contracts.requests import PodTemplate
from contracts.workloads import Function, Scaling

S = 1000


def function(scaling: Scaling | None = None, **fields: Any) -> Function:
    """One call at a time, aim 70 %, 0 to 10 replicas."""
    return Function(name="web", pod=PodTemplate(image="busybox"), scaling=scaling or Scaling(), **fields)


PLAIN: dict[str, Any] = {
    "now_ms": 1_000_000,
    "min_replicas": 0,
    "max_replicas": 100,
    "capacity_milli": 1000,
    "target_percent": 70,
    "stable_ms": 60_000,
    "panic_percent": 200,
    "tolerance_percent": 10,
    "period_ms": 15_000,
    "up_percent": 400,
    "up_step": 4,
    "down_percent": 50,
    "down_step": 1,
    "down_delay_ms": 30_000,
    "zero_grace_ms": 60_000,
    "missing_hold_ms": 300_000,
    "stable_full": 1,
    "waiting": 0,
    "hot_ready": 3,
    "coming": 0,
    "busy": 1,
    "placeable": UNLIMITED,
    "budget": UNLIMITED,
    "lower_since_ms": 0,
}


def inputs(load: int | None = 2000, **fields: Any) -> Inputs:
    """Three ready replicas with two calls in both windows, fewer would have done for long; what is named differs."""
    return Inputs(**{**PLAIN, "stable_milli": load, "panic_milli": load, **fields})


class World:
    """Replicas become ready `start_s` after they were asked for; the load is told as it is, or as `lie` makes it.

    Args:
        function: how it is scaled.
        start_s: until a replica is ready.
        tick_s: between two looks.
        room: how many replicas the cards hold; None = it cannot be read.
        lie: what the metric makes of the truth in calls; None of it = no reading.
    """

    def __init__(
        self,
        function: Function,
        *,
        start_s: int = 10,
        tick_s: int = 1,
        room: int | None = UNLIMITED,
        lie: Callable[[int, int], int | None] = lambda _, calls: calls,
    ) -> None:
        self.function = function
        self.start_s = start_s
        self.tick_s = tick_s
        self.room = room
        self.lie = lie
        self.now_s = 0
        self.memory = Memory()
        self.samples = Samples()
        self.ready = 0
        self.starting: list[int] = []
        self.decisions: list[tuple[int, Inputs, Decision]] = []
        self.keep = True

    @property
    def planned(self) -> int:
        return self.ready + len(self.starting)

    @property
    def rules(self) -> list[str]:
        """Those that fired, without repetitions in a row."""
        found: list[str] = []
        for _, _, decision in self.decisions:
            if not found or found[-1] != decision.rule:
                found.append(decision.rule)
        return found

    @property
    def targets(self) -> list[int]:
        """Without repetitions in a row."""
        found: list[int] = []
        for _, _, decision in self.decisions:
            if not found or found[-1] != decision.target:
                found.append(decision.target)
        return found

    def run(self, seconds: int, calls: int) -> Decision:
        """So long with so many calls; the last decision."""
        end, decision = self.now_s + seconds, None
        while self.now_s < end:
            decision = self.tick(calls)
        assert decision is not None
        return decision

    def tick(self, calls: int, **other: Any) -> Decision:
        """One look, and what it brings about."""
        self.now_s += self.tick_s
        done = [at for at in self.starting if self.now_s - at >= self.start_s]
        self.starting = self.starting[len(done) :]
        self.ready += len(done)
        seen = self.lie(self.now_s, calls)
        load = None if seen is None else seen * S
        self.samples = add(self.samples, Sample(at_ms=self.now_s * S, load_milli=load), 60 * S)
        given = self._inputs(calls, seen, **other)
        if wanted(given) > given.planned and self.room is not None:
            given = msgspec.structs.replace(given, placeable=max(0, self.room - self.planned))
        decision = decide(given)
        self._apply(given, decision)
        return decision

    def _inputs(self, calls: int, seen: int | None, **other: Any) -> Inputs:
        busy = min(calls, self.ready)
        counts = Counts(hot_ready=self.ready, coming=len(self.starting), busy=busy)
        plain: dict[str, Any] = {"placeable": None, "budget": UNLIMITED}
        waiting = None if seen is None else max(0, calls - busy)
        return inputs_of(
            self.function,
            self.memory,
            self.samples,
            counts,
            now_ms=self.now_s * S,
            **{**plain, "waiting": waiting, **other},
        )

    def _apply(self, given: Inputs, decision: Decision) -> None:
        if self.keep:
            assert replay(message("team-a", "web", given, decision)) == decision
            self.decisions.append((self.now_s, given, decision))
        self.memory = decision.memory
        while self.planned < decision.target:
            self.starting.append(self.now_s)
        while self.planned > decision.target and self.starting:
            self.starting.pop()
        self.ready = min(self.ready, decision.target)
