"""How much one commit holds: a gang is placed in one, and a commit is one message. Pure.

A decision takes at most `DECISION_BYTES` and `SLICE_BYTES` for each card, with the longest names that there may be. So
1,040,384 bytes hold 522 members of one card, 313 of eight or 74 of sixty-four; a larger gang is refused at the door,
because nothing could ever place it. One that fits a message, but not the rest of the present one, has the next commit
for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.decisions import Record
from contracts.messages import encode
from contracts.subjects import LEDGER, stream

ENVELOPE_BYTES = 8 * 1024
"""Of the commit around its records, and of the headers that are counted with it."""

MESSAGE_BYTES = stream(LEDGER.stream).max_msg_bytes - ENVELOPE_BYTES
"""Records of one commit."""

DECISION_BYTES = 1800
SLICE_BYTES = 190


def decision_bytes(cards: int) -> int:
    """The most that the decision of one member with so many cards takes."""
    return DECISION_BYTES + cards * SLICE_BYTES


def largest_gang(cards: int) -> int:
    """Members with so many cards each that one commit places for certain."""
    return MESSAGE_BYTES // decision_bytes(cards)


def size_of(records: Iterable[Record]) -> int:
    """Bytes of records as they will be sent."""
    return sum(len(encode(record)) + 1 for record in records)
