"""Storing many messages as one, on both buses: all or none, in order, and what is refused."""

from __future__ import annotations

import pytest

from bus.protocol import Bus, NotTogether, Outgoing, PayloadTooLarge, Stored
from contracts.subjects import EVENTS, LEDGER
from tests.contract.bus_worlds import HEAD, collect


def _events(*ids: str, data: bytes = b"x") -> list[Outgoing]:
    return [
        Outgoing(
            subject=EVENTS.subject(namespace="team", name=f"r-{one}"),
            data=data + one.encode(),
            headers={"Mark": one},
            message_id=one,
            stream=EVENTS.stream,
        )
        for one in ids
    ]


async def test_all_are_stored_in_order(bus: Bus) -> None:
    """One answer for all: the sequence of the last; each has its own subject, header and bytes."""
    await bus.store(EVENTS.subject(namespace="team", name="first"), b"1")
    assert await bus.store_together(_events("a", "b", "c")) == Stored(sequence=4)
    found = (await collect(bus, EVENTS.stream))[1:]
    assert [(m.sequence, m.data, m.headers["Mark"]) for m in found] == [
        (2, b"xa", "a"),
        (3, b"xb", "b"),
        (4, b"xc", "c"),
    ]
    assert found[0].subject == EVENTS.subject(namespace="team", name="r-a")


async def test_one_alone_and_a_thousand(bus: Bus) -> None:
    """The least and the most that stand together."""
    assert await bus.store_together(_events("alone")) == Stored(sequence=1)
    assert await bus.store_together(_events(*map(str, range(1000)))) == Stored(sequence=1001)
    found = await collect(bus, EVENTS.stream)
    assert [m.data for m in found[1:]] == [b"x%d" % i for i in range(1000)]


async def test_an_id_that_is_known_makes_all_refused_and_each_alone_is_still_taken(bus: Bus) -> None:
    """After an unknown outcome: none is stored twice, whichever way it is repeated."""
    await bus.store_together(_events("a", "b"))
    with pytest.raises(NotTogether) as refused:
        await bus.store_together(_events("b", "c"))
    assert not refused.value.never
    again = await bus.store_many(_events("a", "b", "c"))
    assert [isinstance(one, Stored) and one.duplicate for one in again] == [True, True, False]
    assert [m.data for m in await collect(bus, EVENTS.stream)] == [b"xa", b"xb", b"xc"]


async def test_a_stream_that_does_not_take_them_says_so(bus: Bus) -> None:
    """The ledger takes its commits one by one: no use to try again."""
    with pytest.raises(NotTogether) as refused:
        await bus.store_together([Outgoing(subject=HEAD, data=b"%d" % i, stream=LEDGER.stream) for i in range(2)])
    assert refused.value.never
    assert await collect(bus, LEDGER.stream) == []


async def test_one_that_is_too_large_keeps_all_out(bus: Bus) -> None:
    """Before anything is sent."""
    large = _events("big", data=b"x" * 1024 * 1024)
    with pytest.raises(PayloadTooLarge):
        await bus.store_together([*_events("a"), *large])
    assert await collect(bus, EVENTS.stream) == []
