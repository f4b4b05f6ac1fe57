"""Being the active scheduler: begin an epoch if there is none, decide with all that feeds and follows it, end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable

from bus.lease import Lease
from bus.ledger.append import Ledger, commit_after
from bus.ledger.checkpoint import Checkpointer
from bus.protocol import Bus, BusUnavailable
from bus.runtime.retry import retrying
from contracts import subjects
from contracts.outcomes import Allocation
from contracts.quotas import NamespaceQuota
from contracts.units import NodeName
from scheduler import rebuild
from scheduler.batch import Author
from scheduler.core.engine import Engine
from scheduler.core.freshness import Freshness
from scheduler.counter import Counter
from scheduler.inbox import FromCaller, Inbox
from scheduler.intake import Intake
from scheduler.metrics import Metrics
from scheduler.sampling import Sampler
from scheduler.settings import SchedulingSettings
from scheduler.term import Term
from scheduler.waiting import first

FLUSH_S = 1.0
"""For the last events of a term; what is not stored then, the next active scheduler projects again."""

_log = logging.getLogger(__name__)


def wall_ms() -> int:
    """Wall clock in milliseconds, for people only."""
    return time.time_ns() // 1_000_000


class Leader:
    """One term of leadership.

    Args:
        bus: the connection.
        ledger: committed state, folded to the head.
        lease: held; the term ends when it is lost.
        author: signs the commits of this term.
        settings: of the scheduler.
        metrics: of the process.
        sampler: of traces.
        tell: told what this scheduler is doing, for readiness.
        warm: the engine that the last term of this process ended with.
    """

    def __init__(
        self,
        bus: Bus,
        ledger: Ledger,
        lease: Lease,
        *,
        author: Author,
        settings: SchedulingSettings,
        metrics: Metrics,
        sampler: Sampler,
        tell: Callable[[str], None],
        warm: Engine | None = None,
    ) -> None:
        self.bus = bus
        self.ledger = ledger
        self.lease = lease
        self.author = author
        self.settings = settings
        self.metrics = metrics
        self.sampler = sampler
        self.tell = tell
        self.engine = warm
        """At the end of the term: where the next one goes on."""

    async def lead(self, stop: asyncio.Event) -> None:
        """Until the lease is lost or `stop` is set."""
        _log.info("active", extra={"term": self.author.term, "ledger_sequence": self.ledger.state.sequence})
        if not self.ledger.state.epoch or await self._unfinished():
            self.tell("waiting for the reconciler to say what runs, before an epoch begins")
            if not await self._begin_epoch(stop):
                return
        inbox = Inbox(self.settings.max_inbox)
        term = self._term(inbox)
        await term.catch_up()
        self.tell("active")
        try:
            await self._decide(term, inbox, stop)
        finally:
            turn_away(inbox)
        self.engine = term.engine
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await term.projector.flush()

    def _term(self, inbox: Inbox) -> Term:
        return Term(
            self.bus,
            self.ledger,
            inbox,
            author=self.author,
            settings=self.settings,
            metrics=self.metrics,
            sampler=self.sampler,
            wall_ms=wall_ms,
            warm=self.engine,
        )

    async def _decide(self, term: Term, inbox: Inbox, stop: asyncio.Event) -> None:
        """The deciding loop with everything that feeds or follows it; any of them failing ends the process."""
        intake = Intake(self.bus, inbox, self._freshness())
        checkpoints = Checkpointer(self.bus, self.ledger, every_records=self.settings.checkpoint_records)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group, self._responders(intake, term):
            helpers = [
                group.create_task(work, name=name)
                for name, work in (
                    ("requests", intake.requests(self.ledger.state.requests_through)),
                    ("facts", intake.facts()),
                    ("outcomes", intake.outcomes()),
                    ("heartbeats", intake.heartbeats()),
                    ("events", term.projector.run()),
                    ("explain", term.explain_pending()),
                    ("keep-the-log", term.keep_the_log()),
                    ("keep-the-clock", term.keep_the_clock()),
                    ("prepare", term.prepare()),
                    ("checkpoints", checkpoints.run()),
                    ("term-end", self._end(stop, over)),
                )
            ]
            await term.decide(over)
            for helper in helpers:
                helper.cancel()

    async def _end(self, stop: asyncio.Event, over: asyncio.Event) -> None:
        await first(self.lease.wait_lost(), stop.wait())
        _log.info("the term ends", extra={"why": "asked to stop" if stop.is_set() else "the lease is lost"})
        over.set()

    def _freshness(self) -> Freshness:
        """Every node that the ledger knows has a full period to say something to the new watcher."""
        freshness = Freshness(suspect_after_s=self.settings.suspect_after_s)
        now_s = asyncio.get_running_loop().time()
        for node in self.ledger.state.nodes.values():
            freshness.expect(NodeName(node.name), fresh=node.fresh, now_s=now_s)
        return freshness

    @contextlib.asynccontextmanager
    async def _responders(self, intake: Intake, term: Term) -> AsyncIterator[None]:
        counter = Counter(self.ledger, policy=self.settings.policy, waiting=lambda: term.told)
        async with contextlib.AsyncExitStack() as stack:
            for channel, responder in (
                (subjects.SUBMIT, intake.submit),
                (subjects.EXPLAIN, counter.explain),
                (subjects.WHAT_IF, counter.what_if),
                (subjects.STATE, counter.state),
            ):
                await stack.enter_async_context(self.bus.respond(channel.wildcard, responder, queue="scheduler"))
            yield

    # --- the first commit ------------------------------------------------------------------------------------------

    async def _begin_epoch(self, stop: asyncio.Event) -> bool:
        """Ask Kubernetes what runs and write it down; False when the term ended before that."""
        gathering = asyncio.create_task(self._gather(), name="rebuild")
        await first(self.lease.wait_lost(), stop.wait(), asyncio.shield(gathering))
        if not gathering.done():
            gathering.cancel()
            return False
        found, past, waiting, quotas = gathering.result()
        for pod in rebuild.duplicates(found):
            _log.error("a pod has the name or uid of another one and runs uncounted; remove it", extra={"pod": pod})
        reason = f"rebuilt from {len(found)} pods in Kubernetes" if found else "an empty cluster"
        epoch = self.ledger.state.epoch or secrets.token_hex(4)
        records = rebuild.groups(self.ledger.state, epoch, found, waiting, quotas=quotas, reason=reason)
        parts = list(rebuild.parts(records))
        for index, part in enumerate(parts, 1):
            commit = commit_after(
                self.ledger.state,
                part,
                epoch=epoch,
                author=self.author.incarnation,
                term=self.author.term,
                policy_version=self.author.policy_version,
                requests_through=max(past.answered, self.ledger.state.requests_through),
                at_ms=wall_ms(),
                causes=(rebuild.GOES_ON,) if index < len(parts) else (),
            )
            await self.ledger.append(commit)
        _log.info(
            "a new epoch", extra={"epoch": epoch, "reason": reason, "waiting": len(waiting), "quotas": len(quotas)}
        )
        return True

    async def _unfinished(self) -> bool:
        """Whether somebody was killed between two commits of a rebuild."""
        pool, patience_s = self.settings.pool, self.settings.rebuild_timeout_s
        return await retrying("read the end of the log", deadline_s=patience_s)(rebuild.unfinished, self.bus, pool)

    async def _gather(
        self,
    ) -> tuple[tuple[Allocation, ...], rebuild.History, rebuild.Waiting, tuple[NamespaceQuota, ...]]:
        found = await rebuild.allocations(self.bus, patience_s=self.settings.rebuild_timeout_s)
        past = await rebuild.history(self.bus)
        return found, past, await rebuild.waiting_requests(self.bus, past), await rebuild.quotas(self.bus)


def turn_away(inbox: Inbox) -> None:
    """Callers who still wait are told to ask again: another scheduler decides now."""
    for item in inbox.clear():
        if isinstance(item, FromCaller) and not item.answer.done():
            item.answer.set_exception(BusUnavailable("this scheduler is no longer the active one; submit again"))
