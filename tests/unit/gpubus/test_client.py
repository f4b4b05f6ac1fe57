"""The Python API over a bus in memory: questions, pages, events, and what is told when nobody answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import Received
from contracts import subjects
from contracts.answers import AskState, RequestView, StateView, SubmitReply
from contracts.messages import encode
from contracts.outcomes import DeadLetter, RequestEvent
from contracts.requests import PodRequest, PodTemplate, Withdraw
from contracts.units import RequestUid
from gpubus.client import Client, event_pattern
from gpubus.errors import NoAnswer, UsageError

REQUEST = PodRequest(name="train", pod=PodTemplate(image="i:1"))


@pytest.fixture
async def bus() -> InMemoryBus:
    """A bus with our streams."""
    made = InMemoryBus(MemoryServer(), "test")
    await made.ensure_streams()
    return made


@contextlib.asynccontextmanager
async def scheduler(
    bus: InMemoryBus, pattern: str, answer: Callable[[Received], bytes]
) -> AsyncIterator[list[Received]]:
    """Somebody who answers, and remembers what was asked."""
    asked: list[Received] = []

    async def respond(message: Received) -> bytes:
        asked.append(message)
        return answer(message)

    async with bus.respond(pattern, respond):
        yield asked


async def tell(bus: InMemoryBus, phase: str, *, name: str = "train", uid: str = "e-1-0") -> None:
    """An event is stored."""
    event = RequestEvent(namespace="team", name=name, phase=phase, uid=RequestUid(uid))  # type: ignore[arg-type]
    await bus.store(subjects.EVENTS.subject(namespace="team", name=name), encode(event))


async def test_a_submit_goes_to_the_namespace_and_comes_back_as_a_promise(bus: InMemoryBus) -> None:
    """The namespace is in the subject, never in the payload."""
    reply = SubmitReply(accepted=True, uid=RequestUid("e-5-0"))
    async with scheduler(bus, subjects.SUBMIT.wildcard, lambda _: encode(reply)) as asked:
        answer = await Client(bus).submit(REQUEST, namespace="team")
        await Client(bus).withdraw("train", namespace="team", reason="r")

    assert answer == reply
    assert [message.subject for message in asked] == ["gpubus.v1.ask.submit.team"] * 2
    assert msgspec.json.decode(asked[0].data, type=PodRequest) == REQUEST
    assert msgspec.json.decode(asked[1].data, type=Withdraw) == Withdraw(name="train", reason="r")


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.submit(REQUEST),
        lambda c: c.explain("train"),
        lambda c: c.what_if(REQUEST),
        lambda c: c.summary(),
        lambda c: c.cards(),
        lambda c: c.allocations(),
    ],
)
async def test_a_question_that_nobody_answers_names_who_should_have(
    bus: InMemoryBus, ask: Callable[[Client], Awaitable[object]]
) -> None:
    """`NoAnswer`, never an empty list."""
    with pytest.raises(NoAnswer, match=r"the (scheduler|reconciler) does not answer"):
        await ask(Client(bus, timeout_s=0.05))


async def test_an_answer_that_cannot_be_read_is_no_answer(bus: InMemoryBus) -> None:
    """Of another version, or of somebody else."""
    async with scheduler(bus, subjects.STATE.pattern, lambda _: b'{"type":"answer.state.v9"}'):
        with pytest.raises(NoAnswer, match="cannot be read"):
            await Client(bus).summary()


async def test_all_pages_are_asked_for(bus: InMemoryBus) -> None:
    """Each continues after the last row of the one before."""

    def row(name: str) -> RequestView:
        return RequestView(
            namespace="n", name=name, uid=RequestUid("u"), phase="placed", cards=1, share_milli=1, memory_mib=1
        )

    def page(message: Received) -> bytes:
        ask = msgspec.json.decode(message.data, type=AskState)
        names = {"": ("a", "b"), "b": ("c",)}[ask.after]
        rows = tuple(row(name) for name in names)
        return encode(StateView(ledger_sequence=1, requests=rows, last=names[-1], more=ask.after == ""))

    async with scheduler(bus, subjects.STATE.pattern, page):
        rows = await Client(bus).requests(namespace="n")

    assert [r.name for r in rows] == ["a", "b", "c"]


async def test_events_are_stored_ones_then_live_ones_and_garbage_is_passed_by(bus: InMemoryBus) -> None:
    """In order, of the one request that was asked for; what a stranger stored there does not end it."""
    client = Client(bus)
    await tell(bus, "accepted")
    await tell(bus, "accepted", name="other")
    await bus.store(subjects.EVENTS.subject(namespace="team", name="train"), b"\xff")
    seen: list[str] = []
    async with contextlib.aclosing(client.events("team", "train")) as events:
        seen.append((await anext(events)).phase)
        follow = asyncio.create_task(anext(events))  # type: ignore[arg-type]  # an awaitable, not only a coroutine
        await tell(bus, "placed")
        seen.append((await follow).phase)

    assert seen == ["accepted", "placed"]


async def test_new_events_only(bus: InMemoryBus) -> None:
    """From `event_head` on."""
    client = Client(bus)
    await tell(bus, "accepted")
    head = await client.event_head()
    await tell(bus, "running")
    event = await client.wait("team", "train", "accepted", from_sequence=head)

    assert event.phase == "running"


async def test_waiting_ends_with_the_goal_or_with_the_event_that_rules_it_out(bus: InMemoryBus) -> None:
    """And takes no event of an earlier request of the same name."""
    client = Client(bus)
    for phase, uid in (("running", "e-1-0"), ("accepted", "e-2-0"), ("withdrawn", "e-2-0"), ("running", "e-3-0")):
        await tell(bus, phase, uid=uid)

    assert (await client.wait("team", "train", uid="e-2-0")).phase == "withdrawn"
    assert (await client.wait("team", "train", uid="e-3-0")).phase == "running"


async def test_a_fired_request_is_in_the_stream_with_its_sequence(bus: InMemoryBus) -> None:
    """Also while no scheduler runs."""
    sequence = await Client(bus).fire(REQUEST, namespace="team")
    stored = await bus.last(subjects.REQUESTS.stream, "gpubus.v1.requests.team")

    assert stored is not None
    assert (stored.sequence, stored.data) == (sequence, encode(REQUEST))


async def test_dead_letters_are_read_to_the_end_of_the_stream(bus: InMemoryBus) -> None:
    """And no further: the call comes back."""
    for number in range(3):
        letter = DeadLetter(origin_stream="S", origin_subject="s", origin_sequence=number, reason="r")
        await bus.store(subjects.DEAD_LETTERS.subject(stream="S"), encode(letter))

    assert [letter.origin_sequence for letter in await Client(bus).dead_letters()] == [0, 1, 2]


@pytest.mark.parametrize("namespace", ["a.b", "a*", ">", "a b", ""])
async def test_a_namespace_that_is_no_token_is_refused_before_anything_is_sent(
    bus: InMemoryBus, namespace: str
) -> None:
    """A wildcard in a subject would speak to everybody."""
    with pytest.raises(UsageError, match="namespace"):
        await Client(bus).submit(REQUEST, namespace=namespace)


def test_patterns_leave_open_what_is_empty() -> None:
    """One request, one namespace, everything."""
    assert [event_pattern("ns", "n"), event_pattern("ns"), event_pattern()] == [
        "gpubus.v1.events.ns.n",
        "gpubus.v1.events.ns.*",
        "gpubus.v1.events.*.*",
    ]
    with pytest.raises(UsageError):
        event_pattern("n*s")
