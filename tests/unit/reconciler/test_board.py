"""The last word on each subject, on the bus in memory and virtual time: only news, always the newest, never lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from bus.memory import Fault, InMemoryBus, MemoryServer
from contracts.decisions import CardSlice
from contracts.inventory import NodeFacts
from contracts.messages import encode
from contracts.outcomes import NodeShares, Outcome, ShareAssignment
from contracts.subjects import NODE_FACTS, OUTCOMES, SHARES
from contracts.units import CardUuid, NodeName, RequestUid
from reconciler.board import Board, Word

pytestmark = pytest.mark.looptime

SUBJECT = OUTCOMES.subject(namespace="default", name="train")
FACTS = NODE_FACTS.subject(node="n1")
SHARES_SUBJECT = SHARES.subject(node="n1")


def outcome(phase: str, **fields: object) -> Outcome:
    return Outcome(uid=RequestUid("u1"), namespace="default", name="train", phase=phase, pod="p", **fields)  # type: ignore[arg-type]


def shares(sequence: int, *cards: str, epoch: str = "e") -> NodeShares:
    pieces = (CardSlice(card=CardUuid(card), share_milli=1, memory_mib=1) for card in cards)
    assignments = tuple(
        ShareAssignment(uid=RequestUid("u"), namespace="d", pod="p", card=p.card, share_milli=1, memory_mib=1)
        for p in pieces
    )
    return NodeShares(node=NodeName("n1"), epoch=epoch, ledger_sequence=sequence, assignments=assignments)


class World:
    def __init__(self) -> None:
        self.server = MemoryServer()
        self.server.create_streams()
        self.bus = InMemoryBus(self.server, "reader")
        self.board = self.another("one")

    def another(self, name: str) -> Board:
        return Board(InMemoryBus(self.server, name), name, rng=random.Random(1))

    async def stands(self, subject: str, kind: type[Word]) -> Word | None:
        stream = OUTCOMES.stream if kind is Outcome else NODE_FACTS.stream
        message = await self.bus.last(stream, subject)
        return msgspec.json.decode(message.data, type=kind) if message else None

    async def stored(self) -> int:
        """How many messages were ever stored on the streams of the board."""
        return await self.bus.last_sequence(OUTCOMES.stream) + await self.bus.last_sequence(NODE_FACTS.stream)


@contextlib.asynccontextmanager
async def running(board: Board) -> AsyncIterator[None]:
    task = asyncio.create_task(board.run(), name="board")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_word_is_stored_once() -> None:
    """The same word again is no news."""
    world = World()
    async with running(world.board):
        assert world.board.say(SUBJECT, outcome("bound"))
        await asyncio.sleep(1)
        assert not world.board.say(SUBJECT, outcome("bound"))
        await asyncio.sleep(1)

    assert await world.stands(SUBJECT, Outcome) == outcome("bound")
    assert await world.stored() == 1
    assert world.board.behind == 0


async def test_only_the_newest_of_what_waits_is_stored() -> None:
    """What was overtaken while the bus was away is never sent."""
    world = World()
    world.server.fault = lambda *_: Fault(delay_s=1.0)
    async with running(world.board):
        for node in range(5):
            world.board.say(FACTS, NodeFacts(node=NodeName("n1"), uid=f"u{node}"))
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)

    assert await world.stands(FACTS, NodeFacts) == NodeFacts(node=NodeName("n1"), uid="u4")
    assert await world.stored() == 2


async def test_going_back_to_what_stands_is_news_while_another_is_on_its_way() -> None:
    """A, then B, then A again: A stands at the end, whatever of B was stored."""
    world = World()
    async with running(world.board):
        world.board.say(SUBJECT, outcome("bound"))
        await asyncio.sleep(1)
        world.board.say(SUBJECT, outcome("bound", reason="ImagePullBackOff"))
        world.board.say(SUBJECT, outcome("bound"))
        await asyncio.sleep(5)

    assert await world.stands(SUBJECT, Outcome) == outcome("bound")


async def test_a_lost_answer_is_repeated_under_the_same_id() -> None:
    """An unknown outcome is repeated until it is known, and stored once."""
    world = World()
    lost = iter([True, True, False])
    world.server.fault = lambda _client, kind, _s: Fault(lose="after" if kind == "store" and next(lost, False) else "")
    async with running(world.board):
        world.board.say(SUBJECT, outcome("running"))
        await asyncio.sleep(60)

    assert await world.stands(SUBJECT, Outcome) == outcome("running")
    assert await world.stored() == 1
    assert world.board.behind == 0


async def test_a_new_word_after_a_lost_answer_is_not_taken_for_the_old_one() -> None:
    """The server drops what repeats an id: another word needs another."""
    world = World()
    lost = iter([True])
    world.server.fault = lambda _client, kind, _s: Fault(lose="after" if kind == "store" and next(lost, False) else "")
    async with running(world.board):
        world.board.say(SUBJECT, outcome("bound"))
        await asyncio.sleep(0.001)
        world.board.say(SUBJECT, outcome("running"))
        await asyncio.sleep(60)

    assert await world.stands(SUBJECT, Outcome) == outcome("running")


async def test_an_outage_only_delays() -> None:
    """Every subject gets its last word when the bus is back."""
    world = World()
    board = world.board
    bus = board._bus
    assert isinstance(bus, InMemoryBus)
    bus.drop()
    async with running(board):
        for number in range(50):
            subject = OUTCOMES.subject(namespace="default", name=f"r{number}")
            board.say(subject, outcome("gone"))
        await asyncio.sleep(600)
        assert board.behind == 50
        assert bus.name  # the whole board pauses as one: ten minutes are some two hundred tries, not ten thousand

        bus.restore()
        await asyncio.sleep(6)

    assert board.behind == 0
    assert await world.stored() == 50


async def test_a_word_that_is_refused_holds_up_nobody() -> None:
    """Too large for its stream: it is tried again now and then, and the others go out at once."""
    world = World()
    async with running(world.board):
        world.board.say(FACTS, NodeFacts(node=NodeName("n1"), uid="u", labels={"x": "y" * 300_000}))
        await asyncio.sleep(1)
        world.board.say(SUBJECT, outcome("bound"))
        await asyncio.sleep(0.1)
        assert await world.stands(SUBJECT, Outcome) == outcome("bound")

        world.board.say(FACTS, NodeFacts(node=NodeName("n1"), uid="u"))
        await asyncio.sleep(1)

    assert await world.stands(FACTS, NodeFacts) == NodeFacts(node=NodeName("n1"), uid="u")


async def test_a_new_process_knows_what_stands() -> None:
    """It says nothing that was said before it, and forgets what it is told to."""
    world = World()
    async with running(world.board):
        world.board.say(SUBJECT, outcome("running"))
        world.board.say(FACTS, NodeFacts(node=NodeName("n1"), uid="u"))
        world.board.say(SHARES_SUBJECT, shares(5, "g0"))
        await asyncio.sleep(1)

    second = world.another("two")
    await second.load()
    async with running(second):
        assert not second.say(SUBJECT, outcome("running"))
        assert not second.say(FACTS, NodeFacts(node=NodeName("n1"), uid="u"))
        assert not second.say(SHARES_SUBJECT, shares(9, "g0"))
        await asyncio.sleep(1)
    second.forget(SUBJECT)

    assert second.last(SUBJECT) is None
    assert await world.stored() == 3


async def test_what_is_on_its_way_is_not_forgotten() -> None:
    """Forgetting bounds memory, never what is said."""
    world = World()
    world.board.say(SUBJECT, outcome("gone"))
    world.board.forget(SUBJECT)
    async with running(world.board):
        await asyncio.sleep(1)

    assert await world.stands(SUBJECT, Outcome) == outcome("gone")


async def test_older_shares_never_replace_newer_ones() -> None:
    """A reconciler that was behind loses against what another one wrote from a later commit."""
    world = World()
    late = world.another("late")
    async with running(world.board), running(late):
        world.board.say(SHARES_SUBJECT, shares(9, "g0", "g1"))
        await asyncio.sleep(1)
        late.say(SHARES_SUBJECT, shares(5, "g0"))
        await asyncio.sleep(30)

    assert await world.stands(SHARES_SUBJECT, NodeShares) == shares(9, "g0", "g1")
    assert late.behind == 0


async def test_newer_shares_replace_what_another_wrote() -> None:
    """It learns where the subject stands and writes behind it; another epoch is always news."""
    world = World()
    late = world.another("late")
    async with running(world.board), running(late):
        world.board.say(SHARES_SUBJECT, shares(5, "g0"))
        await asyncio.sleep(1)
        late.say(SHARES_SUBJECT, shares(6, "g1"))
        await asyncio.sleep(30)
        assert await world.stands(SHARES_SUBJECT, NodeShares) == shares(6, "g1")

        world.board.say(SHARES_SUBJECT, shares(1, epoch="f"))
        await asyncio.sleep(30)

    assert await world.stands(SHARES_SUBJECT, NodeShares) == shares(1, epoch="f")


async def test_a_subject_with_something_unreadable_is_written_over() -> None:
    """A stranger's bytes on our subject do not stop the start."""
    world = World()
    await world.bus.store(SUBJECT, b"not json")
    board = world.another("two")
    await board.load()
    async with running(board):
        assert board.say(SUBJECT, outcome("bound"))
        await asyncio.sleep(1)

    assert await world.stands(SUBJECT, Outcome) == outcome("bound")
    assert encode(outcome("bound"))
