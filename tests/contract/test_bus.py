"""Storing, on both buses: acknowledgements, conditions, duplicates, limits. What is asked here, both do."""

from __future__ import annotations

import asyncio

import pytest

from bus.protocol import (
    Bus,
    BusError,
    BusUnavailable,
    Outgoing,
    PayloadTooLarge,
    SequenceConflict,
    Stored,
    StreamFull,
    StreamMismatch,
)
from contracts.subjects import EVENTS, LEDGER, REQUESTS
from contracts.subjects import stream as declared
from tests.contract.bus_worlds import FACTS_STREAM, HEAD, LEDGER_STREAM, REQUESTS_STREAM, World, collect


async def test_sequences_start_at_one_and_grow_by_one(bus: Bus) -> None:
    """An acknowledgement carries the message's sequence in its stream."""
    got = [await bus.store(HEAD, b"x") for _ in range(3)]

    assert [Stored(sequence=1), Stored(sequence=2), Stored(sequence=3)] == got
    assert await bus.last_sequence(LEDGER_STREAM) == 3
    assert await bus.first_sequence(LEDGER_STREAM) == 1


async def test_an_empty_stream_ends_at_zero_and_begins_at_one(bus: Bus) -> None:
    """Nothing stored yet: last 0, first 1, no last message."""
    assert await bus.last_sequence(LEDGER_STREAM) == 0
    assert await bus.first_sequence(LEDGER_STREAM) == 1
    assert await bus.last(LEDGER_STREAM, HEAD) is None


async def test_the_last_message_of_a_subject(bus: Bus) -> None:
    """`last` gives the newest message of that literal subject with its headers and sequence."""
    await bus.store(HEAD, b"old")
    await bus.store(HEAD, b"new", headers={"a": "b"})
    await bus.store(LEDGER.subject(pool="q"), b"other")

    message = await bus.last(LEDGER_STREAM, HEAD)

    assert message is not None
    assert (message.data, message.sequence, dict(message.headers)) == (b"new", 2, {"a": "b"})
    assert message.stored_at > 1_700_000_000


async def test_compare_and_set_refuses_the_stale_author(bus: Bus) -> None:
    """Expecting a sequence that is not the subject's last stores nothing and tells the present one."""
    await bus.store(HEAD, b"1", expected_last=0)
    with pytest.raises(SequenceConflict) as caught:
        await bus.store(HEAD, b"2", expected_last=0)

    assert (caught.value.subject, caught.value.expected, caught.value.last) == (HEAD, 0, 1)
    assert await bus.last_sequence(LEDGER_STREAM) == 1
    assert await bus.store(HEAD, b"2", expected_last=1) == Stored(sequence=2)


async def test_compare_and_set_looks_at_its_own_subject_only(bus: Bus) -> None:
    """Another subject of the same stream moves the sequence, not the condition."""
    await bus.store(LEDGER.subject(pool="q"), b"other")

    assert await bus.store(HEAD, b"1", expected_last=0) == Stored(sequence=2)


async def test_of_twenty_authors_one_wins(world: World, bus: Bus) -> None:
    """The same expectation from many clients at once: exactly one is stored."""
    clients = [await world.client(f"author{i}") for i in range(4)]
    results = await asyncio.gather(
        *(clients[i % 4].store(HEAD, b"%d" % i, expected_last=0) for i in range(20)), return_exceptions=True
    )

    assert [Stored(sequence=1)] == [r for r in results if isinstance(r, Stored)]
    assert all(isinstance(r, SequenceConflict) for r in results if not isinstance(r, Stored))


async def test_a_repeated_message_id_is_told_and_not_stored(bus: Bus) -> None:
    """The second message of an id gets the first one's sequence and the duplicate flag, whatever its subject."""
    first = await bus.store(EVENTS.subject(namespace="alice", name="a"), b"hers", message_id="m")
    second = await bus.store(EVENTS.subject(namespace="bob", name="b"), b"his", message_id="m")

    assert (Stored(sequence=1), Stored(sequence=1, duplicate=True)) == (first, second)
    assert [m.data for m in await collect(bus, EVENTS.stream)] == [b"hers"]


async def test_nobody_can_take_the_ids_of_other_tenants_requests(bus: Bus) -> None:
    """Where strangers publish, an id is forgotten at once: who sends one that somebody squats is kept all the same."""
    await bus.store(REQUESTS.subject(namespace="alice"), b"hers", message_id="m")
    for _ in range(600):  # the server forgets after 0.1 s; after two minutes elsewhere
        if not (await bus.store(REQUESTS.subject(namespace="bob"), b"his", message_id="m")).duplicate:
            break
        await asyncio.sleep(0.05)

    assert [m.data for m in await collect(bus, REQUESTS_STREAM)] == [b"hers", b"his"]


async def test_a_condition_is_judged_before_the_message_id(bus: Bus) -> None:
    """Repeating a conditional store that had succeeded is a conflict whose `last` is the own first try."""
    await bus.store(HEAD, b"1", expected_last=0, message_id="m")
    with pytest.raises(SequenceConflict) as caught:
        await bus.store(HEAD, b"1", expected_last=0, message_id="m")

    assert caught.value.last == 1


async def test_a_subject_without_a_stream_is_unavailable_at_once(bus: Bus) -> None:
    """No stream takes the subject: no waiting for the timeout."""
    async with asyncio.timeout(2):
        with pytest.raises(BusUnavailable):
            await bus.store("gpubus.v1.nowhere", b"x", timeout_s=60)


async def test_the_named_stream_is_checked(bus: Bus) -> None:
    """A subject that another stream keeps is refused when the stream is named."""
    with pytest.raises(StreamMismatch):
        await bus.store(HEAD, b"x", stream=REQUESTS_STREAM)

    assert await bus.store(HEAD, b"x", stream=LEDGER_STREAM) == Stored(sequence=1)


async def test_a_message_above_the_streams_limit_is_refused(bus: Bus) -> None:
    """64 KiB is the limit of the requests stream; headers count."""
    subject, limit = REQUESTS.subject(namespace="a"), declared(REQUESTS_STREAM).max_msg_bytes
    await bus.store(subject, b"x" * limit)
    with pytest.raises(PayloadTooLarge) as caught:
        await bus.store(subject, b"x" * limit, headers={"a": "b"})

    assert caught.value.limit == limit
    assert caught.value.size > limit


async def test_a_message_above_the_servers_limit_is_refused_and_the_bus_lives(bus: Bus) -> None:
    """Payload under the limit, with headers over it: refused before it is sent, for each way of sending."""
    big = b"x" * (1024 * 1024 - 10)
    for send in (bus.publish, bus.store, bus.request):
        with pytest.raises(PayloadTooLarge):
            await send(HEAD, big, headers={"header": "value"})

    assert await bus.store(HEAD, b"x") == Stored(sequence=1)


async def test_a_full_stream_refuses_and_keeps_what_it_has(bus: Bus) -> None:
    """`discard: new`: at the byte limit the new message is refused, none is dropped."""
    stored = 0
    refused: BusError | None = None
    while refused is None and stored < 40:
        try:
            await bus.store(f"gpubus.v1.leases.l{stored}", b"x" * 60_000)
            stored += 1
        except BusError as error:
            refused = error

    assert isinstance(refused, StreamFull)
    assert 10 < stored < 40
    assert await bus.last_sequence("GPUBUS_LEASES") == stored
    assert len(await collect(bus, "GPUBUS_LEASES")) == stored


async def test_many_are_stored_in_order_with_one_result_each(bus: Bus) -> None:
    """Conflicts and oversized messages are results among the others, and stop nothing."""
    results = await bus.store_many(
        [
            Outgoing(subject=HEAD, data=b"1", expected_last=0),
            Outgoing(subject=HEAD, data=b"2", expected_last=0),
            Outgoing(subject=HEAD, data=b"x" * 2_000_000),
            Outgoing(subject=HEAD, data=b"3", message_id="m"),
            Outgoing(subject=HEAD, data=b"4", message_id="m"),
            Outgoing(subject="gpubus.v1.nowhere", data=b"5"),
        ]
    )

    assert Stored(sequence=1) == results[0]
    assert [SequenceConflict, PayloadTooLarge] == [type(r) for r in results[1:3]]
    assert [Stored(sequence=2), Stored(sequence=2, duplicate=True)] == results[3:5]
    assert isinstance(results[5], BusUnavailable)
    assert [m.data for m in await collect(bus, LEDGER_STREAM)] == [b"1", b"3"]


async def test_more_than_one_window_of_many(bus: Bus) -> None:
    """More messages than may be in flight: all stored, in order."""
    results = await bus.store_many([Outgoing(subject=HEAD, data=b"%d" % i) for i in range(1300)])

    assert [Stored(sequence=i + 1) for i in range(1300)] == results
    assert [b"%d" % i for i in range(1300)] == [m.data for m in await collect(bus, LEDGER_STREAM)]
    assert await bus.store_many([]) == []


async def test_last_only_keeps_the_newest_of_each_subject(bus: Bus) -> None:
    """A stream of facts holds one message a subject, and reading it skips the gaps."""
    for number in range(3):
        for node in ("a", "b"):
            await bus.store(f"gpubus.v1.nodes.{node}.facts", b"%d" % number)

    found = await collect(bus, FACTS_STREAM)

    assert [(m.sequence, m.data) for m in found] == [(5, b"2"), (6, b"2")]
    assert await bus.first_sequence(FACTS_STREAM) == 5


async def test_a_bare_publish_is_kept_by_the_stream(bus: Bus) -> None:
    """A stream takes what is published on its subjects, acknowledged or not."""
    await bus.publish(REQUESTS.subject(namespace="a"), b"bare")
    await bus.store(REQUESTS.subject(namespace="a"), b"acked")

    assert [m.data for m in await collect(bus, REQUESTS_STREAM)] == [b"bare", b"acked"]


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB x 0", "a\tb", "knoten.ä"])
async def test_a_subject_that_could_inject_commands_is_refused(bus: Bus, subject: str) -> None:
    """Blanks, line breaks and non-ASCII never reach the wire."""
    for send in (bus.publish, bus.store, bus.request):
        with pytest.raises(ValueError):
            await send(subject, b"x")


async def test_headers_come_back_as_sent(bus: Bus) -> None:
    """Any text in values survives, line breaks become blanks, case of names is kept."""
    await bus.store(HEAD, b"x", headers={"traceparent": "00-a-b-03", "X-Name": "grün: ✓", "break": "a\r\nb: c"})

    (message,) = await collect(bus, LEDGER_STREAM)

    assert dict(message.headers) == {"traceparent": "00-a-b-03", "X-Name": "grün: ✓", "break": "a  b: c"}
    assert message.malformed == ""


async def test_a_status_header_is_a_disguise(bus: Bus) -> None:
    """A stored message with a `Status` header is delivered and marked, not taken for the server's word."""
    await bus.store(REQUESTS.subject(namespace="a"), b"x", headers={"Status": "404"})

    (message,) = await collect(bus, REQUESTS_STREAM)

    assert (message.data, message.malformed) == (b"x", "status")
