"""Vertical scaling: hears what each node uses, decides what its pods may use from now on, and says so.

In: usage of nodes and what they enforce, the ledger that somebody folds for us. Out: for each node a `NodeVertical`,
always, and while the mode is `act` its `NodeCpuLimits`, stored with the sequence of the last one as condition. One
task; the decisions are in `autoscaler.core.vertical_*`.

    usage of a node ──▶ due ──▶ settle (what the node said of our last word) ──▶ plan ──▶ store ──▶ tell
                         ▲
    every period, and when the node reports

A usage message is the trigger, so a change of load is answered when it is first measured and not a period later; a
node is decided about again after `period / 10` at the earliest, and what comes in between is answered then. Nodes on
which no pod asks for it are only looked at now and then: thousands of them each second would be too much.

What could not be stored is not remembered either: the next decision begins from what was. Nothing is taken back by
stopping; limits stand as they were last said, and the next autoscaler reads them and goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

from msgspec import Meta

from autoscaler.core import vertical_node, vertical_settle, vertical_view
from autoscaler.core.vertical_node import NodePlan
from autoscaler.core.vertical_periods import interval_ms
from autoscaler.core.vertical_values import Economy, PodMemory
from autoscaler.vertical_metrics import gauges
from bus import codec
from bus.ledger.state import LedgerState
from bus.protocol import Bus, BusError, Received, SequenceConflict
from bus.runtime.retry import GaveUp, retrying
from bus.runtime.series import Gauge
from bus.runtime.settings import Seconds, Settings, Text
from contracts.shares import NodeCpuLimits, NodeEnforcement, NodeVertical
from contracts.subjects import CPU_LIMITS, ENFORCEMENT, USAGE, VERTICAL
from contracts.units import node_token
from contracts.usage import NodeUsage

log = logging.getLogger(__name__)

PERIOD_MS = 2000
TRY_S = 30.0
LOOK_MS = 15_000
"""Between two looks at a node where nobody wants limits that follow his use."""


class VerticalSettings(Settings, frozen=True, kw_only=True):
    """How limits of pods follow their use."""

    mode: Literal["off", "observe", "act", "release"] = "observe"
    """observe: say what would be done. act: do it, for pods with the annotation `kuauto.token`. release: take all
    limits back that were ever published, and say what would be done."""
    period: Text = "2s"
    """How far income is planned ahead, and the longest pause between two looks at a node. What cannot be read is 2s."""
    static_v: Annotated[float, Meta(ge=0, le=1_000_000)] = 10.0
    """Weight of headroom against spending, the same for all; 0: by use and running mean of each resource."""
    savings_k: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """How much of its savings a pod may plan to spend in a period; 0: savings do not count."""
    income_percent: Annotated[int, Meta(ge=100, le=10_000)] = 200
    """Income of a pod, of the price of what it was sold, where its annotation is `auto`."""
    floor_percent: Annotated[int, Meta(ge=1, le=100)] = 10
    """The least that a pod wants, of a core and of a card."""
    below_sold: bool = False
    """Limits may fall below what a pod was sold while it sleeps: it is held back for a moment when it wakes."""
    fresh_s: Seconds = 5.0
    """Usage older than this counts as unknown."""
    hold_s: Seconds = 30.0
    """A pod whose limit could not be written is left alone for so long."""

    def economy(self) -> tuple[Economy, str]:
        """As the decisions take it, and a warning about a period that cannot be read."""
        period = interval_ms(self.period, PERIOD_MS)
        found = Economy(
            period_ms=period.number or PERIOD_MS,
            static_v=self.static_v,
            savings_k=self.savings_k,
            income_percent=self.income_percent,
            floor_percent=self.floor_percent,
            below_sold=self.below_sold,
        )
        return found, period.warning


class _Node:
    """What is remembered of one node."""

    def __init__(self) -> None:
        self.usage: NodeUsage | None = None
        self.heard_ms = 0
        self.report: NodeEnforcement | None = None
        self.read = False
        self.published: NodeCpuLimits | None = None
        self.stored_at = 0
        """Sequence of `published` in the stream; the condition of the next one."""
        self.memory: dict[str, PodMemory] = {}
        self.decided_ms: int | None = None
        self.warned: set[str] = set()


class Vertical:
    """Made for each term of a leading autoscaler.

    Args:
        bus: the connection.
        state: the ledger, folded; None = it cannot be read, and everything stays.
        settings: of this part.
        frozen: whether an operator stopped all scaling; then it only observes.
    """

    def __init__(
        self,
        bus: Bus,
        state: Callable[[], LedgerState | None],
        settings: VerticalSettings,
        *,
        frozen: Callable[[], bool] = lambda: False,
    ) -> None:
        self.told: dict[str, NodeVertical] = {}
        """What was last said of each node."""
        self._bus, self._state, self._settings, self._frozen = bus, state, settings, frozen
        self._economy, warning = settings.economy()
        if warning:
            log.warning("vertical scaling: %s", warning)
        self._nodes: dict[str, _Node] = {}
        self._due: set[str] = set()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """For ever; cancel to stop."""
        if self._settings.mode == "off":
            return
        async with asyncio.TaskGroup() as group, self._bus.subscribe(USAGE.wildcard, self._hear):
            group.create_task(self._follow(), name="vertical reads reports")
            group.create_task(self._decide(), name="vertical decides")
            await asyncio.get_running_loop().create_future()

    def gauges(self) -> Iterable[Gauge]:
        """For /metrics: of what was last said."""
        return gauges(self.told.values())

    # --- what comes in -----------------------------------------------------------------------------------------------

    async def _hear(self, received: Received) -> None:
        usage = codec.decode_as(NodeUsage, received)
        where = USAGE.parse(received.subject)
        if not isinstance(usage, NodeUsage) or where is None or where["node"] != node_token(usage.node):
            return
        node = self._nodes.setdefault(usage.node, _Node())
        before = node.usage
        if before is None or before.incarnation != usage.incarnation or before.sequence < usage.sequence:
            node.usage, node.heard_ms = usage, _now_ms()
            if node.decided_ms is None or self._asks(usage.node, node):
                self._call(usage.node)

    def _asks(self, name: str, node: _Node) -> bool:
        """Whether anybody on the node wants limits that follow his use, or has one; else it is only looked at."""
        state = self._state()
        held = state.nodes.get(name) if state is not None else None
        written = node.published is not None and bool(node.published.limits or node.published.cards)
        return written or (state is not None and held is not None and vertical_view.asks(state, held))

    async def _follow(self) -> None:
        """What nodes enforce, from the beginning: the stream keeps the last word of each."""

        async def read() -> None:
            pattern = ENFORCEMENT.wildcard
            async with contextlib.aclosing(self._bus.read(ENFORCEMENT.stream, subject=pattern)) as batches:
                async for batch in batches:
                    for received in batch.messages:
                        report = codec.decode_as(NodeEnforcement, received)
                        if isinstance(report, NodeEnforcement):
                            self._nodes.setdefault(report.node, _Node()).report = report
                            self._call(report.node)

        while True:
            try:
                await retrying("read what nodes enforce", on=BusError, deadline_s=TRY_S)(read)
            except GaveUp as error:
                log.error("still trying", extra={"reason": str(error)})  # noqa: TRY400 - the reason is the whole story

    def _call(self, name: str) -> None:
        self._due.add(name)
        self._wake.set()

    # --- what is decided ---------------------------------------------------------------------------------------------

    async def _decide(self) -> None:
        period_ms = self._economy.period_ms
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_ms() / 1000):
                    await self._wake.wait()
            self._wake.clear()
            now_ms = _now_ms()
            old = {
                name
                for name, node in self._nodes.items()
                if _since(node, now_ms) >= (period_ms if self._asks(name, node) else LOOK_MS)
            }
            for name in sorted(self._due | old):
                if _since(self._nodes[name], now_ms) >= period_ms // 10:
                    self._due.discard(name)
                    await self._attend(name, self._nodes[name])

    def _pause_ms(self) -> int:
        """Until the first node that is due may be decided about, or a period has passed."""
        now_ms, least_ms = _now_ms(), self._economy.period_ms // 10
        waits = [least_ms - _since(self._nodes[name], now_ms) for name in self._due]
        return max(0, min([self._economy.period_ms, *waits]))

    async def _attend(self, name: str, node: _Node) -> None:
        node.decided_ms = _now_ms()
        try:
            if not node.read:
                await self._remember(name, node)
            await self._step(name, node)
        except SequenceConflict:
            node.read = False  # another autoscaler spoke: go on from what it said
        except BusError as error:
            log.info("node %s: %s", name, error)

    async def _remember(self, name: str, node: _Node) -> None:
        """What the node was told last, by whoever it was."""
        last = await self._bus.last(CPU_LIMITS.stream, CPU_LIMITS.subject(node=node_token(name)))
        limits = codec.decode_as(NodeCpuLimits, last) if last is not None else None
        node.published = limits if isinstance(limits, NodeCpuLimits) else None
        node.stored_at = last.sequence if last is not None else 0
        node.memory = vertical_view.remembered(node.published)
        node.read = True

    async def _step(self, name: str, node: _Node) -> None:
        state = self._state()
        held = state.nodes.get(name) if state is not None else None
        now_ms = _now_ms()
        fresh = now_ms - node.heard_ms <= self._settings.fresh_s * 1000
        if state is None or held is None:
            if state is not None and not fresh:  # it is gone, and what was said of it too
                self.told.pop(name, None)
                del self._nodes[name]
            return
        view = vertical_view.view(state, held, node.usage if fresh else None)
        node.memory = self._settled(node, now_ms)
        plan = vertical_node.plan(view, node.memory, self._economy, now_ms=now_ms)
        self._warn(node, state, plan)
        acts = self._settings.mode in ("act", "release") and not self._frozen()
        if acts:
            await self._publish(name, node, state.epoch, plan if self._settings.mode == "act" else NodePlan())
        node.memory = plan.memory
        said = vertical_view.told(
            view, plan, "act" if acts and self._settings.mode == "act" else "observe", node.published
        )
        self.told[name] = said
        await codec.publish(self._bus, VERTICAL, said, node=node_token(name))

    def _settled(self, node: _Node, now_ms: int) -> dict[str, PodMemory]:
        """The memory with what the node has said of our last word, once."""
        report, told = node.report, node.published
        if report is None or told is None or not vertical_settle.newest(report, told.epoch, told.sequence):
            return node.memory
        node.report = None
        hold_ms = round(self._settings.hold_s * 1000)
        return vertical_settle.settle(node.memory, report.pods, now_ms=now_ms, hold_ms=hold_ms)

    async def _publish(self, name: str, node: _Node, epoch: str, plan: NodePlan) -> None:
        """The limits of a plan, if they are news."""
        last = node.published
        sequence = last.sequence + 1 if last is not None and last.epoch == epoch else 1
        limits = vertical_view.snapshot(name, epoch, sequence, plan)
        if not vertical_view.differs(last, limits):
            return
        stored = await codec.store(self._bus, CPU_LIMITS, limits, expected_last=node.stored_at, node=node_token(name))
        node.published, node.stored_at = limits, stored.sequence

    def _warn(self, node: _Node, state: LedgerState, plan: NodePlan) -> None:
        """Each pod's annotation that cannot be read, once."""
        found = vertical_view.warnings(state, plan.memory)
        for uid in sorted(found.keys() - node.warned):
            log.warning("pod %s: %s", state.requests[uid].key, found[uid])  # type: ignore[index]  # a key of that dict
        node.warned = set(found)


def _since(node: _Node, now_ms: int) -> int:
    return 10**12 if node.decided_ms is None else now_ms - node.decided_ms


def _now_ms() -> int:
    """Monotonic; of the loop, so that virtual time is enough to test it."""
    return round(asyncio.get_running_loop().time() * 1000)
