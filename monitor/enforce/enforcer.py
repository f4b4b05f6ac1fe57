"""The component: reads what the node should enforce, has it done in a thread, and says what holds.

In: the shares and CPU limits of this node from the facts stream, the cards as the inventory publishes them. Out: files,
daemons and quotas through the backends, and a `NodeEnforcement` on the node's subject, stored when it changes.

Level-triggered: each round starts from the newest of both messages and from what stands on the node, so a restart, a
container that came back with its spec's limit, or somebody else's write are all repaired by the next round, at the
latest after `check_s`. What is not known is not nothing: before the stream has been read to its end, without shares,
or without cards, nothing is written.

A backend that fails takes nobody with it: its cards are told as not enforced, with the reason. Calls block and may hang
(a driver's tool), so they have a thread and a deadline of their own; then everything is told as not known to hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from bus.perusing import peruse
from bus.protocol import Bus, BusError, Received
from bus.runtime.retry import GaveUp, retrying
from contracts.inventory import Card, IsolationMode
from contracts.messages import encode
from contracts.outcomes import NodeShares
from contracts.shares import NodeCpuLimits, NodeEnforcement, PodEnforcement
from contracts.subjects import CPU_LIMITS, ENFORCEMENT, SHARES
from contracts.units import node_token
from monitor.cards.runner import Runner
from monitor.enforce.backend import Backend, Findings, finding
from monitor.enforce.cpu import CpuLimits
from monitor.enforce.wanted import CardShares, Standing, Work, take_limits, take_shares, work
from monitor.report import Identity

log = logging.getLogger(__name__)

DEADLINE_S = 10.0
"""For one round. The slowest part of it is an MPS daemon that does not answer, two seconds."""
VERIFY_S = 30.0
"""Between looks whether the stream still holds our report."""
SOON_S = 0.5
"""Pause before the next look while a pod waits for something of the node."""
TRY_S = 30.0
_POD_REASON = 200
"""A thousand pods with their reasons fit into one message."""

M = TypeVar("M", NodeShares, NodeCpuLimits)


class Enforcer:
    """One node's.

    Args:
        bus: the facts stream.
        who: this monitor.
        cards: the cards with their modes, or None while they are not known.
        backends: one for each mode that the node may have.
        cpu: None = CPU limits are not held here.
        runner: makes the blocking calls.
        check_s: the longest pause between two rounds.
    """

    def __init__(
        self,
        bus: Bus,
        who: Identity,
        *,
        cards: Callable[[], tuple[Card, ...] | None],
        backends: Sequence[Backend],
        cpu: CpuLimits | None,
        runner: Runner,
        check_s: float = 2.0,
    ) -> None:
        self.standing = Standing()
        self.stored: NodeEnforcement | None = None
        """What the stream is known to hold."""
        self._bus, self._who, self._cards, self._cpu = bus, who, cards, cpu
        self._backends: Mapping[IsolationMode, Backend] = {one.mode: one for one in backends}
        self._runner, self._check_s = runner, check_s
        self._out: asyncio.Future[Findings] | None = None
        self._verified_s = asyncio.get_running_loop().time()
        self._due = asyncio.Event()
        self._read: set[str] = set()
        self._subject = ENFORCEMENT.subject(node=node_token(who.node))

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(SHARES.pattern, self._take_shares), name="enforce shares")
            group.create_task(self._follow(CPU_LIMITS.pattern, self._take_limits), name="enforce cpu limits")
            group.create_task(self._hold(), name="enforce hold")

    # --- what is wanted ----------------------------------------------------------------------------------------------

    async def _follow(self, pattern: str, take: Callable[[Received], None]) -> None:
        subject = pattern.format(node=node_token(self._who.node))

        async def read() -> None:
            async with contextlib.aclosing(peruse(self._bus, SHARES.stream, subject)) as batches:
                async for batch in batches:
                    for message in batch.messages:
                        take(message)
                    if batch.caught_up and pattern not in self._read:
                        self._read.add(pattern)
                    self._due.set()

        while True:
            try:
                await retrying(f"read {subject}", on=BusError, deadline_s=TRY_S)(read)
            except GaveUp as error:
                log.error("still trying", extra={"reason": str(error)})  # noqa: TRY400 - the reason is the whole story

    def _take_shares(self, message: Received) -> None:
        told = _decoded(message, NodeShares)
        if told is not None:
            self._stand(take_shares(self.standing, told, self._who.node))

    def _take_limits(self, message: Received) -> None:
        told = _decoded(message, NodeCpuLimits)
        if told is not None:
            self._stand(take_limits(self.standing, told, self._who.node))

    def _stand(self, standing: Standing) -> None:
        if standing.refused and standing.refused != self.standing.refused:
            log.warning("a desired state is not taken", extra={"reason": standing.refused})
        self.standing = standing

    # --- holding it --------------------------------------------------------------------------------------------------

    async def _hold(self) -> None:
        pause_s = self._check_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._due.wait()
            self._due.clear()
            report = await self._round()
            if report is None:
                continue
            waits = any(pod.state in ("waiting", "failed") for pod in report.pods)
            pause_s = min(SOON_S, self._check_s) if waits else self._check_s
            await self._verify()
            await self._say(report)

    async def _verify(self) -> None:
        """A bus that lost its disk has lost our report, and an old monitor of this node may have spoken last."""
        now_s = asyncio.get_running_loop().time()
        if self.stored is None or now_s - self._verified_s < VERIFY_S:
            return
        with contextlib.suppress(BusError):  # the next look is soon enough
            last = await self._bus.last(ENFORCEMENT.stream, self._subject)
            self._verified_s = now_s
            if last is None or last.data != encode(self.stored):
                self.stored = None

    async def _round(self) -> NodeEnforcement | None:
        """One round; None while it is not known what should hold."""
        cards, standing = self._cards(), self.standing
        if cards is None or standing.shares is None or len(self._read) < 2:  # noqa: PLR2004 - both subjects
            return None
        todo = work(standing, cards)
        findings = await self._done(todo)
        return NodeEnforcement(
            node=self._who.node,
            incarnation=self._who.incarnation,
            epoch=standing.shares.epoch,
            ledger_sequence=standing.shares.ledger_sequence,
            cpu_sequence=standing.limits.sequence if standing.limits else 0,
            cards=findings.cards,
            pods=tuple(_short(pod) for pod in (*todo.refused, *findings.pods)),
            refused=standing.refused,
        )

    async def _done(self, todo: Work) -> Findings:
        """Have it done; a call of before that still hangs is waited for first."""
        if self._out is not None and not self._out.done():
            await asyncio.wait({self._out}, timeout=DEADLINE_S)
        if self._out is None or self._out.done():
            self._out = self._runner.start("enforce", lambda: self._do(todo))
            await asyncio.wait({self._out}, timeout=DEADLINE_S)
            if self._out.done():
                return self._out.result()
        log.error("the node's tools do not answer", extra={"waited_s": DEADLINE_S})
        return _unknown(todo, f"the node's tools have not answered for {DEADLINE_S:g} s")

    def _do(self, todo: Work) -> Findings:
        """In the thread. CPU limits first: they are the quick ones."""
        cpu = self._limit(todo)
        modes = [mode for mode in self._backends if mode in todo.cards or mode == "gemini"]
        found = [_made(self._backends[mode], todo.cards.get(mode, ())) for mode in modes]
        found += [
            finding(mode, held, lacks="this monitor has no backend for the mode", state="refused")
            for mode, held in todo.cards.items()
            if mode not in self._backends
        ]
        cards = sorted((card for one in found for card in one.cards), key=lambda card: card.card)
        pods = sorted((pod for one in found for pod in one.pods), key=lambda pod: (pod.uid, pod.what))
        return Findings(cards=tuple(cards), pods=(*cpu, *pods))

    def _limit(self, todo: Work) -> tuple[PodEnforcement, ...]:
        if self._cpu is None:
            return ()
        try:
            return self._cpu.hold(todo.cpu)
        except OSError as error:
            log.warning("CPU limits are not held", extra={"reason": str(error)})
            asked = (pod for pod in todo.cpu if pod.limit_milli is not None)
            return tuple(PodEnforcement(uid=pod.uid, what="cpu", state="failed", reason=str(error)) for pod in asked)

    # --- saying it ---------------------------------------------------------------------------------------------------

    async def _say(self, report: NodeEnforcement) -> None:
        """Store it if it is news; what cannot be stored is said again by the next round."""
        if self.stored is not None and replace(report, ledger_sequence=0) == replace(self.stored, ledger_sequence=0):
            return
        try:
            await self._bus.store(self._subject, encode(report), stream=ENFORCEMENT.stream)
        except BusError as error:
            log.warning("the enforcement report is not stored", extra={"reason": str(error)})
            return
        self.stored = report


def _made(backend: Backend, wanted: tuple[CardShares, ...]) -> Findings:
    try:
        backend.apply(wanted)
        return backend.check(wanted)
    except OSError as error:
        log.warning("%s does not hold", backend.mode, extra={"reason": str(error)})
        return finding(backend.mode, wanted, lacks=str(error), state="failed")


def _unknown(todo: Work, reason: str) -> Findings:
    found = [finding(mode, held, lacks=reason, state="failed") for mode, held in sorted(todo.cards.items())]
    return Findings(cards=tuple(c for f in found for c in f.cards), pods=tuple(p for f in found for p in f.pods))


def _short(pod: PodEnforcement) -> PodEnforcement:
    return pod if len(pod.reason) <= _POD_REASON else replace(pod, reason=pod.reason[: _POD_REASON - 1] + "…")


def _decoded(message: Received, kind: type[M]) -> M | None:
    try:
        return msgspec.json.decode(message.data, type=kind)
    except msgspec.MsgspecError as error:
        why = {"reason": str(error), "subject": message.subject, "sequence": message.sequence}
        log.warning("a desired state cannot be read", extra=why)
        return None
