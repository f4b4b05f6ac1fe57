"""Dead letters: what could not be understood is kept, with the reason, so that nothing disappears and nothing blocks.

In: a received message and why it was refused. Out: a `DeadLetter` in its stream, small enough to be kept whatever
the stranger sent: raw bytes, subject, reason and headers are all capped. Its message id is the origin, so a service
that starts again and reads the same poison again does not keep it twice within the dedup window.
"""

from __future__ import annotations

import base64
import hashlib

from bus import codec
from bus.protocol import Bus, Headers, Received, Stored
from contracts.outcomes import DeadLetter
from contracts.subjects import CALLS, DEAD_CALLS, DEAD_LETTERS

RAW_LIMIT = 12_288
"""Bytes kept of the payload: base64 makes 16,384 characters of it, the limit of the field."""

TEXT_LIMIT = 1024
HEADERS_LIMIT = 16
HEADER_NAME_LIMIT = 128
HEADER_VALUE_LIMIT = 256
"""With JSON's six bytes for a control character all caps together stay below 55 KiB; the stream takes 64 KiB."""


async def keep(bus: Bus, *, stream: str, received: Received, reason: str, timeout_s: float = 2.0) -> Stored:
    """Store a dead letter; `stream` is where it came from, "core" for messages without one. Errors as `Bus.store`."""
    return await codec.store(
        bus,
        DEAD_LETTERS,
        dead_letter(stream, received, reason),
        message_id=message_id(stream, received),
        timeout_s=timeout_s,
        stream=stream,
    )


async def keep_call(
    bus: Bus, *, received: Received, reason: str, namespace: str, function: str, timeout_s: float = 2.0
) -> Stored:
    """Store a call that was not run, apart from what services cannot read: a flood there stops no service."""
    return await codec.store(
        bus,
        DEAD_CALLS,
        dead_letter(CALLS.stream, received, reason),
        message_id=message_id(CALLS.stream, received),
        timeout_s=timeout_s,
        namespace=namespace,
        function=function,
    )


def dead_letter(stream: str, received: Received, reason: str) -> DeadLetter:
    """The letter, capped."""
    return DeadLetter(
        origin_stream=stream[:TEXT_LIMIT],
        origin_subject=received.subject[:TEXT_LIMIT],
        origin_sequence=received.sequence,
        reason=reason[:TEXT_LIMIT],
        raw_base64=base64.b64encode(received.data[:RAW_LIMIT]).decode("ascii"),
        truncated=len(received.data) > RAW_LIMIT,
        headers=_capped(received.headers),
    )


def message_id(stream: str, received: Received) -> str:
    """The origin: stream and sequence; what has no sequence is named by its content."""
    if received.sequence:
        return f"dead-{stream}-{received.sequence}"
    digest = hashlib.sha256(received.subject.encode() + b"\0" + received.data).hexdigest()
    return f"dead-{stream}-{digest[:32]}"


def _capped(headers: Headers) -> dict[str, str]:
    first = sorted(headers.items())[:HEADERS_LIMIT]
    return {name[:HEADER_NAME_LIMIT]: value[:HEADER_VALUE_LIMIT] for name, value in first}
