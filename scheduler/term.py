"""One term as the active scheduler: inputs become commits, one in flight while the next is being decided.

    inbox ──▶ Desk.prepare ──▶ dead letters stored ──▶ commit stored ──▶ answers, events
                 ▲   assumed state moves on here           │
                 └── commit lost: drop, catch up, again ◀──┘

Group commit comes by itself: while a commit is being synced to disk, whatever arrives is decided against the assumed
state and waits for the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Sequence

import msgspec

from bus.deadletter import keep
from bus.ledger.append import Ledger, LostHead, OutcomeUnknown
from bus.ledger.snapshot import copy
from bus.protocol import Bus
from bus.runtime import semconv
from bus.runtime.retry import reason_of, retrying
from contracts import subjects
from contracts.outcomes import Reason
from contracts.units import RequestUid
from scheduler import events
from scheduler.batch import Author, Desk, Prepared
from scheduler.core.engine import Engine
from scheduler.core.policies import POLICIES
from scheduler.core.queue.queue import QueueRules
from scheduler.inbox import FromCaller, Inbox, Input, StillHere
from scheduler.metrics import Metrics
from scheduler.projector import Projector
from scheduler.sampling import Sampler
from scheduler.settings import SchedulingSettings
from scheduler.waiting import first

OUTAGE_S = 3600.0
"""How long the bus may be away before the process ends, to be started again. The ledger keeps everything."""

TELL_AT_MOST = 500
CLOCK_S = 10.0
"""Between two commits while somebody has a place in sight: the ledger's clock must go on, to see who never leaves."""
TURN_S = 0.25
"""Of deciding at once; then the lease is renewed and callers are heard. A thousand placements on an empty cluster take
half of it; 400 searches for victims on 1,000 full nodes would take four seconds."""
BREATH_S = 0.005
"""Between two turns of which the first ran out of time: several rounds of the event loop."""
PREPARED_AT_ONCE = 20
"""Nodes: some 2 ms, which a decision may have to wait for."""
PREPARE_EVERY_S = 0.01
"""Five thousand nodes are ready within a few seconds of the start."""
PREPARE_AGAIN_S = 1.0
QUIET_S = 86_400.0
"""A day; commits are kept for thirty."""

_log = logging.getLogger(__name__)


class TurnTime:
    """Whether a turn may go on; its time begins when that is asked for the first time.

    Args:
        seconds: for one turn.
        clock: monotonic seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end: float | None = None
        self.over = False
        """It was asked after the end."""

    def __call__(self) -> bool:
        """True until the end."""
        now = self._clock()
        if self._end is None:
            self._end = now + self._seconds
        self.over = now >= self._end
        return not self.over


class Term:
    """The deciding loop between winning the lease and losing it.

    A message has one verdict. A refusal can depend on the state ("the name is taken"): it is a record of the commit
    that moves the position past its message, and told when that commit holds. A dead letter depends on its bytes alone:
    whoever reads them again says the same, so it may be stored before.

    What was decided while the lease was ours is stored even if it has run out meanwhile: the log takes it only if
    nobody else has written, and on a machine so busy that decisions outlast the lease nothing would be done otherwise.

    Args:
        bus: where dead letters and events go.
        ledger: the committed state and the only way to extend it.
        inbox: what is to be decided.
        author: signs the commits.
        settings: batch size, policy, pauses.
        warm: the engine of the last term of this process; it goes on if nobody has written since. A new one costs a
            copy of the state and every table anew: two seconds with 5,000 nodes on a busy machine, in which the lease
            may be lost again.
        metrics: counters of this process.
        wall_ms: wall clock in milliseconds, for people.
    """

    def __init__(
        self,
        bus: Bus,
        ledger: Ledger,
        inbox: Inbox,
        *,
        author: Author,
        settings: SchedulingSettings,
        metrics: Metrics,
        sampler: Sampler,
        wall_ms: Callable[[], int],
        warm: Engine | None = None,
    ) -> None:
        self.bus = bus
        self.ledger = ledger
        self.inbox = inbox
        self.author = author
        self.settings = settings
        self.metrics = metrics
        self.sampler = sampler
        self.wall_ms = wall_ms
        self.projector = Projector(bus, ledger.state)
        self.desk = self._new_desk(warm)
        self._time = TurnTime(TURN_S, lambda: 0.0)
        """Of the last turn."""
        self.told: dict[RequestUid, str] = {}
        """Why each pending request waits, as it was last told."""

    def _new_desk(self, warm: Engine | None = None) -> Desk:
        chosen = self.settings
        rules = QueueRules(preemption=chosen.preemption == "lower", requeue=chosen.on_eviction == "requeue")
        stands = warm is not None and not warm.records and warm.state.sequence == self.ledger.state.sequence
        engine = warm if warm is not None and stands else None
        engine = engine or Engine(copy(self.ledger.state), policy=chosen.policy, rules=rules)
        return Desk(engine, self.author, policies=frozenset(POLICIES), sampler=self.sampler)

    async def catch_up(self) -> None:
        """Tell what the last active one left untold."""
        await self.projector.catch_up()

    @property
    def engine(self) -> Engine:
        """The present engine; another one after a lost commit."""
        return self.desk.engine

    # --- the loop --------------------------------------------------------------------------------------------------

    async def decide(self, stop: asyncio.Event) -> None:
        """Until `stop` is set and what is in flight has landed."""
        flight: asyncio.Task[None] | None = None
        aboard: Prepared | None = None
        while not (stop.is_set() and flight is None):
            prepared = None if stop.is_set() else await self._next(flight, stop)
            if flight is not None and aboard is not None:
                lost = await self._landed(flight, aboard)
                flight = aboard = None
                if lost:
                    await self._start_over([*aboard_inputs(lost), *aboard_inputs(prepared)])
                    continue
            if prepared is not None:
                aboard = prepared
                flight = asyncio.create_task(self._land(prepared), name="commit")

    async def _next(self, flight: asyncio.Task[None] | None, stop: asyncio.Event) -> Prepared | None:
        """The next batch, decided; None when the flight landed (or the stop came) and nothing has arrived."""
        if not len(self.inbox) and not self.engine.unfinished:
            await self._something(flight, stop)
        elif self._time.over:
            await asyncio.sleep(BREATH_S)
        inputs = self.inbox.take(self.settings.max_batch)
        if not inputs and not self.engine.unfinished:
            return None
        self._time = TurnTime(TURN_S, asyncio.get_running_loop().time)
        prepared = self.desk.prepare(inputs, now_ms=self.wall_ms(), may_go_on=self._time)
        self.inbox.put_back(prepared.left)
        return prepared

    async def _something(self, flight: asyncio.Task[None] | None, stop: asyncio.Event) -> None:
        landed = [asyncio.wait({flight})] if flight else []  # not the flight itself: how it ended is told by `_landed`
        await first(self.inbox.something(), stop.wait(), *landed)

    async def _landed(self, flight: asyncio.Task[None], aboard: Prepared) -> Prepared | None:
        """Wait for the commit in flight; the batch itself when it was lost."""
        try:
            await flight
        except (LostHead, OutcomeUnknown) as lost:
            _log.warning("the commit is lost or its outcome unknown; deciding again", extra={"reason": reason_of(lost)})
            self.metrics.lost_commits.add(1)
            return aboard
        return None

    async def _land(self, prepared: Prepared) -> None:
        """Store one batch: what must precede the commit, the commit, what follows it."""
        await self._before(prepared)
        sequence = self.ledger.state.sequence
        if prepared.commit is not None:
            began = time.perf_counter()
            sequence = await self.ledger.append(prepared.commit)
            self.metrics.committed(prepared.commit, time.perf_counter() - began)
            self.projector.commit(prepared.commit, sequence)
        for span in prepared.spans:
            span.set_attribute(semconv.LEDGER_SEQUENCE, sequence)
            span.end()
        for caller, answer in prepared.answers:
            if not caller.answer.done():
                caller.answer.set_result(msgspec.structs.replace(answer, ledger_sequence=sequence))

    async def _before(self, prepared: Prepared) -> None:
        """Dead letters; the position in the requests stream may only pass them once they are stored."""
        for message, reason in prepared.unreadable:
            await retrying("store a dead letter", deadline_s=OUTAGE_S)(
                keep, self.bus, stream=subjects.REQUESTS.stream, received=message, reason=reason
            )
        self.metrics.buried(len(prepared.unreadable))

    async def _start_over(self, inputs: Sequence[Input]) -> None:
        """A commit was lost: fold what came instead (or arrived after all), decide the same inputs again behind it."""
        await retrying("catch up with the ledger", deadline_s=OUTAGE_S)(self.ledger.catch_up)
        self.desk = self._new_desk()
        self.inbox.put_back(inputs)

    async def keep_the_log(self) -> None:
        """An empty commit when nothing has been written for a day: a log that aged out whole would have no head."""
        while True:
            before = self.ledger.state.sequence
            await asyncio.sleep(QUIET_S)
            if self.ledger.state.sequence == before:
                self.inbox.put(StillHere())

    async def keep_the_clock(self) -> None:
        """An empty commit every few seconds while a request waits for others to leave, if nothing else is written."""
        while True:
            before = self.ledger.state.sequence
            await asyncio.sleep(CLOCK_S)
            if self.ledger.state.nominated and self.ledger.state.sequence == before:
                self.inbox.put(StillHere())

    async def prepare(self) -> None:
        """Make ready, in small pieces between decisions, what the first search for victims would need all at once."""
        while True:
            more = not len(self.inbox) and self.engine.prepare(PREPARED_AT_ONCE)
            await asyncio.sleep(PREPARE_EVERY_S if more else PREPARE_AGAIN_S)

    # --- explaining ------------------------------------------------------------------------------------------------

    async def explain_pending(self) -> None:
        """Tell why pending requests are pending: soon after they came, and again when the reasons change."""
        while True:
            await asyncio.sleep(self.settings.explain_every_s)
            await self._explain_round()

    async def _explain_round(self) -> None:
        engine, state = self.engine, self.ledger.state
        self.told = {uid: text for uid, text in self.told.items() if uid in state.pending}
        cache: dict[object, tuple[Reason, ...]] = {}
        told = 0
        for request in list(state.pending.values()):
            if engine is not self.engine or told >= TELL_AT_MOST:
                return
            if request.uid not in engine.state.pending:
                continue
            key = engine.reason_key(request)
            if key not in cache:
                cache[key] = engine.reasons(request)
                await asyncio.sleep(0)
            event = events.pending(request, cache[key], sequence=state.sequence, at_ms=self.wall_ms())
            if self.told.get(request.uid) != event.text:
                self.told[request.uid] = event.text
                self.projector.tell(event, f"pending-{request.uid}-{hash_of(event.text)}")
                told += 1


def aboard_inputs(prepared: Prepared | None) -> list[Input]:
    """What a batch was made of; callers who have gone away in the meantime are left out."""
    inputs = prepared.inputs if prepared is not None else ()
    return [i for i in inputs if not (isinstance(i, FromCaller) and i.answer.done())]


def hash_of(text: str) -> str:
    """A short stable name for a text, for message ids."""
    return f"{zlib.crc32(text.encode()):08x}"
