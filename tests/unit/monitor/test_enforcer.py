"""The enforcing component on a virtual clock and an in-memory bus: what it waits for, repairs, survives and says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest

from bus.memory import Fault, InMemoryBus, MemoryServer
from bus.memory_server import NO_FAULT
from contracts.inventory import Card, IsolationMode
from contracts.messages import encode
from contracts.outcomes import NodeShares, ShareAssignment
from contracts.shares import NodeCpuLimits, NodeEnforcement
from contracts.subjects import CPU_LIMITS, ENFORCEMENT, SHARES
from contracts.units import CardUuid, NodeName, RequestUid
from monitor.cards.runner import Inline, Lane, T
from monitor.enforce.backend import Findings, finding
from monitor.enforce.enforcer import DEADLINE_S, Enforcer
from monitor.enforce.none import NoIsolation
from monitor.enforce.wanted import CardShares
from monitor.report import Identity

pytestmark = pytest.mark.looptime

NODE = NodeName("n1")
CARD = Card(uuid=CardUuid("GPU-a"), index=0, model="T4", memory_total_mib=16_000, isolation="mps")
WHO = Identity(node=NODE, boot_id="b", incarnation="monitor-1")


class FakeBackend:
    """Remembers what it was given; `lacks` is what it says is missing, `broken` what it raises."""

    mode: IsolationMode = "mps"

    def __init__(self) -> None:
        self.applied: list[list[str]] = []
        self.lacks = ""
        self.broken: OSError | None = None

    def apply(self, wanted: Sequence[CardShares]) -> None:
        self.applied.append([a.uid for one in wanted for a in one.assignments])
        if self.broken:
            raise self.broken

    def check(self, wanted: Sequence[CardShares]) -> Findings:
        return finding(self.mode, wanted, lacks=self.lacks)


class Stuck(Inline):
    """Calls that hang while `hang` is set."""

    def __init__(self) -> None:
        self.hang = False
        self.out: list[asyncio.Future[Any]] = []

    def start(self, lane: Lane, function: Callable[[], T]) -> asyncio.Future[T]:
        if not self.hang:
            return super().start(lane, function)
        self.out.append(asyncio.get_running_loop().create_future())
        return self.out[-1]


class Bench:
    def __init__(self) -> None:
        self.server = MemoryServer()
        self.bus = InMemoryBus(self.server, "monitor")
        self.backend = FakeBackend()
        self.cards: tuple[Card, ...] | None = (CARD,)
        self.runner = Stuck()

    @contextlib.asynccontextmanager
    async def running(self, **more: Any) -> AsyncIterator[Enforcer]:
        made = Enforcer(
            self.bus, WHO, cards=lambda: self.cards, backends=(NoIsolation(), self.backend), cpu=None,
            runner=self.runner, check_s=more.pop("check_s", 2.0), **more,
        )  # fmt: skip
        task = asyncio.create_task(made.run(), name="enforcer")
        try:
            yield made
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def tell(self, sequence: int, *uids: str, epoch: str = "e") -> None:
        held = tuple(
            ShareAssignment(uid=RequestUid(uid), namespace="t", pod=uid, card="GPU-a", share_milli=100, memory_mib=10)
            for uid in uids
        )
        shares = NodeShares(node=NODE, epoch=epoch, ledger_sequence=sequence, assignments=held)
        await self.bus.store(SHARES.subject(node=NODE), encode(shares), stream=SHARES.stream)

    async def said(self) -> NodeEnforcement | None:
        last = await self.bus.last(ENFORCEMENT.stream, ENFORCEMENT.subject(node=NODE))
        return msgspec.json.decode(last.data, type=NodeEnforcement) if last else None

    async def count(self) -> int:
        return await self.bus.last_sequence(ENFORCEMENT.stream)


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.bus.ensure_streams()
    return bench


async def test_a_snapshot_is_applied_checked_and_told_once(bench: Bench) -> None:
    """At once, not at the next look; looked at again and again, and said again only when it is another."""
    async with bench.running():
        await asyncio.sleep(5)
        assert bench.backend.applied == []  # nobody has said what should hold: nothing is touched
        assert await bench.said() is None
        await bench.tell(3, "a", "b")
        await asyncio.sleep(0.1)
        assert bench.backend.applied[-1] == ["a", "b"]
        report = await bench.said()
        assert report is not None
        assert (report.epoch, report.ledger_sequence, report.refused) == ("e", 3, "")
        assert [(p.uid, p.state) for p in report.pods] == [("a", "applied"), ("b", "applied")]
        assert [(c.card, c.declared, c.enforced) for c in report.cards] == [("GPU-a", "both", "both")]
        stored = await bench.count()
        await asyncio.sleep(60)

        assert await bench.count() == stored
        assert len(bench.backend.applied) >= 30


async def test_what_is_not_listed_any_more_is_over(bench: Bench) -> None:
    """The backend gets the whole every time; the report follows."""
    async with bench.running():
        await bench.tell(3, "a", "b")
        await asyncio.sleep(1)
        await bench.tell(4, "b")
        await asyncio.sleep(1)
        report = await bench.said()

        assert bench.backend.applied[-1] == ["b"]
        assert report is not None
        assert [p.uid for p in report.pods] == ["b"]


async def test_a_stale_state_changes_nothing_and_is_told(bench: Bench) -> None:
    """An older sequence, an epoch that is over: refused with the reason, the newest stays in force."""
    async with bench.running():
        await bench.tell(3, "a")
        await bench.tell(2)
        await asyncio.sleep(1)
        report = await bench.said()
        assert report is not None
        assert report.refused == "shares of ledger sequence 2, 3 is in force"
        await bench.tell(1, "c", epoch="f")
        await asyncio.sleep(1)
        await bench.tell(9, epoch="e")
        await asyncio.sleep(1)
        report = await bench.said()

        assert report is not None
        assert (report.epoch, report.refused) == ("f", "shares of epoch e, which is over")
        assert bench.backend.applied[-1] == ["c"]


async def test_garbage_is_passed_over(bench: Bench) -> None:
    """Bytes that are no message of ours stop nothing."""
    async with bench.running():
        for channel in (SHARES, CPU_LIMITS):
            await bench.bus.store(channel.subject(node=NODE), b"\x00{", stream=channel.stream)
        await asyncio.sleep(1)
        assert await bench.said() is None
        await bench.tell(3, "a")
        await asyncio.sleep(1)

        assert bench.backend.applied[-1] == ["a"]


async def test_unknown_cards_are_not_no_cards(bench: Bench) -> None:
    """A driver that is not heard: what stands goes on standing."""
    bench.cards = None
    async with bench.running():
        await bench.tell(3, "a")
        await asyncio.sleep(10)
        assert bench.backend.applied == []
        bench.cards = (CARD,)
        await asyncio.sleep(5)

        assert bench.backend.applied[-1] == ["a"]


async def test_a_failing_backend_is_told_and_tried_again(bench: Bench) -> None:
    """Its cards are not enforced, for its own reason; soon after the reason is gone they are."""
    bench.backend.broken = OSError("disk full")
    async with bench.running():
        await bench.tell(3, "a")
        await asyncio.sleep(1)
        report = await bench.said()
        assert report is not None
        assert [(c.enforced, c.reason) for c in report.cards] == [("none", "disk full")]
        assert [(p.state, p.reason) for p in report.pods] == [("failed", "disk full")]
        bench.backend.broken = None
        await asyncio.sleep(1)
        report = await bench.said()

        assert report is not None
        assert [(p.state, p.reason) for p in report.pods] == [("applied", "")]


async def test_a_waiting_pod_is_looked_at_sooner(bench: Bench) -> None:
    """The pause of a quiet node does not hold back a pod whose daemon comes up."""
    bench.backend.lacks = "the daemon starts"
    async with bench.running(check_s=60.0):
        await bench.tell(3, "a")
        await asyncio.sleep(1)
        bench.backend.lacks = ""
        await asyncio.sleep(1)
        report = await bench.said()

        assert report is not None
        assert report.pods[0].state == "applied"


async def test_tools_that_hang_are_told_and_left_behind(bench: Bench) -> None:
    """After the deadline nothing is claimed any more; no second call is made while the first is out."""
    async with bench.running():
        await bench.tell(3, "a")
        await asyncio.sleep(1)
        bench.runner.hang = True
        await asyncio.sleep(DEADLINE_S + 5)
        report = await bench.said()
        assert report is not None
        assert [(c.enforced, c.reason) for c in report.cards] == [
            ("none", f"the node's tools have not answered for {DEADLINE_S:g} s")
        ]
        await asyncio.sleep(10 * DEADLINE_S)
        assert len(bench.runner.out) == 1
        bench.runner.hang = False
        bench.runner.out[0].set_result(Findings())
        await asyncio.sleep(5)
        report = await bench.said()

        assert report is not None
        assert report.pods[0].state == "applied"


async def test_a_report_that_the_bus_did_not_take_is_said_again(bench: Bench) -> None:
    """A bus that is away only delays it."""
    async with bench.running():
        await bench.tell(3, "a")
        bench.server.fault = lambda _name, what, subject: (
            Fault(lose="before") if what == "store" and subject.endswith(".enforcement") else NO_FAULT
        )
        await asyncio.sleep(5)
        bench.server.fault = lambda *_: NO_FAULT
        assert await bench.said() is None
        await asyncio.sleep(10)

        assert await bench.said() is not None


async def test_our_word_stands_again_after_another_spoke(bench: Bench) -> None:
    """A monitor of this node that should be dead, or a stream that lost its disk: noticed within half a minute."""
    async with bench.running():
        await bench.tell(3, "a")
        await asyncio.sleep(1)
        zombie = NodeEnforcement(node=NODE, incarnation="monitor-0")
        await bench.bus.store(ENFORCEMENT.subject(node=NODE), encode(zombie), stream=ENFORCEMENT.stream)
        await asyncio.sleep(35)
        report = await bench.said()

        assert report is not None
        assert report.incarnation == "monitor-1"


async def test_a_card_without_a_backend_says_so(bench: Bench) -> None:
    """A mode that this monitor does not know: refused, never silently unenforced."""
    bench.cards = (msgspec.structs.replace(CARD, isolation="hami-core"),)
    async with bench.running():
        await bench.tell(3, "a")
        await asyncio.sleep(1)
        report = await bench.said()

        assert report is not None
        assert [(p.state, p.reason) for p in report.pods] == [("refused", "this monitor has no backend for the mode")]


async def test_limits_of_another_node_are_refused(bench: Bench) -> None:
    """Sent on our subject by somebody's mistake."""
    async with bench.running():
        await bench.tell(3, "a")
        foreign = NodeCpuLimits(node=NodeName("n2"), epoch="e", sequence=1)
        await bench.bus.store(CPU_LIMITS.subject(node=NODE), encode(foreign), stream=CPU_LIMITS.stream)
        await asyncio.sleep(1)
        report = await bench.said()

        assert report is not None
        assert report.refused == "limits of n2 were sent to n1"
