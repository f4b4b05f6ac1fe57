"""The small decisions of the bus: patterns, acknowledgements, deliveries, windows, the watchdog, configurations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.acks import read_ack
from bus.cursor import judge, same_stream
from bus.frames import AckReply
from bus.nats_reader import consumer_config
from bus.patterns import check_subject, covers
from bus.protocol import (
    BusError,
    BusUnavailable,
    Outgoing,
    PayloadTooLarge,
    SequenceConflict,
    Stored,
    StreamFull,
    StreamMismatch,
)
from bus.storing import WINDOW_BYTES, WINDOW_MESSAGES, windows
from bus.streams import verify, wire_config
from bus.watchdog import CLOSE_AFTER, Pulse
from contracts.subjects import STREAMS


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "a", False),
        ("a.*.c", "a.b.c", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*", "a", True),
        ("a.*.>", "a.b", False),
        ("a.*.>", "a.b.c.d", True),
    ],
)
def test_patterns_cover_subjects(pattern: str, subject: str, expected: bool) -> None:
    """The rules of NATS: `*` is one token, `>` at least one."""
    assert covers(pattern, subject) is expected


@given(st.text(max_size=20))
def test_a_subject_is_printable_ascii_or_refused(subject: str) -> None:
    """Nothing that ends a token or a line gets through."""
    try:
        check_subject(subject)
    except ValueError:
        return
    assert subject
    assert all("!" <= c <= "~" for c in subject)


def answer(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def refused(code: int, err_code: int, description: str = "") -> bytes:
    return answer(error={"code": code, "err_code": err_code, "description": description}, stream="S", seq=0)


ACKS: dict[str, tuple[bytes, type, str]] = {
    "wrong sequence with number": (refused(400, 10071, "wrong last sequence: 17"), SequenceConflict, "found 17"),
    "wrong sequence without": (refused(400, 10164, "wrong last sequence"), SequenceConflict, "found another"),
    "limit of the stream": (refused(503, 10077, "maximum messages exceeded"), StreamFull, "10077"),
    "no storage left": (refused(500, 10047, "insufficient storage resources"), StreamFull, "10047"),
    "too large": (refused(400, 10054, "message size exceeds maximum allowed"), PayloadTooLarge, "the limit is 65536"),
    "other stream": (refused(400, 10060, "expected stream does not match"), StreamMismatch, "10060"),
    "server busy": (refused(429, 10167, "too many requests"), BusUnavailable, "10167"),
    "no leader": (refused(503, 10008, "JetStream system temporarily unavailable"), BusUnavailable, "10008"),
    "a bug of ours": (refused(400, 10052, "invalid"), BusError, "10052"),
    "empty": (b"", BusUnavailable, "unknown"),
    "no JSON": (b"\xff", BusUnavailable, "unknown"),
    "no sequence": (answer(stream="S"), BusUnavailable, "unknown"),
    "other types": (answer(stream=1, seq="x"), BusUnavailable, "unknown"),
}


@pytest.mark.parametrize(("data", "kind", "text"), ACKS.values(), ids=ACKS)
def test_a_refusal_becomes_its_error(data: bytes, kind: type, text: str) -> None:
    """Each row: the server's answer, the error, a part of its text."""
    error = read_ack(data, subject="gpubus.v1.requests.a", size=70_000, expected=3)

    assert type(error) is kind
    assert text in str(error)


def test_an_acknowledgement_is_read() -> None:
    """Sequence and duplicate flag; fields that we do not know are ignored."""
    assert read_ack(answer(stream="S", seq=7), subject="a", size=0, expected=None) == Stored(sequence=7)
    assert read_ack(answer(stream="S", seq=7, duplicate=True, new=1), subject="a", size=0, expected=None) == Stored(
        sequence=7, duplicate=True
    )


@given(st.binary(max_size=60))
def test_no_answer_raises(data: bytes) -> None:
    """Whatever answers, the result is a value."""
    assert isinstance(read_ack(data, subject="a", size=0, expected=None), Stored | BusError)


@pytest.mark.parametrize(
    ("position", "deliveries", "sequence", "consumer_sequence", "verdict"),
    [
        (1, 0, 1, 1, "take"),
        (5, 3, 9, 4, "take"),  # replaced and aged messages leave gaps in the stream's count
        (5, 3, 4, 4, "skip"),
        (5, 3, 5, 5, "odd"),
        (5, 3, 5, 3, "odd"),
    ],
)
def test_a_delivery_is_judged(
    position: int, deliveries: int, sequence: int, consumer_sequence: int, verdict: str
) -> None:
    """The consumer's count must be gapless; the stream's sequence must not have been seen."""
    assert judge(position, deliveries, AckReply(sequence, consumer_sequence, 0, 0)) == verdict


@pytest.mark.parametrize(
    ("known", "position", "last", "fine"),
    [("", 1, 0, True), ("", 4, 3, True), ("c", 4, 9, True), ("", 5, 3, False), ("other", 4, 9, False)],
)
def test_a_stream_is_the_same_or_refused(known: str, position: int, last: int, fine: bool) -> None:
    """Same creation time, and its end is not before what was read."""
    if fine:
        same_stream("S", known=known, created="c", position=position, last=last)
        return
    with pytest.raises(StreamMismatch):
        same_stream("S", known=known, created="c", position=position, last=last)


@given(st.lists(st.integers(0, 3 * 1024 * 1024), max_size=40), st.integers(0, 3))
def test_windows_keep_order_and_bounds(sizes: list[int], extra: int) -> None:
    """All messages, in order, in runs that are small enough unless a single message is not."""
    small = [Outgoing(subject="a", data=b"")] * (extra * WINDOW_MESSAGES)
    messages = [Outgoing(subject=str(i), data=bytes(size)) for i, size in enumerate(sizes)] + small

    runs = windows(messages)

    assert [m for run in runs for m in run] == messages
    assert all(0 < len(run) <= WINDOW_MESSAGES for run in runs)
    assert all(len(run) == 1 or sum(len(m.data) for m in run) <= WINDOW_BYTES for run in runs)


def test_the_watchdog_counts_misses_in_a_row() -> None:
    """Nothing, nothing, a new connection, nothing, nothing, the end; one answer begins anew."""
    pulse = Pulse()
    steps = [pulse.beat(answered=False) for _ in range(CLOSE_AFTER)]

    assert steps == ["nothing", "nothing", "reconnect", "nothing", "nothing", "close"]
    assert not pulse.alive
    assert pulse.beat(answered=True) == "nothing"
    assert pulse.alive
    assert pulse.beat(answered=False) == "nothing"


def test_dead_tasks_need_no_patience() -> None:
    """A connection whose read loop is dead is replaced at the first look."""
    assert Pulse().beat(answered=False, reading=False) == "reconnect"


@pytest.mark.parametrize("stream", STREAMS, ids=lambda s: s.name)
def test_a_stream_as_created_is_as_promised(stream: Any) -> None:
    """The configuration passes its own check; the description and the server's metadata do not matter."""
    config = wire_config(stream, replicas=3)
    verify(stream, {**config, "description": "another", "metadata": {"_nats.level": "1"}}, replicas=3)
    verify(stream, {**config, "subjects": config["subjects"][::-1], "persist_mode": "default"}, replicas=3)


@pytest.mark.parametrize("field", sorted(set(wire_config(STREAMS[0], replicas=1)) - {"description"}))
def test_each_field_is_compared(field: str) -> None:
    """Whatever field is different or missing, it is named with both values."""
    config = wire_config(STREAMS[0], replicas=1)
    for found in ({**config, field: "other"}, {k: v for k, v in config.items() if k != field}):
        with pytest.raises(StreamMismatch) as caught:
            verify(STREAMS[0], found, replicas=1)
        assert (STREAMS[0].name, field, config[field]) == (caught.value.stream, caught.value.field, caught.value.wanted)


@pytest.mark.parametrize("option", ["allow_rollup_hdrs", "sealed", "no_ack", "discard_new_per_subject"])
def test_an_option_that_breaks_a_promise_is_refused(option: str) -> None:
    """Options that the server leaves out when off are seen when on."""
    with pytest.raises(StreamMismatch, match=option):
        verify(STREAMS[0], {**wire_config(STREAMS[0], replicas=1), option: True}, replicas=1)


def test_a_reading_consumer_is_a_throw_away() -> None:
    """No acks, no durable state, from the position on, and the server forgets it by itself."""
    config = consumer_config("c", 7, "a.*")

    assert (
        config["ack_policy"],
        config["opt_start_seq"],
        config["deliver_policy"],
        config["filter_subject"],
        config["mem_storage"],
    ) == ("none", 7, "by_start_sequence", "a.*", True)
    assert "durable_name" not in config
    assert config["inactive_threshold"] > 0
    assert "filter_subject" not in consumer_config("c", 7, ">")
