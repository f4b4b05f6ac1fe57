"""How long to wait before something is tried again that is tried for ever: growing, bounded, jittered pauses.

For loops that outlive every outage (a watch, a key in the queue, the last word on a subject). A single call that may
be repeated a few times uses `bus.runtime.retry` instead. Pure: the randomness comes in.
"""

from __future__ import annotations

import random

HIGHEST_POWER = 20
"""2 ** 20 times any base is beyond any cap; without a bound an outage of a day computes huge integers."""


class Backoff:
    """Full jitter over a doubling ceiling: 0..base, 0..2 base, … up to 0..cap, but never under `floor_s`."""

    def __init__(self, *, base_s: float, cap_s: float, floor_s: float = 0.0, rng: random.Random) -> None:
        self._base_s, self._cap_s, self._floor_s, self._rng = base_s, cap_s, floor_s, rng
        self.failures = 0

    def __call__(self) -> float:
        """One more failure: the pause before the next try, in seconds."""
        ceiling_s = min(self._cap_s, self._base_s * 2 ** min(self.failures, HIGHEST_POWER))
        self.failures += 1
        return max(self._floor_s, self._rng.uniform(0.0, ceiling_s))

    def reset(self) -> None:
        """It works again."""
        self.failures = 0
