"""One term: who is not accepted is refused in the commit, by one scheduler only; and what the next term begins with."""

from __future__ import annotations

import asyncio
from itertools import count

import msgspec
import pytest
from opentelemetry.metrics import NoOpMeter

from bus.ledger.append import Ledger, commit_after
from bus.ledger.follow import open_ledger
from bus.ledger.state import LedgerState
from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import Received
from contracts.decisions import Accepted, Commit, EpochStarted, Refused
from contracts.messages import encode
from contracts.outcomes import Refusal, RequestEvent
from contracts.requests import GpuAsk, PodRequest, PodTemplate
from contracts.subjects import EVENTS, LEDGER, REQUESTS
from contracts.units import RequestUid
from scheduler import events
from scheduler.batch import Author, Desk
from scheduler.core.engine import Answer, Engine
from scheduler.inbox import FromCaller, FromStream, Inbox
from scheduler.metrics import Metrics
from scheduler.sampling import Sampler
from scheduler.settings import SchedulingSettings
from scheduler.term import Term
from tests.contract.bus_worlds import collect

AUTHOR = Author(incarnation="s", term=1, policy_version="v")


def _request(name: str, share: int) -> PodRequest:
    return PodRequest(name=name, pod=PodTemplate(image="i"), gpu=GpuAsk(share_milli=share))


def _published(request: PodRequest, sequence: int) -> FromStream:
    subject = REQUESTS.subject(namespace="team")
    return FromStream(namespace="team", message=Received(subject=subject, data=encode(request), sequence=sequence))


def _desk(engine: Engine) -> Desk:
    return Desk(engine, AUTHOR, policies=frozenset(), sampler=Sampler(0.0, lambda: 0.0))


def test_a_refusal_is_a_record_of_the_commit_that_moves_past_its_message() -> None:
    """Claim: the second under a name is refused in the log, with its message, and the event follows from the log."""
    state = LedgerState(epoch="e")
    desk = _desk(Engine(state, policy="packing"))
    commit = desk.prepare([_published(_request("a", 100), 4), _published(_request("a", 200), 5)], now_ms=9).commit
    assert commit is not None
    assert commit.requests_through == 5
    refused = [record for record in commit.records if isinstance(record, Refused)]
    assert [(r.namespace, r.name, r.request_sequence, r.refusals[0].field) for r in refused] == [
        ("team", "a", 5, "name")
    ]
    told = [event for _, event in events.of_commit(state, commit, 1) if event.phase == "refused"]
    assert [(e.name, e.request_sequence, e.ledger_sequence, e.at_ms) for e in told] == [("a", 5, 1, 9)]
    assert told[0].text.startswith("name: ")


def test_a_refusal_that_is_longer_than_a_record_may_be_is_cut() -> None:
    """Claim: what is written can be read back, however long the text was that somebody made us say."""
    engine = Engine(LedgerState(epoch="e"), policy="packing")
    long = Refusal(field="f" * 5000, value="v" * 1024, bound="b", text="t" * 1025)
    engine.refuse("team", "a", (long,), sequence=1)
    commit = commit_after(engine.state, engine.take(), author="s", requests_through=1)
    read = msgspec.json.decode(encode(commit), type=Commit).records[0]
    assert isinstance(read, Refused)
    assert [len(text) for text in msgspec.structs.astuple(read.refusals[0])] == [1024, 1024, 1, 1024]


class Two:
    """A scheduler at work, and another one that wrote first."""

    def __init__(self) -> None:
        self.bus = InMemoryBus(MemoryServer(), "s1")
        self.inbox = Inbox(100)

    async def begin(self) -> None:
        """An epoch, and the term of the first."""
        await self.bus.ensure_streams()
        self.ledger = Ledger(self.bus, (await open_ledger(self.bus))[0])
        self.other = Ledger(self.bus, (await open_ledger(self.bus))[0])
        begin = commit_after(self.ledger.state, [EpochStarted(epoch="e", reason="test")], author="s", epoch="e")
        await self.ledger.append(begin)
        await self.other.catch_up()
        self.term = self.another()

    def another(self, warm: Engine | None = None) -> Term:
        """A term on the ledger as it is."""
        ticks = count()
        return Term(
            self.bus,
            self.ledger,
            self.inbox,
            author=AUTHOR,
            settings=SchedulingSettings(policy="packing"),
            metrics=Metrics(NoOpMeter("test"), lambda: self.ledger.state),
            sampler=Sampler(0.0, lambda: 0.0),
            wall_ms=lambda: next(ticks),
            warm=warm,
        )

    async def told(self) -> list[tuple[str, str, int]]:
        """Phase, uid and message of each event."""
        await self.term.projector.flush()
        found = [msgspec.json.decode(m.data, type=RequestEvent) for m in await collect(self.bus, EVENTS.stream)]
        return [(event.phase, event.uid, event.request_sequence) for event in found]


@pytest.fixture
async def two() -> Two:
    there = Two()
    await there.begin()
    return there


async def test_who_loses_the_head_has_refused_nothing(two: Two) -> None:
    """Claim: one refuses a message as the second under its name, the other accepts it; only the one who wrote is heard.

    The first has a caller with other content under the same name, decided just before the message.
    """
    caller: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    spoken = _request("a", 900)
    two.inbox.put(FromCaller(namespace="team", message=Received(subject="s", data=encode(spoken)), answer=caller))
    two.inbox.put(_published(_request("a", 100), 1))
    accepted = Accepted(uid=RequestUid("e-2-0"), namespace="team", request=_request("a", 100), request_sequence=1)
    await two.other.append(commit_after(two.other.state, [accepted], author="s2", requests_through=1))

    stop = asyncio.Event()
    work = asyncio.create_task(two.term.decide(stop))
    answer = await asyncio.wait_for(caller, 10)
    stop.set()
    await asyncio.wait_for(work, 10)
    await two.term.projector.catch_up()

    assert [refusal.field for refusal in answer.refusals] == ["name"]
    assert await two.told() == [("accepted", "e-2-0", 1)]
    commits = [msgspec.json.decode(m.data, type=Commit) for m in await collect(two.bus, LEDGER.stream)]
    assert not [record for commit in commits for record in commit.records if isinstance(record, Refused)]


async def test_a_term_goes_on_with_the_engine_of_the_last_one_if_nobody_wrote_since(two: Two) -> None:
    """Claim: a lease lost and won again costs nothing; after a commit of another the engine begins anew."""
    first = two.term.engine
    assert two.another(first).engine is first

    await two.other.append(commit_after(two.other.state, [], author="s2"))
    await two.ledger.catch_up()
    anew = two.another(first).engine
    assert anew is not first
    assert anew.state.sequence == two.ledger.state.sequence


async def test_what_was_decided_and_not_committed_is_not_gone_on_with(two: Two) -> None:
    """Claim: an engine with records that no commit holds is dropped with them."""
    engine = two.term.engine
    engine.submit("team", _request("a", 100))
    anew = two.another(engine).engine
    assert anew is not engine
    assert not anew.state.requests
