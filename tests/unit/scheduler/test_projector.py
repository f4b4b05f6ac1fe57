"""Events are told once and in order, whoever tells them and wherever the last one was cut off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import NotTogether, Outgoing, Stored
from contracts.outcomes import RequestEvent
from contracts.subjects import EVENTS, LEDGER
from scheduler.projector import NO_STEP, STEP, TOGETHER, Projector, newest_step, outgoing
from tests.builders.history import EPOCH, Log, accepted
from tests.contract.bus_worlds import collect


class Told:
    """A ledger whose last commits accept requests, on a bus of its own."""

    def __init__(self) -> None:
        self.bus = InMemoryBus(MemoryServer(), "test")
        self.log = Log()
        self.sent = 0

    async def accepts(self, *names: str) -> None:
        self.log.write(*(accepted(f"u-{name}", name) for name in names))
        for message in self.log.messages[self.sent :]:
            await self.bus.store(LEDGER.subject(pool="default"), message.data)
        self.sent = len(self.log.messages)

    def projector(self) -> Projector:
        return Projector(self.bus, self.log.state)

    def queued(self, projector: Projector) -> list[Outgoing]:
        return list(projector.queue)

    async def names(self) -> list[str]:
        return [json.loads(m.data)["name"] for m in await collect(self.bus, EVENTS.stream)]


@pytest.fixture
async def told() -> Told:
    there = Told()
    await there.bus.ensure_streams()
    return there


async def test_a_takeover_goes_on_behind_the_last_event_that_was_stored(told: Told) -> None:
    """Claim: a scheduler that was killed amid the events of the last commit leaves none untold and none told twice."""
    await told.accepts("a", "b")
    await told.accepts("c", "d", "e")
    first = told.projector()
    await first.catch_up()
    for message in told.queued(first)[:3]:
        await told.bus.store(message.subject, message.data, headers=message.headers)

    second = told.projector()
    await second.catch_up()
    await second.flush()

    assert await told.names() == ["a", "b", "c", "d", "e"]


async def test_who_takes_over_when_all_is_told_tells_nothing(told: Told) -> None:
    """Claim: also after the time in which the stream knows message ids again."""
    await told.accepts("a", "b")
    for _ in range(2):
        projector = told.projector()
        await projector.catch_up()
        await projector.flush()
        told.bus._server.streams[EVENTS.stream]._ids.clear()

    assert await told.names() == ["a", "b"]


async def test_reasons_behind_the_last_step_do_not_hide_it(told: Told) -> None:
    """Claim: two thousand times why somebody waits, and a takeover still knows where it is from the newest event."""
    await told.accepts("a", "b")
    projector = told.projector()
    await projector.catch_up()
    await projector.flush()
    waits = RequestEvent(namespace="default", name="a", phase="pending")
    many = [outgoing(waits, f"pending-{i}", projector.position) for i in range(2000)]
    await told.bus.store_many(many)

    second = told.projector()
    await second.catch_up()

    assert told.queued(second) == []
    assert second.position == projector.position


async def test_many_are_told_once_though_some_are_there_already(told: Told) -> None:
    """Claim: a batch that holds an event of before is refused whole, and then each is told by itself, once."""
    names = [f"r{index}" for index in range(3 * TOGETHER)]
    await told.accepts(*names)
    projector = told.projector()
    await projector.catch_up()
    await told.bus.store_many(told.queued(projector)[:5])

    await projector.flush()

    assert await told.names() == names


class Counting(InMemoryBus):
    """How many were stored as one, each time; a stream that never takes them so, if asked."""

    never = False

    def __init__(self) -> None:
        super().__init__(MemoryServer(), "test")
        self.together: list[int] = []

    async def store_together(self, messages: Sequence[Outgoing], *, timeout_s: float = 5.0) -> Stored:
        self.together.append(len(messages))
        if self.never:
            raise NotTogether("as it was made long ago", never=True)
        return await super().store_together(messages, timeout_s=timeout_s)


@pytest.mark.parametrize(("never", "tries"), [(False, [TOGETHER, TOGETHER]), (True, [TOGETHER])])
async def test_few_are_told_one_by_one_and_many_as_one(never: bool, tries: list[int]) -> None:
    """Claim: below a batch's worth one by one; where the stream never takes a batch it is not asked again."""
    told = Told()
    told.bus = bus = Counting()
    bus.never = never
    await bus.ensure_streams()
    projector = told.projector()
    names: list[str] = []
    for count in (TOGETHER, 3, TOGETHER):
        fresh = [f"r{len(names) + index}" for index in range(count)]
        names += fresh
        await told.accepts(*fresh)
        commit, sequence = told.log.commits[-1]
        projector.commit(commit, sequence)
        await projector.flush()

    assert bus.together == tries
    assert await told.names() == names


STEPS: list[tuple[list[str], Any]] = [
    ([], None),
    (["", "garbage", f"{EPOCH}-x-1", f"{EPOCH}-1"], None),
    ([f"{EPOCH}-7-3"], (7, 3)),
    ([f"{EPOCH}-7-3", f"{EPOCH}-7-11", f"{EPOCH}-6-99", ""], (7, 11)),
    (["other-9-9"], NO_STEP),
    (["other-9-9", f"{EPOCH}-2-0"], (2, 0)),
]


@pytest.mark.parametrize(("headers", "step"), STEPS)
def test_the_newest_step_is_read_from_headers(headers: list[str], step: Any) -> None:
    """Claim: the latest of this epoch; before the first one when they are of another; None when they say nothing."""
    event = RequestEvent(namespace="n", name="x", phase="pending")
    messages = [outgoing(event, "i", {STEP: h}) for h in headers]
    assert newest_step(messages, EPOCH) == step  # type: ignore[arg-type]  # both have headers
