"""A reader's decisions: is this delivery the next one, and is this still the stream that was read before? Pure."""

from __future__ import annotations

from typing import Literal

from bus.frames import AckReply
from bus.protocol import StreamMismatch

MISSING_S = 5.0
"""How long a stream may be unknown before it counts as gone; a cluster that just started needs a moment."""

Verdict = Literal["take", "skip", "odd"]


def judge(position: int, deliveries: int, ack: AckReply) -> Verdict:
    """What to do with a delivery when `position` is the next sequence wanted and `deliveries` have come before it."""
    if ack.consumer_sequence != deliveries + 1:
        return "odd"  # one got lost on its way: ask again from the position
    return "take" if ack.sequence >= position else "skip"


def same_stream(stream: str, *, known: str, created: str, position: int, last: int) -> None:
    """Check that a stream is the one known (empty: none yet) and ends at or behind what was read before `position`.

    Raises:
        StreamMismatch: it was made again, or its end went back.
    """
    if known not in ("", created):
        text = f"{stream} was made again at {created} (before: {known})"
        raise StreamMismatch(text, stream=stream, field="created", wanted=known, found=created)
    if position > last + 1:
        text = f"{stream} ends at {last}, but {position - 1} has been there"
        raise StreamMismatch(text, stream=stream, field="last_seq", wanted=position - 1, found=last)
