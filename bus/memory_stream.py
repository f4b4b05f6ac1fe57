"""One stream in memory, with the rules of the real one: sequences, compare-and-set, dedup, limits. Pure.

In: a message with its conditions, and the time. Out: `Stored`, or the error that the server would have given. The
order of the checks is that of an unreplicated stream (2.15): size, expected stream, expected sequence, dedup,
limits. Ages are not modelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from bus.patterns import covers
from bus.protocol import (
    BusError,
    NotTogether,
    Outgoing,
    PayloadTooLarge,
    Received,
    SequenceConflict,
    Stored,
    StreamFull,
    StreamMismatch,
)
from contracts.subjects import Stream

OVERHEAD = 30
"""Bytes that the file store adds to each message, about."""


class MemoryStream:
    """Messages of one stream by sequence."""

    def __init__(self, config: Stream, created: str) -> None:
        self.config = config
        self.created = created
        """Tells a stream from one of the same name that was made later."""
        self.messages: dict[int, Received] = {}
        self.last_sequence = 0
        self.bytes = 0
        self._last_of: dict[str, int] = {}
        self._kept: dict[str, deque[int]] = {}
        """Of each subject, where only so many are kept."""
        self._ids: dict[str, tuple[float, int]] = {}

    def takes(self, subject: str) -> bool:
        """Whether a subject is kept here."""
        return any(covers(pattern, subject) for pattern in self.config.subjects)

    def store(self, m: Outgoing, *, header_bytes: int, now_s: float, wall_s: float) -> Stored | BusError:
        """Add a message, or say why not."""
        refused = self._refusal(m, header_bytes)
        if refused is not None:
            return refused
        if m.message_id is not None:
            known = self._ids.get(m.message_id)
            if known is not None and now_s - known[0] < self.config.dedup_s:
                return Stored(sequence=known[1], duplicate=True)
        size = _size(m.subject, m.data, header_bytes)
        if self.bytes + size > self.config.max_bytes:
            return StreamFull(f"{m.subject}: maximum bytes exceeded in {self.config.name}")
        self._append(m, size, wall_s)
        if m.message_id is not None:
            self._ids[m.message_id] = (now_s, self.last_sequence)
        return Stored(sequence=self.last_sequence)

    def refuses_together(self, messages: Sequence[Outgoing], *, now_s: float) -> BusError | None:
        """Why these are not taken as one, None when they are; what makes one refused makes all refused."""
        if not self.config.together:
            return NotTogether(f"{self.config.name} takes messages one by one", never=True)
        ids = [m.message_id for m in messages if m.message_id is not None]
        known = any(now_s - self._ids[i][0] < self.config.dedup_s for i in ids if i in self._ids)
        if known or len(set(ids)) < len(ids):
            return NotTogether(f"{self.config.name}: a message id is there already")
        if not all(self.takes(m.subject) for m in messages):
            return NotTogether(f"{self.config.name} does not take all these subjects")
        return None

    def _refusal(self, m: Outgoing, header_bytes: int) -> BusError | None:
        if header_bytes + len(m.data) > self.config.max_msg_bytes:
            return PayloadTooLarge(header_bytes + len(m.data), self.config.max_msg_bytes)
        if m.stream not in (None, self.config.name):
            return StreamMismatch(f"{m.subject}: kept by {self.config.name}, not {m.stream}")
        last = self._last_of.get(m.subject, 0)
        if m.expected_last not in (None, last):
            return SequenceConflict(m.subject, m.expected_last or 0, last)
        return None

    def _append(self, m: Outgoing, size: int, wall_s: float) -> None:
        self.last_sequence += 1
        self._last_of[m.subject] = self.last_sequence
        if self.config.each > 0:
            kept = self._kept.setdefault(m.subject, deque())
            kept.append(self.last_sequence)
            if len(kept) > self.config.each:
                self.drop(kept.popleft())
        self.messages[self.last_sequence] = Received(
            subject=m.subject, data=m.data, headers=m.headers, sequence=self.last_sequence, stored_at=wall_s
        )
        self.bytes += size

    def drop(self, sequence: int) -> None:
        """It is kept no longer."""
        gone = self.messages.pop(sequence)
        self.bytes -= _size(gone.subject, gone.data, 0)

    def last(self, subject: str) -> Received | None:
        """The newest message of a literal subject."""
        return self.messages.get(self._last_of.get(subject, 0))

    @property
    def first_sequence(self) -> int:
        """The oldest sequence kept, last + 1 when empty."""
        return next(iter(self.messages), self.last_sequence + 1)

    def page(self, subject: str, start: int, count: int) -> tuple[Received, ...]:
        """Up to `count` messages of a pattern from `start` on, in order."""
        return tuple(islice(self._from(subject, start), count))

    def _from(self, subject: str, start: int) -> Iterable[Received]:
        for sequence in range(max(start, self.first_sequence), self.last_sequence + 1):
            message = self.messages.get(sequence)
            if message is not None and covers(subject, message.subject):
                yield message


def _size(subject: str, data: bytes, header_bytes: int) -> int:
    return OVERHEAD + len(subject) + header_bytes + len(data)
