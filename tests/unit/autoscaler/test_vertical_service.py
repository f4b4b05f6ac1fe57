"""The vertical shell on a virtual clock and an in-memory bus: when it decides, what it writes, what it never writes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
import pytest
from msgspec.structs import replace

from autoscaler.core.vertical_periods import TOKENS_KEY
from autoscaler.vertical import Vertical, VerticalSettings
from bus.memory import Fault, InMemoryBus, MemoryServer
from bus.memory_server import NO_FAULT
from bus.protocol import Received
from contracts.messages import encode
from contracts.requests import PodTemplate
from contracts.shares import CpuLimit, NodeCpuLimits, NodeEnforcement, NodeVertical, PodEnforcement
from contracts.subjects import CPU_LIMITS, ENFORCEMENT, USAGE, VERTICAL
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import CardUsage, ContainerUsage, NodeUsage, SliceUsage
from tests.builders.ledger import cluster, node, request

pytestmark = pytest.mark.looptime

NODE = NodeName("n1")
SUBJECT = CPU_LIMITS.subject(node=NODE)


class Bench:
    """One Gemini card in two halves: `a` asks for vertical scaling, `b` does not."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.bus = InMemoryBus(self.server, "autoscaler")
        self.cluster = cluster(node(NODE).gpus(1, isolation="gemini").cpu(8000))
        template = PodTemplate(image="image", cpu_milli=500, memory_mib=64, annotations={TOKENS_KEY: "auto"})
        self.a = self.cluster.hold(replace(request("a").share(500).build(), pod=template), NODE, 0).uid
        self.b = self.cluster.hold(request("b").share(500).cpu(500), NODE, 0).uid
        self.said: list[NodeVertical] = []
        self.frozen = False
        self._sequence = 0

    @contextlib.asynccontextmanager
    async def running(self, mode: str = "act", **more: Any) -> AsyncIterator[Vertical]:
        settings = msgspec.convert({"mode": mode, **more}, VerticalSettings)
        made = Vertical(self.bus, lambda: self.cluster.state, settings, frozen=lambda: self.frozen)
        async with self.bus.subscribe(VERTICAL.wildcard, self._hear):
            task = asyncio.create_task(made.run(), name="vertical")
            await asyncio.sleep(0.01)
            try:
                yield made
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _hear(self, received: Received) -> None:
        self.said.append(msgspec.json.decode(received.data, type=NodeVertical))

    async def use(self, a: int, b: int = 0, *, cpu_milli: int | None = 100) -> None:
        """One usage message, percent of the card."""
        self._sequence += 1
        pieces = tuple(
            SliceUsage(uid=uid, namespace="default", pod="p", share_milli=500, limit_mib=1, compute_percent=percent)
            for uid, percent in ((self.a, a), (self.b, b))
        )
        containers = tuple(
            ContainerUsage(container=f"c{uid}", pod_uid="p", uid=uid, own=True, cpu_used_milli=cpu_milli)
            for uid in (self.a, self.b)
        )
        usage = NodeUsage(
            node=NODE, incarnation="m", sequence=self._sequence, period_ms=1000, containers=containers,
            cards=(CardUsage(uuid=CardUuid("n1-gpu0"), slices=pieces),),
        )  # fmt: skip
        await self.bus.publish(USAGE.subject(node=NODE), encode(usage))

    async def limits(self) -> NodeCpuLimits | None:
        last = await self.bus.last(CPU_LIMITS.stream, SUBJECT)
        return msgspec.json.decode(last.data, type=NodeCpuLimits) if last else None

    async def gpu(self) -> int | None:
        limits = await self.limits()
        return next((one.limit_milli for one in limits.cards), None) if limits else None

    async def count(self) -> int:
        return await self.bus.last_sequence(CPU_LIMITS.stream)

    async def report(self, sequence: int, *pods: PodEnforcement) -> None:
        epoch = self.cluster.state.epoch
        report = NodeEnforcement(node=NODE, incarnation="m", epoch=epoch, cpu_sequence=sequence, pods=pods)
        await self.bus.store(ENFORCEMENT.subject(node=NODE), encode(report), stream=ENFORCEMENT.stream)


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.bus.ensure_streams()
    return bench


async def test_observing_is_the_default_writes_nothing_and_shows_what_would_be_done(bench: Bench) -> None:
    """As a message and as gauges, for all pods of the node."""
    assert VerticalSettings().mode == "observe"
    async with bench.running("observe") as vertical:
        await bench.use(48)
        await asyncio.sleep(0.01)
        said = bench.said[-1]
        assert said.mode == "observe"
        assert [(p.managed, p.gpu_next_milli > 500, p.gpu_limit_milli) for p in said.pods] == [
            (True, True, None),
            (False, False, None),
        ]
        gauges = {gauge.name: dict(gauge.series) for gauge in vertical.gauges()}
        assert gauges["kuscale_next_limit"]["GPU", "default/a", NODE] == said.pods[0].gpu_next_milli / 10
        assert gauges["kuscale_token_reservation"]["default/a", NODE] == 400
        assert not gauges["gpubus_vertical_limit"]
        await asyncio.sleep(60)
    assert await bench.limits() is None


async def test_a_change_of_load_is_answered_when_it_is_measured(bench: Bench) -> None:
    """Not at the next period; several within a tenth of one are answered once; the same again is not written."""
    async with bench.running():
        await bench.use(10)
        await asyncio.sleep(1.5)
        first = await bench.gpu()
        await bench.use(45)
        await asyncio.sleep(0.001)
        second = await bench.gpu()
        assert (second or 0) > (first or 0) >= 500
        said = len(bench.said)
        for _ in range(50):
            await asyncio.sleep(0.01)
            await bench.use(10)
            await bench.use(45)
        assert 2 <= len(bench.said) - said <= 3
        for _ in range(20):
            await asyncio.sleep(1)
            await bench.use(45)
        settled = await bench.count()
        for _ in range(20):
            await asyncio.sleep(1)
            await bench.use(45)
        assert await bench.count() == settled


async def test_s152_the_neighbour_has_its_own_back_with_the_first_measurement(bench: Bench) -> None:
    """The owner of the other half never asked for anything."""
    async with bench.running():
        await bench.use(50, 0)
        await asyncio.sleep(1)
        assert (await bench.gpu() or 0) > 800
        await bench.use(80, 50)
        await asyncio.sleep(0.001)
        assert await bench.gpu() == 500


async def test_a_lost_autoscaler_leaves_limits_as_they_are_and_the_next_goes_on_from_them(bench: Bench) -> None:
    """The number goes on too, as nodes refuse a lower one; and without usage nothing is changed."""
    async with bench.running():
        await bench.use(50)
        await asyncio.sleep(1)
    before = await bench.limits()
    assert before is not None
    await asyncio.sleep(600)
    assert await bench.limits() == before
    async with bench.running():
        await bench.report(before.sequence)
        await asyncio.sleep(10)
        assert await bench.limits() == before
        await bench.use(20, 50)
        await asyncio.sleep(1)
        after = await bench.limits()
        assert after is not None
        assert (after.epoch, after.sequence, after.cards[0].limit_milli) == (before.epoch, before.sequence + 1, 500)


async def test_s148_a_write_that_fails_on_the_node_is_taken_back(bench: Bench) -> None:
    """The next message has the limits that held; the pod is left alone, and the reason is shown."""
    async with bench.running(hold_s=30.0):
        await bench.use(10)
        await asyncio.sleep(1)
        held = await bench.limits()
        assert held is not None
        good = PodEnforcement(uid=RequestUid(bench.a), what="cpu", state="applied")
        await bench.report(held.sequence, good, replace(good, what="n1-gpu0"))
        await asyncio.sleep(1)
        await bench.use(50)
        await asyncio.sleep(1)
        grown = await bench.limits()
        assert grown is not None
        assert grown.cards != held.cards
        await bench.report(grown.sequence, good, replace(good, what="n1-gpu0", state="failed", reason="EIO"))
        await asyncio.sleep(0.3)
        back = await bench.limits()
        assert back is not None
        assert (back.sequence, back.limits, back.cards) == (grown.sequence + 1, held.limits, held.cards)
        assert (bench.said[-1].pods[0].rule, bench.said[-1].pods[0].reason) == ("left-alone", "n1-gpu0: EIO")


@pytest.mark.parametrize("lose", ["before", "after"])
async def test_what_could_not_be_stored_is_not_remembered(bench: Bench, lose: Literal["before", "after"]) -> None:
    """Writes, or their answers, are lost for a while: what is said to be in force is what the stream holds."""
    async with bench.running():
        lost = Fault(lose=lose)
        bench.server.fault = lambda _client, kind, _subject: lost if kind == "store" else NO_FAULT
        await bench.use(50)
        await asyncio.sleep(5)
        stored = await bench.limits()
        assert {said.cpu_sequence for said in bench.said} <= (
            {0} if stored is None else set(range(stored.sequence + 1))
        )
        assert (stored is None) == (lose == "before")
        bench.server.fault = lambda _client, _kind, _subject: NO_FAULT
        await bench.use(50)
        await asyncio.sleep(5)
        assert (await bench.gpu() or 0) > 500
        after = await bench.limits()
        assert after is not None
        assert bench.said[-1].cpu_sequence == after.sequence


async def test_two_autoscalers_do_not_overwrite_each_other_blindly(bench: Bench) -> None:
    """Who finds another word in the stream reads it first, and numbers on from it."""
    async with bench.running():
        await bench.use(50)
        await asyncio.sleep(1)
        epoch = bench.cluster.state.epoch
        other = NodeCpuLimits(node=NODE, epoch=epoch, sequence=40, limits=(CpuLimit(uid=bench.a, limit_milli=900),))
        await bench.bus.store(SUBJECT, encode(other), stream=CPU_LIMITS.stream)
        for _ in range(3):
            await bench.use(20, 50)
            await asyncio.sleep(1)
        after = await bench.limits()
        assert after is not None
        assert after.sequence > 40


async def test_frozen_it_only_observes_and_release_takes_all_back(bench: Bench) -> None:
    """An operator's brake; and the way back to how it was before."""
    bench.frozen = True
    async with bench.running():
        await bench.use(50)
        await asyncio.sleep(3)
        assert await bench.limits() is None
        bench.frozen = False
        await asyncio.sleep(3)
        assert (await bench.gpu() or 0) > 500
    async with bench.running("release"):
        await bench.use(50)
        await asyncio.sleep(1)
        empty = await bench.limits()
    assert empty is not None
    assert (empty.limits, empty.cards) == ((), ())
    async with bench.running("off"):
        await bench.use(50)
        await asyncio.sleep(5)


async def test_a_pod_that_is_gone_leaves_the_snapshot(bench: Bench) -> None:
    """Within a period, also when nothing is measured any more."""
    async with bench.running():
        await bench.use(50)
        await asyncio.sleep(1)
        bench.cluster.release(bench.a)
        await asyncio.sleep(3)
        after = await bench.limits()
        assert after is not None
        assert (after.limits, after.cards) == ((), ())


async def test_a_node_where_nobody_asks_is_looked_at_now_and_then(bench: Bench) -> None:
    """Four times a minute instead of every second; whoever comes and asks is seen with the next measurement."""
    async with bench.running():
        bench.cluster.release(bench.a)
        for _ in range(60):
            await bench.use(50)
            await asyncio.sleep(1)
        assert 3 <= len(bench.said) <= 6
        template = PodTemplate(image="image", cpu_milli=500, memory_mib=64, annotations={TOKENS_KEY: "auto"})
        bench.a = bench.cluster.hold(replace(request("c").share(500).build(), pod=template), NODE, 0).uid
        await bench.use(50)
        await asyncio.sleep(0.01)
        assert (await bench.gpu() or 0) > 500


async def test_old_usage_counts_as_unknown(bench: Bench) -> None:
    """After `fresh_s` limits stay as they are, and it is said that nothing is known."""
    async with bench.running(fresh_s=5.0):
        for _ in range(20):
            await bench.use(50)
            await asyncio.sleep(1)
        count = await bench.count()
        await asyncio.sleep(60)
        assert await bench.count() == count
        assert bench.said[-1].pods[0].rule == "unknown"
        assert bench.said[-1].pods[0].gpu_used_milli is None


async def test_a_copy_of_older_usage_and_a_lie_about_the_node_change_nothing(bench: Bench) -> None:
    """Replayed messages, and those on another node's subject."""
    async with bench.running():
        await bench.use(50)
        await bench.use(50, 50)
        await asyncio.sleep(1)
        now = await bench.gpu()
        bench._sequence = 0
        await bench.use(50, 0)
        lie = NodeUsage(node=NODE, incarnation="x", sequence=1, period_ms=1, cards=())
        await bench.bus.publish(USAGE.subject(node="n2"), encode(lie))
        await bench.bus.publish(USAGE.subject(node=NODE), b"{")
        await asyncio.sleep(1)
        assert await bench.gpu() == now == 500


async def test_s150_a_period_that_does_not_parse_is_two_seconds_and_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs, with a warning; no start fails for it."""
    with caplog.at_level(logging.WARNING):
        async with bench.running(period="5 minuten"):
            await bench.use(50)
            await asyncio.sleep(1)
            assert (await bench.gpu() or 0) > 500
    assert "'5 minuten'" in caplog.text
