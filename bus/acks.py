"""From the answer to a JetStream publish to `Stored` or the one error that names what happened. Pure.

The codes are the server's; each row was provoked on a real server, and a code that is not in the table is told with
its text.
"""

from __future__ import annotations

import re

import msgspec

from bus.patterns import covers
from bus.protocol import (
    BusError,
    BusUnavailable,
    PayloadTooLarge,
    SequenceConflict,
    Stored,
    StreamFull,
    StreamMismatch,
)
from contracts.subjects import STREAMS

WRONG_LAST_SEQUENCE = (10071, 10164)
"""With the present sequence in the text, and without it (a write on that subject is in flight, the usual case on
R3)."""

FULL = (10077, 10047, 10028, 10023)
"""A limit of the stream; storage, memory or other resources of the server or account."""

MESSAGE_TOO_LARGE = 10054
OTHER_STREAM = 10060
STREAM_NOT_FOUND = 10059
NO_MESSAGE = 10037
NO_CONSUMER = 10014

_BUSY = 429
_SERVER_FAULT = 500


class ApiError(msgspec.Struct, frozen=True):
    """The error part of a JetStream answer."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct, frozen=True):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


_decode = msgspec.json.Decoder(_PubAck).decode


def read_ack(data: bytes, *, subject: str, size: int, expected: int | None) -> Stored | BusError:
    """What the server said about a publish. An answer that is no acknowledgement leaves the outcome unknown."""
    try:
        ack = _decode(data)
    except msgspec.MsgspecError as error:
        return BusUnavailable(f"{subject}: the answer is no acknowledgement ({error}); outcome unknown")
    if ack.error is not None:
        return refusal(ack.error, subject=subject, size=size, expected=expected)
    if not ack.seq:
        return BusUnavailable(f"{subject}: the answer carries no sequence; outcome unknown")
    return Stored(sequence=ack.seq, duplicate=ack.duplicate)


def refusal(error: ApiError, *, subject: str, size: int = 0, expected: int | None = None) -> BusError:
    """The typed error for a refused publish or API call."""
    text = f"{subject}: {error.description} ({error.err_code})"
    if error.err_code in WRONG_LAST_SEQUENCE:
        found = re.search(r"sequence: (\d+)", error.description)
        return SequenceConflict(subject, expected or 0, int(found[1]) if found else None)
    if error.err_code in FULL:
        return StreamFull(text)
    if error.err_code == MESSAGE_TOO_LARGE:
        return PayloadTooLarge(size, message_limit(subject))
    if error.err_code == OTHER_STREAM:
        return StreamMismatch(text)
    if error.code >= _SERVER_FAULT or error.code == _BUSY:
        return BusUnavailable(text)
    return BusError(text)


def message_limit(subject: str) -> int:
    """The declared limit of the stream that keeps this subject, 0 when none of ours does."""
    limits = (s.max_msg_bytes for s in STREAMS if any(covers(pattern, subject) for pattern in s.subjects))
    return next(limits, 0)
