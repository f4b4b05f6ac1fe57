"""Which requests are traced: those whose sender began a sampled trace, and a bounded number of the others.

A recorded request costs some 150 microseconds of spans in all parts together; at thousands a second that would be most
of the work. So traces that begin here are rationed by a token bucket, and a trace begun elsewhere is always followed.
"""

from __future__ import annotations

from collections.abc import Callable


class Sampler:
    """A token bucket over an injected clock.

    Args:
        per_second: traces begun here per second, and the size of the bucket.
        clock: monotonic seconds.
    """

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self.per_second = per_second
        self._clock = clock
        self._tokens = per_second
        self._filled_s = clock()

    def wants(self, traceparent: str) -> bool:
        """Whether to record a request that came with this traceparent (empty = none)."""
        if traceparent:
            return traceparent[-1:] in "13579bdf"
        now = self._clock()
        self._tokens = min(self.per_second, self._tokens + (now - self._filled_s) * self.per_second)
        self._filled_s = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
