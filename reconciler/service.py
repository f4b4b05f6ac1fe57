"""The reconciler as a whole: the parts, what tells what to whom, and when anything may be done at all.

    follow ──commit──▶ view ──keys──▶ queue ──▶ worker ──▶ Kubernetes
       │                               ▲  ▲
       └──▶ shares desk ─▶ board       │  └── sweep, now and then: all keys
    pods informer ──changes────────────┘
       └──▶ facts desk ─▶ board ◀── nodes informer

What flows in: the ledger and the cluster. What flows out: pods, outcomes, node facts, node shares, and answers to the
question which pods carry our allocations. All state is in the ledger and in Kubernetes: this process can be killed at
any line and started again.

It acts while all of this is true, asked right before each step: it has read the ledger to its end within the last
seconds, it has listed pods and nodes, it knows its own last words, and it holds the lease. None of these is what makes
it safe; the preconditions of each write are.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Iterable
from contextlib import aclosing
from typing import Any

from bus.codec import Malformed, decode_as
from bus.lease import Lease
from bus.ledger.follow import follow, open_ledger
from bus.ledger.state import LedgerState
from bus.protocol import Bus, Received
from bus.runtime.retry import retrying
from contracts.messages import encode
from contracts.outcomes import AskAllocations, Outcome
from contracts.subjects import ALLOCATIONS
from reconciler import marks
from reconciler.adopt_desk import AdoptDesk
from reconciler.board import Board
from reconciler.calls import NODES, PODS, SHAREPODS, Kube
from reconciler.events_desk import EventsDesk
from reconciler.freshness import Freshness
from reconciler.informer import Informer
from reconciler.objects import Node, Pod
from reconciler.placeholders import Kept, PlaceholderDesk, kept
from reconciler.protocol import Transport
from reconciler.publishing import FactsDesk, Gathered, SharesDesk
from reconciler.queue import WorkQueue
from reconciler.readiness import Readiness
from reconciler.rebuild import page
from reconciler.settings import ReconcilingSettings
from reconciler.sharepod_desk import SharePodDesk
from reconciler.store import Change
from reconciler.view import View
from reconciler.worker import Worker

GATE_S = 0.05
"""How often it is asked whether work may begin; that it must stop is asked before each step."""
DRAIN_S = 3.0
START_S = 60.0
ADOPTING = 16
"""Pods of others that are looked at together: each takes a read and an answer of the scheduler."""
SHARING = 4
"""SharePods that are looked at together; each makes and ends its pods one after the other."""

_log = logging.getLogger(__name__)


def wall_ms() -> int:
    """For the times that people read; nothing is decided by it."""
    return time.time_ns() // 1_000_000


class NotSure(Exception):  # noqa: N818 - named by what is the case
    """A question that cannot be answered from what we have; unknown is never "none"."""


async def reconcile(
    bus: Bus,
    transport: Transport,
    settings: ReconcilingSettings,
    *,
    stop: asyncio.Event,
    incarnation: str,
    rng: random.Random | None = None,
) -> None:
    """Run a reconciler until `stop` is set; for services, tests and simulations, which bring their own ports."""
    await (await Reconciler.open(bus, transport, settings, incarnation=incarnation, rng=rng)).run(stop)


class Reconciler:
    """One reconciler over its ports.

    Args:
        bus: connected, its streams exist.
        transport: to the API server.
        settings: our own group.
        state: of the ledger, folded to somewhere.
        incarnation: unique to this process.
        rng: for all jitter.
    """

    def __init__(
        self,
        bus: Bus,
        transport: Transport,
        settings: ReconcilingSettings,
        state: LedgerState,
        *,
        incarnation: str,
        rng: random.Random | None = None,
    ) -> None:
        rng = rng or random.Random()
        self._bus, self._settings, self._state = bus, settings, state
        kube = Kube(transport, in_flight=settings.kube.in_flight, timeout_s=settings.kube.timeout_s, rng=rng)
        self._flow = kube.flow
        self._flow.on_recovery = self._hurry
        self.view = View(state)
        self.queue = WorkQueue(rng=rng)
        self.board = Board(bus, incarnation, rng=rng)
        self.pods: Informer[Pod] = Informer(kube, PODS, self._pods_changed, group=_node_of, rng=rng)
        self.nodes: Informer[Node] = Informer(kube, NODES, self._nodes_changed, rng=rng)
        self.freshness = Freshness(bus, state)
        self.lease = Lease(
            bus,
            f"reconciler-{settings.pool}",
            incarnation,
            renew_s=settings.lease_renew_s,
            duration_s=settings.lease_duration_s,
        )
        self.facts = FactsDesk(
            self.view,
            self.pods,
            self.nodes,
            self.board,
            Gathered(settings.facts_every_s, self.may_act),
            kept=self._kept,
        )
        self.shares = SharesDesk(self.view, self.pods, self.board, Gathered(settings.shares_every_s, self.may_act))
        self.readiness = Readiness(bus, self._node_reported)
        now_s = asyncio.get_running_loop().time
        self.people = EventsDesk(kube, now_s=now_s, wall_ms=wall_ms, instance=incarnation)
        self.placeholders = PlaceholderDesk(
            view=self.view,
            pods=self.pods,
            nodes=self.nodes,
            kube=kube,
            people=self.people,
            may_act=self.may_act,
            now_s=now_s,
            rules=settings.placeholders.rules(),
            facts_news=self.facts.gathered.add,
            pod_news=self.queue.add,
        )
        self.adopting = AdoptDesk(
            bus=bus,
            view=self.view,
            pods=self.pods,
            kube=kube,
            desk=self.people,
            may_act=self.may_act,
            now_s=now_s,
            rng=rng,
        )
        self.sharing = SharePodDesk(
            pods=self.pods, kube=kube, desk=self.people, may_act=self.may_act, wall_ms=wall_ms, rng=rng
        )
        self.sharing.shared = Informer(kube, SHAREPODS, self.sharing.changed, rng=rng)
        self.worker = Worker(
            view=self.view,
            pods=self.pods,
            kube=kube,
            board=self.board,
            queue=self.queue,
            may_act=self.may_act,
            now=now_s,
            report_of=self.readiness.of,
            standing=self.placeholders.standing,
            pod_rules=settings.pods.rules(),
            keep_ended_s=settings.pods.keep_ended_s,
        )

    @classmethod
    async def open(
        cls,
        bus: Bus,
        transport: Transport,
        settings: ReconcilingSettings,
        *,
        incarnation: str,
        rng: random.Random | None = None,
    ) -> Reconciler:
        """Fold the ledger and read what was last said.

        Raises:
            GaveUp: the bus was away for a minute.
            LedgerError: the log does not add up, or lacks its beginning.
        """
        state, _ = await retrying("open the ledger", deadline_s=START_S)(open_ledger, bus, settings.pool)
        made = cls(bus, transport, settings, state, incarnation=incarnation, rng=rng)
        await retrying("read the last words", deadline_s=START_S)(made.board.load)
        made.tidy()
        return made

    # --- may it act, and is it well ----------------------------------------------------------------------------------

    def may_act(self) -> bool:
        """Whether a step may be taken now."""
        synced = self.pods.synced.is_set() and self.nodes.synced.is_set()
        return synced and self.lease.held and self.freshness.fresh

    def trouble(self) -> str:
        """Why this process should not be counted on; empty when it is active, or would be if the active one fell."""
        if not self.freshness.fresh:
            return f"the ledger is not known to its end (folded to {self._state.sequence})"
        for name, informer in (("pods", self.pods), ("nodes", self.nodes)):
            if informer.trouble:
                return f"{name}: {informer.trouble}"
        return ""

    # --- running -----------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; then finish what is in flight, store what was said, give the lease back."""
        subject = ALLOCATIONS.subject()
        async with self._bus.respond(subject, self._allocations, queue="reconciler"), asyncio.TaskGroup() as group:
            tasks = [group.create_task(work, name=name) for name, work in self._parts()]
            await stop.wait()
            self._close_gates()
            await self._drain()
            for queue in self._queues:
                queue.close()
            for task in tasks:
                task.cancel()

    def _parts(self) -> Iterable[tuple[str, Coroutine[Any, Any, None]]]:
        yield "lease", self.lease.run()
        yield "freshness", self.freshness.run()
        yield "follow", self._follow()
        yield "pods", self.pods.run()
        yield "nodes", self.nodes.run()
        yield "gate", self._gate()
        yield "sweep", self._sweep()
        yield "board", self.board.run()
        yield "facts", self.facts.gathered.run(self.facts.tell)
        yield "shares", self.shares.gathered.run(self.shares.tell)
        yield "pods on nodes", self.shares.pods_gathered.run(self.shares.tell)
        yield "readiness", self.readiness.run()
        yield "reconcile", self.queue.run(self.worker.work)
        yield "adopt", self.adopting.queue.run(self.adopting.work, width=ADOPTING)
        yield "hear why they wait", self.adopting.hear()
        yield "placeholders", self.placeholders.run()
        if self.sharing.shared is not None:
            yield "sharepods", self.sharing.shared.run()
            yield "share", self.sharing.queue.run(self.sharing.work, width=SHARING)

    async def _follow(self) -> None:
        async with aclosing(follow(self._bus, self._state)) as commits:
            async for commit, _ in commits:
                for key in self.view.folded(commit):
                    self.queue.add(key)
                self.facts.folded(commit)
                self.shares.folded(commit)
                self.adopting.folded(commit)
                self.placeholders.folded(commit)
                self.freshness.folded()

    async def _gate(self) -> None:
        """Opens the queue when work may begin: then everything is looked at, whatever happened meanwhile."""
        while True:
            if not self.may_act():
                self._close_gates()
            elif not self.queue.gate.is_set():
                _log.info("active", extra={"pods": len(self.pods.store.objects), "ledger": self._state.sequence})
                self.everything()
                for queue in self._queues:
                    queue.gate.set()
            if self._flow.asks:
                self._hurry(1)
            await asyncio.sleep(GATE_S)

    def _hurry(self, most: int | None = None) -> None:
        """The API server is back, or one of those who were turned away may see whether it is."""
        for queue in self._queues:
            queue.hurry(most)

    @property
    def _queues(self) -> tuple[WorkQueue, ...]:
        return self.queue, self.adopting.queue, self.sharing.queue

    def _close_gates(self) -> None:
        for queue in self._queues:
            queue.gate.clear()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_s)
            self.tidy()
            if self.may_act():
                self.everything()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_S):
                await self.queue.quiet()
                while self.board.behind:  # noqa: ASYNC110 - once, at the end
                    await asyncio.sleep(0.01)
        except TimeoutError:
            _log.warning(
                "not everything was finished", extra={"working": repr(self.queue), "unsaid": self.board.behind}
            )

    # --- what tells what to whom -------------------------------------------------------------------------------------

    def everything(self) -> None:
        """Look at every pod and every node."""
        ours = (key for key, pod in self.pods.store.objects.items() if _carries_marks(pod))
        for key in self.view.keys().union(ours):
            self.queue.add(key)
        self.facts.everything()
        self.shares.everything()
        self.adopting.everything()
        self.sharing.everything()
        self.placeholders.everything()

    def tidy(self) -> None:
        """Forget words about requests that are over."""
        for subject, word in self.board.words():
            if isinstance(word, Outcome) and word.uid not in self._state.requests:
                self.board.forget(subject)

    def strangers(self) -> int:
        """Pods with our label that the ledger does not know and whose epoch is another: only a rebuild adopts them."""
        marks_of = (marks.mark_of(pod.metadata.annotations or {}) for pod in self.pods.store.objects.values())
        unknown = (mark for mark in marks_of if mark and mark.epoch != self._state.epoch)
        return sum(self._state.get(mark.uid) is None for mark in unknown)

    def _pods_changed(self, changes: list[Change[Pod]]) -> None:
        for change in changes:
            if change.key in self.view or _carries_marks(change.object):
                self.queue.add(change.key)
        self.facts.pods_changed(changes)
        self.shares.pods_changed(changes)
        self.adopting.pods_changed(changes)
        self.sharing.pods_changed(changes)
        self.placeholders.pods_changed(changes)

    def _node_reported(self, node: str) -> None:
        """Its pods may wait for what it has prepared now."""
        for key in self.view.pods_on(node):
            self.queue.add(key)

    def _nodes_changed(self, changes: list[Change[Node]]) -> None:
        self.facts.nodes_changed(changes)
        self.placeholders.nodes_changed(changes)

    def _kept(self, node: Node, pods: list[Pod]) -> Kept:
        return kept(node, pods, self.placeholders.rules, self.placeholders.trouble)

    async def _allocations(self, received: Received) -> bytes:
        """Answer from the pods alone, and only while we see them."""
        ask = decode_as(AskAllocations, received)
        if isinstance(ask, Malformed):
            raise NotSure(f"no question: {ask}")
        await self.pods.synced.wait()
        if self.pods.trouble:
            raise NotSure(f"the pods are not known: {self.pods.trouble}")
        return encode(page(self.pods.store.objects.values(), ask))


def _node_of(pod: Pod) -> str:
    return pod.spec.node_name


def _carries_marks(pod: Pod) -> bool:
    return marks.MANAGED in (pod.metadata.labels or {}) or marks.UID in (pod.metadata.annotations or {})
