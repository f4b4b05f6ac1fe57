"""Typed messages: what is ours goes out and comes back, what is a stranger's ends as a reason with a path."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider

from bus import codec, deadletter, headers
from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import MALFORMED, Received
from bus.runtime.tracing import span_context_from, traceparent_of
from contracts.answers import AskState
from contracts.messages import encode
from contracts.outcomes import AskAllocations, DeadLetter
from contracts.subjects import ALLOCATIONS, CHANNELS, DEAD_LETTERS, STATE

TRACER = TracerProvider().get_tracer("test")


def got(data: bytes, subject: str = STATE.pattern, **fields: object) -> Received:
    return Received(subject=subject, data=data, **fields)  # type: ignore[arg-type]


BAD = {
    "no JSON": (b"x", "$", "malformed"),
    "nothing": (b"", "$", "truncated"),
    "other tag": (b'{"type":"what"}', "$.type", "Invalid value 'what'"),
    "missing field": (b'{"type":"ask.state.v1"}', "$", "what"),
    "out of bounds": (b'{"type":"ask.state.v1","what":"cards","limit":0}', "$.limit", ">= 1"),
    "other type": (b'{"type":"ask.state.v1","what":"cards","limit":"x"}', "$.limit", "int"),
    "not UTF-8": (b'{"type":"ask.state.v1","what":"cards","after":"\xff"}', "$", "utf"),
    "very deep": (b'{"type":"ask.state.v1","x":' + b"[" * 100_000, "$", ""),
}


@pytest.mark.parametrize(("data", "path", "text"), BAD.values(), ids=BAD)
def test_what_cannot_be_decoded_is_a_reason_with_a_path(data: bytes, path: str, text: str) -> None:
    """Each row: bytes, where the fault is, a part of the reason."""
    malformed = codec.decode(STATE, got(data))

    assert isinstance(malformed, codec.Malformed)
    assert path == malformed.path
    assert text.lower() in malformed.reason.lower()


@given(st.binary(max_size=200), st.sampled_from([c for c in CHANNELS if c.messages]))
def test_no_bytes_raise(data: bytes, channel: object) -> None:
    """Any bytes on any channel become a value."""
    codec.decode(channel, got(data))  # type: ignore[arg-type]


def test_a_frame_that_was_marked_is_malformed() -> None:
    """Bytes that could not be read as sent are not decoded, even when the payload is fine."""
    message = got(encode(AskState(what="cards")), headers={MALFORMED: "status"})

    assert codec.decode(STATE, message) == codec.Malformed(reason="the status of the message cannot be read as sent")


def test_only_messages_of_the_channel_are_sent() -> None:
    """A mix-up is our bug and raises before anything is sent."""
    with pytest.raises(TypeError, match="AskAllocations does not belong on channel state"):
        codec.outgoing(STATE, AskAllocations())


async def test_the_trace_travels() -> None:
    """store, publish and ask carry the current trace; the receiver continues it."""
    bus = InMemoryBus(MemoryServer(), "one")
    await bus.ensure_streams()
    seen: list[Received] = []

    async def answer(message: Received) -> bytes:
        seen.append(message)
        return encode(AskAllocations())

    with TRACER.start_as_current_span("submit") as span:
        async with bus.respond(ALLOCATIONS.subject(), answer):
            await codec.ask(bus, ALLOCATIONS, AskAllocations(), AskAllocations)
        letter = DeadLetter(origin_stream="s", origin_subject="x", origin_sequence=1, reason="r")
        await codec.store(bus, DEAD_LETTERS, letter, stream="S")
        kept = await bus.last("GPUBUS_DEADLETTERS", "gpubus.v1.deadletters.S")

    trace_id = span.get_span_context().trace_id
    assert kept is not None
    for message in (seen[0], kept):
        sent = span_context_from(headers.traceparent_in(message.headers))
        assert sent is not None
        assert sent.trace_id == trace_id


def test_trace_context_comes_back() -> None:
    """Inject, and read it again; other spellings of the name; nothing is no trace and adds nothing."""
    with TRACER.start_as_current_span("x") as span:
        carrier = headers.inject({"a": "b"})

    text = headers.traceparent_in(carrier)
    assert carrier == {"a": "b", "traceparent": text}
    assert headers.traceparent_in({"x": "y", "Traceparent": text}) == text == traceparent_of(span)
    assert headers.traceparent_in({"a": "b"}) == headers.traceparent_in({}) == ""
    assert headers.inject({"a": "b"}) == {"a": "b"}


@given(
    st.text(max_size=2000),
    st.text(max_size=2000),
    st.binary(max_size=200),
    st.dictionaries(st.text(max_size=300), st.text(max_size=600), max_size=30),
)
def test_a_dead_letter_always_fits(subject: str, reason: str, data: bytes, carried: dict[str, str]) -> None:
    """Whatever a stranger sent, the letter is below the stream's limit and can be decoded again."""
    message = Received(subject=subject, data=data * 200, headers=carried)
    letter = deadletter.dead_letter("S", message, reason)
    wire = encode(letter)

    assert len(wire) < 60_000
    assert codec.decode(DEAD_LETTERS, got(wire)) == letter


def test_the_worst_dead_letter_fits() -> None:
    """Every cap reached, every character six bytes in JSON."""
    worst = "\x01" * 10_000
    message = Received(subject=worst, data=b"\xff" * 100_000, headers={f"{worst}{i}": worst for i in range(100)})
    letter = deadletter.dead_letter("S", message, worst)

    assert len(json.dumps(encode(letter).decode())) > 16_384
    assert len(encode(letter)) < 64 * 1024 - 1024
    assert letter.truncated


def test_a_dead_letter_is_named_by_its_origin() -> None:
    """Same origin, same id; messages without a sequence are named by their content."""
    assert deadletter.message_id("S", got(b"a", sequence=3)) == deadletter.message_id("S", got(b"b", sequence=3))
    assert deadletter.message_id("S", got(b"a")) == deadletter.message_id("S", got(b"a"))
    assert deadletter.message_id("S", got(b"a")) != deadletter.message_id("S", got(b"b"))


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
def test_the_senders_traceparent_is_found_however_its_name_is_spelt(name: str) -> None:
    """Claim: clients in Go write header names with a capital; their requests go on in their trace all the same."""
    assert headers.traceparent_in({"x": "y", name: "00-ab-cd-01"}) == "00-ab-cd-01"
    assert headers.traceparent_in({"x": "y"}) == ""
