"""The bytes of a message: what any stranger sends is read or marked, never raised, and ours come back as sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.frames import (
    NO_HEADER,
    AckReply,
    Header,
    encode_header,
    parse_ack_reply,
    parse_header,
    publish_frame,
    received,
    store_header,
)
from bus.protocol import MALFORMED, Outgoing

HEADER_TABLE = {
    "none": (None, NO_HEADER),
    "empty bytes": (b"", NO_HEADER),
    "no headers": (b"NATS/1.0\r\n\r\n", Header(0, "", {}, "")),
    "two": (b"NATS/1.0\r\na: 1\r\nB:2\r\n\r\n", Header(0, "", {"a": "1", "B": "2"}, "")),
    "last of a name wins": (b"NATS/1.0\r\na: 1\r\na: 2\r\n\r\n", Header(0, "", {"a": "2"}, "")),
    "colon in the value": (b"NATS/1.0\r\na: b: c\r\n\r\n", Header(0, "", {"a": "b: c"}, "")),
    "value is not UTF-8": (b"NATS/1.0\r\na: \xff\r\n\r\n", Header(0, "", {"a": "\ufffd"}, "")),
    "name is no token": (b"NATS/1.0\r\na b: 1\r\n\xff: 1\r\n: 1\r\nok: 1\r\n\r\n", Header(0, "", {"ok": "1"}, "")),
    "no colon": (b"NATS/1.0\r\nnothing\r\n\r\n", Header(0, "", {}, "")),
    "eight bytes": (b"NATS/1.0", Header(0, "", {}, "header")),
    "four bytes": (b"NATS", Header(0, "", {}, "header")),
    "other version": (b"HTTP/1.1\r\na: 1\r\n\r\n", Header(0, "", {}, "header")),
    "status": (b"NATS/1.0 503\r\n\r\n", Header(503, "", {}, "")),
    "status with text": (b"NATS/1.0 404 No Messages\r\n\r\n", Header(404, "No Messages", {}, "")),
    "status and headers": (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 7\r\n\r\n",
        Header(408, "Request Timeout", {"Nats-Pending-Messages": "7"}, ""),
    ),
    "status is not UTF-8": (b"NATS/1.0 \xff\xfe\r\n\r\n", Header(0, "", {}, "status")),
    "status is a word": (b"NATS/1.0 no\r\n\r\n", Header(0, "", {}, "status")),
    "status too long": (b"NATS/1.0 4040\r\n\r\n", Header(0, "", {}, "status")),
    "status without blank": (b"NATS/1.0404\r\n\r\n", Header(0, "", {}, "status")),
    "description is not UTF-8": (b"NATS/1.0 404 \xff\r\n\r\n", Header(404, "\ufffd", {}, "")),
}


@pytest.mark.parametrize(("block", "expected"), HEADER_TABLE.values(), ids=HEADER_TABLE)
def test_a_header_block_is_read(block: bytes | None, expected: Header) -> None:
    """Each row: the bytes, and what is read in them."""
    assert expected == parse_header(block)


STARTS = st.sampled_from([b"", b"NATS/1.0", b"NATS/1.0 ", b"NATS/1.0\r\n"])


@given(st.binary(max_size=200), STARTS, st.binary(max_size=40))
def test_no_bytes_raise(block: bytes, start: bytes, subject: bytes) -> None:
    """Any header block and any subject become a message."""
    message = received(subject, b"", parse_header(start + block))

    assert "Status" not in message.headers


TOKENS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=10)


@given(st.dictionaries(TOKENS.filter(lambda k: k not in ("Status", MALFORMED)), st.text(max_size=20), max_size=5))
def test_headers_come_back(headers: dict[str, str]) -> None:
    """encode, parse: the same, but for line breaks and blanks at the ends."""
    block = encode_header(headers)

    wanted = {name: value.replace("\r", " ").replace("\n", " ").strip() for name, value in headers.items()}
    assert parse_header(block).headers == wanted
    assert received(b"a", b"", parse_header(block)).malformed == ""


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\r\nb", "a\0"])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    """A header name cannot smuggle in another line."""
    with pytest.raises(ValueError):
        encode_header({name: "x"})


def test_line_breaks_in_a_value_cannot_start_a_header() -> None:
    """The value stays one value."""
    assert parse_header(encode_header({"a": "1\r\nNats-Rollup: all"})).headers == {"a": "1  Nats-Rollup: all"}


def test_frames_carry_their_sizes() -> None:
    """PUB without headers; HPUB with both sizes."""
    assert publish_frame("a.b", "", b"", b"xy") == b"PUB a.b  2\r\nxy\r\n"
    assert publish_frame("a.b", "r", b"NATS/1.0\r\n\r\n", b"xy") == b"HPUB a.b r 12 14\r\nNATS/1.0\r\n\r\nxy\r\n"


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_sizes_are_exact(header: bytes, data: bytes) -> None:
    """The server counts on them: everything behind the line is header, payload and one line break."""
    line, _, rest = publish_frame("a", "", header, data).partition(b"\r\n")

    assert rest == header + data + b"\r\n"
    assert int(line.split()[-1]) == len(header) + len(data)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"$JS.ACK.S.C.1.17.3.1700000000000000000.9", AckReply(17, 3, 1_700_000_000_000_000_000, 9)),
        (b"$JS.ACK._.hash.S.C.1.17.3.1700000000000000000.9", AckReply(17, 3, 1_700_000_000_000_000_000, 9)),
        (b"$JS.ACK.dom.hash.S.C.1.17.3.1700000000000000000.9.token", AckReply(17, 3, 1_700_000_000_000_000_000, 9)),
        (b"$JS.ACK.S.C.1.x.3.1.9", None),
        (b"$JS.ACK.", None),
        (b"", None),
        (b"$JS.ACK.\xff.\xff.1.1.1.1.\xff", None),
    ],
)
def test_both_forms_of_ack_subjects_are_read(reply: bytes, expected: AckReply | None) -> None:
    """Old and new form; anything else is None."""
    assert expected == parse_ack_reply(reply)


@pytest.mark.parametrize(
    ("subject", "header", "mark"),
    [
        (b"a.b", NO_HEADER, ""),
        (b"a.\xff", NO_HEADER, "subject"),
        ("a.ä".encode(), NO_HEADER, ""),
        (b"a", Header(0, "", {"Status": "404"}, ""), "status"),
        (b"a", Header(404, "", {}, ""), "status"),
        (b"a", Header(0, "", {}, "header"), "header"),
        (b"a", Header(0, "", {MALFORMED: "no"}, ""), ""),
    ],
)
def test_marks(subject: bytes, header: Header, mark: str) -> None:
    """What could not be read as sent is named; nobody else can set the mark."""
    assert received(subject, b"", header).malformed == mark


def test_conditions_of_a_store_are_headers() -> None:
    """Message id, stream and expected sequence, beside the message's own headers; none for none."""
    full = Outgoing(subject="a", data=b"", headers={"x": "y"}, message_id="m", expected_last=0, stream="S")

    assert parse_header(store_header(full)).headers == {
        "x": "y",
        "Nats-Msg-Id": "m",
        "Nats-Expected-Stream": "S",
        "Nats-Expected-Last-Subject-Sequence": "0",
    }
    assert store_header(Outgoing(subject="a", data=b"")) == b""
