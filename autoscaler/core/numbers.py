"""What a decision about replicas is made from: whole numbers with names, as a message carries them.

`Inputs` is flat. A key that is absent from the message is None: not known, or not so. `Memory` is the part of it that
comes from the decision before; the rest is settings and what was observed.
"""

from __future__ import annotations

import msgspec

from contracts.messages import Value


def ceil_div(above: int, below: int) -> int:
    """The quotient, rounded up."""
    return -(-above // below)


class Memory(Value, frozen=True, kw_only=True):
    """What one decision leaves to the next. Times are of the clock that `now_ms` is of."""

    target: int | None = None
    """What was wanted last, before capacity and budget."""
    panic_at_ms: int | None = None
    """When a burst was last seen."""
    lower_since_ms: int | None = None
    """Since when fewer would do."""
    idle_since_ms: int | None = None
    """Since when there is nothing to do at all."""
    period_since_ms: int | None = None
    period_target: int | None = None
    """What was wanted when the current period of the rate limits began."""
    adopted_until_ms: int | None = None
    """A number that somebody wrote by hand stands until then."""

    def with_target(self, target: int) -> Memory:
        """The same with what is wanted now."""
        return msgspec.structs.replace(self, target=target)


class Inputs(Value, frozen=True, kw_only=True):
    """Everything that a decision depends on."""

    now_ms: int
    # Settings, from the function.
    min_replicas: int
    max_replicas: int
    fixed: int | None = None
    capacity_milli: int | None = None
    """Load that one replica can carry, at 100 %; None = nobody knows."""
    target_percent: int
    stretch_percent: int = 100
    """What replicas may use at present, of what they were sold: so much more counts as capacity."""
    stable_ms: int
    panic_percent: int
    tolerance_percent: int
    period_ms: int
    up_percent: int
    up_step: int
    down_percent: int
    down_step: int
    down_delay_ms: int
    zero_grace_ms: int
    missing_hold_ms: int
    fallback: int | None = None
    adopt: int = 0
    """1: a number that somebody wrote by hand is taken over for one stable window."""
    counted: int = 0
    """Calls are counted and no load is measured: 1 by `maxcount`, 2 by `watermark`."""
    low: int = 0
    high: int | None = None
    """Of the counting policies."""
    once: int = 0
    """1: a replica answers one call and ends; its end is no loss."""
    slots: int = 1
    """Calls that one replica works on at once."""
    # Observed.
    stable_milli: int | None = None
    panic_milli: int | None = None
    """Averages of the two windows. None of the short one = the metric is missing."""
    stable_full: int = 0
    silent_ms: int = 0
    """How long no reading has succeeded."""
    waiting: int | None = None
    hot_ready: int
    coming: int
    busy: int
    calls: int | None = None
    """Calls in progress and waiting, for the counting policies; None = the bus does not say."""
    placeable: int | None = None
    """How many more replicas fit; None = the scheduler has not said."""
    budget: int | None = None
    """How many more may be paid for; None = it could not be read."""
    frozen: int = 0
    by_hand: int | None = None
    rival: int = 0
    """1: somebody writes this number again and again."""
    # From the decision before: the fields of `Memory`.
    last_target: int | None = None
    panic_at_ms: int | None = None
    lower_since_ms: int | None = None
    idle_since_ms: int | None = None
    period_since_ms: int | None = None
    period_target: int | None = None
    adopted_until_ms: int | None = None

    @property
    def planned(self) -> int:
        """Replicas that serve or are on their way: both are capacity."""
        return self.hot_ready + self.coming

    @property
    def current(self) -> int:
        """What was wanted last; where nothing was decided yet, what is there."""
        return self.planned if self.last_target is None else self.last_target

    @property
    def each_milli(self) -> int:
        """Load that one replica is to carry, at its target."""
        return max(1, (self.capacity_milli or 0) * self.stretch_percent * self.target_percent // 10_000)

    def memory(self) -> Memory:
        """As it came."""
        return Memory(
            target=self.last_target,
            panic_at_ms=self.panic_at_ms,
            lower_since_ms=self.lower_since_ms,
            idle_since_ms=self.idle_since_ms,
            period_since_ms=self.period_since_ms,
            period_target=self.period_target,
            adopted_until_ms=self.adopted_until_ms,
        )


class Decision(Value, frozen=True, kw_only=True):
    """The number of replicas, the rule that fired with the limits that bound it, and what to remember."""

    target: int
    rule: str
    memory: Memory
