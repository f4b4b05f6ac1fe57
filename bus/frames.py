"""The bytes of one NATS message: pure encoders and parsers that never raise on what a stranger sent.

In: header blocks, subjects and reply subjects as they came from the socket. Out: `Header`, `AckReply`, `Received`; what
cannot be read as sent is delivered all the same, marked with the header `Gpubus-Malformed` and the part that was bad.
The stock client dies on three of these inputs (a subject that is not UTF-8, a header block of eight bytes, a status
line that is not UTF-8), and drops stored messages that carry a `Status` header as if the server had spoken.
Nothing here knows sockets, subscriptions or time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from bus.patterns import check_subject
from bus.protocol import MALFORMED, NO_HEADERS, Headers, Outgoing, Received

VERSION = b"NATS/1.0"
ACK_PREFIX = b"$JS.ACK."
STATUS = "Status"

_STATUS_DIGITS = 3
_CRLF = b"\r\n"
_KEY = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BREAKS = str.maketrans({"\r": " ", "\n": " "})


class Header(NamedTuple):
    """A header block; `status` is the number in its first line (0 = none), which only servers have reason to send."""

    status: int
    description: str
    headers: Headers
    malformed: str


class AckReply(NamedTuple):
    """What the reply subject of a JetStream delivery says."""

    sequence: int
    consumer_sequence: int
    stored_ns: int
    pending: int
    delivered: int = 1
    """How often this message has been handed out, this time included."""


NO_HEADER = Header(0, "", NO_HEADERS, "")


def parse_header(block: bytes | None) -> Header:
    """Read a header block; anything unreadable is named in `malformed`, never raised."""
    if not block:
        return NO_HEADER
    first, found, rest = block.partition(_CRLF)
    if not found or not first.startswith(VERSION):
        return Header(0, "", {}, "header")
    headers = _lines(rest)
    if first == VERSION:
        return Header(0, "", headers, "")
    code, _, text = first[len(VERSION) :].strip().partition(b" ")
    if not (first[len(VERSION) :].startswith(b" ") and code.isdigit() and len(code) <= _STATUS_DIGITS):
        return Header(0, "", headers, "status")
    return Header(int(code), text.decode("utf-8", "replace"), headers, "")


def _lines(raw: bytes) -> dict[str, str]:
    """`Name: value` per line. A line without a colon or with a name that is no token is left out."""
    out: dict[str, str] = {}
    for line in raw.split(_CRLF):
        name, found, value = line.partition(b":")
        if found:
            key = name.strip().decode("ascii", "replace")
            if _KEY.fullmatch(key):
                out[key] = value.strip().decode("utf-8", "replace")
    return out


def encode_header(headers: Headers) -> bytes:
    """The header block of an outgoing message, empty for none. Line breaks in values become spaces.

    Raises:
        ValueError: a name is not a token of printable ASCII.
    """
    if not headers:
        return b""
    return f"NATS/1.0\r\n{_written(headers)}\r\n".encode()


def _written(headers: Headers) -> str:
    return "".join([f"{_checked(key)}: {_one_line(value)}\r\n" for key, value in headers.items()])


@lru_cache(maxsize=256)
def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no header name")
    return key


def _one_line(value: str) -> str:
    return (value if value.isprintable() else value.translate(_BREAKS)).strip()


def store_header(m: Outgoing) -> bytes:
    """The header block of a store: the message's own headers and its conditions, which own ones do not replace."""
    conditions: dict[str, str] = {}
    if m.message_id is not None:
        conditions["Nats-Msg-Id"] = m.message_id
    if m.stream is not None:
        conditions["Nats-Expected-Stream"] = m.stream
    if m.expected_last is not None:
        conditions["Nats-Expected-Last-Subject-Sequence"] = str(m.expected_last)
    return encode_header({**m.headers, **conditions} if m.headers else conditions)


def publish_frame(subject: str, reply: str, header: bytes, data: bytes) -> bytes:
    """A PUB or HPUB command.

    Raises:
        ValueError: the subject cannot be sent.
    """
    check_subject(subject)
    if not header:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data)
    total = len(header) + len(data)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), reply.encode(), len(header), total, header, data)


def parse_ack_reply(reply: bytes) -> AckReply | None:
    """Position and stream sequence of a delivery, from both known forms of its reply subject.

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>                        9 tokens
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>   >= 11
    """
    tokens = reply.split(b".")
    start = 5 if len(tokens) == 9 else 7  # noqa: PLR2004 - the two forms drawn above
    try:
        delivered, sequence, consumer_sequence, stored_ns, pending = map(int, tokens[start - 1 : start + 4])
    except ValueError:
        return None
    return AckReply(sequence, consumer_sequence, stored_ns, pending, delivered)


def received(subject: bytes, data: bytes, header: Header, *, sequence: int = 0, stored_ns: int = 0) -> Received:
    """The message as handed on, marked where it could not be read as sent.

    A `Status` header or a status line on a message is a disguise: what servers say never gets here.
    """
    if header is NO_HEADER and subject.isascii():
        return Received(subject=subject.decode(), data=data, sequence=sequence, stored_at=stored_ns / 1e9)
    malformed = header.malformed
    if header.status or STATUS in header.headers:
        malformed = "status"
    if not subject.isascii():
        malformed = malformed or _subject_fault(subject)
    headers = {k: v for k, v in header.headers.items() if k not in (STATUS, MALFORMED)}
    if malformed:
        headers[MALFORMED] = malformed
    text = subject.decode("utf-8", "replace")
    return Received(subject=text, data=data, headers=headers, sequence=sequence, stored_at=stored_ns / 1e9)


def _subject_fault(subject: bytes) -> str:
    try:
        subject.decode()
    except UnicodeDecodeError:
        return "subject"
    return ""
