"""A work queue over a stream in memory, with the rules of the real one. Pure: the time is passed in.

In: takers that ask, and settlements. Out: each message to one taker at a time, oldest first; those whose time is up,
or that were handed back, before those that were never handed out.
"""

from __future__ import annotations

import math

from bus.memory_stream import MemoryStream
from bus.patterns import covers
from bus.protocol import Delivery, QueueState, Received, Settlement


class MemoryQueue:
    """One consumer: who has what until when."""

    def __init__(self, stream: MemoryStream, name: str, *, subject: str, ack_wait_s: float) -> None:
        self.name = name
        self.subject = subject
        self._stream = stream
        self._ack_wait_s = ack_wait_s
        self._through = 0
        """Sequence up to which everything has been handed out once."""
        self._until_s: dict[int, float] = {}
        """Handed out and not settled: until when, -inf = handed back."""
        self._attempts: dict[int, int] = {}
        self._delivered = 0

    def state(self) -> QueueState:
        """How it stands."""
        return QueueState(waiting=len(self._fresh()), outstanding=len(self._until_s), delivered=self._delivered)

    def take(self, now_s: float) -> Delivery | None:
        """The next one, if anything is to be had now."""
        due = sorted(sequence for sequence, until_s in self._until_s.items() if until_s <= now_s)
        message = self._stream.messages[due[0]] if due else next(iter(self._fresh()), None)
        if message is None:
            return None
        sequence = message.sequence
        self._through = max(self._through, sequence)
        self._until_s[sequence] = now_s + self._ack_wait_s
        self._attempts[sequence] = self._attempts.get(sequence, 0) + 1
        self._delivered += 1
        return Delivery(message=message, attempt=self._attempts[sequence], receipt=f"{self.name} {sequence}")

    def settle(self, sequence: int, how: Settlement, now_s: float) -> None:
        """What became of one; of one that is settled already nothing more is believed."""
        if sequence not in self._until_s:
            return
        if how == "working":
            self._until_s[sequence] = now_s + self._ack_wait_s
        elif how == "again":
            self._until_s[sequence] = -math.inf
        else:
            del self._until_s[sequence], self._attempts[sequence]
            self._stream.drop(sequence)

    def next_due_s(self) -> float:
        """When the time of the next one is up; inf = nobody has any."""
        return min(self._until_s.values(), default=math.inf)

    def _fresh(self) -> list[Received]:
        messages = self._stream.messages
        return [m for s, m in messages.items() if s > self._through and covers(self.subject, m.subject)]
