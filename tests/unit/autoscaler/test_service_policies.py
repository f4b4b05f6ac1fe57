"""Rates, numbers by hand and counting policies in the service: real scheduler, bus in memory, virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from bus.memory import InMemoryBus, MemoryServer
from contracts.functions import ScalingSwitch
from contracts.messages import encode
from contracts.requests import Withdraw
from contracts.subjects import REQUESTS, SCALING_SWITCH
from contracts.units import request_key
from contracts.workloads import Profile, ScaleDecision, Scaling
from gpubus.gateway import Gateway, gateway
from gpubus.worker import InHand
from tests.contract.functions_rig import HASTY, NAMESPACE, FunctionsWorld, function, functions_world, scaling

pytestmark = pytest.mark.looptime(start=0)

SLOW_S = 0.5


async def half_a_second(call: InHand) -> None:
    """Two calls a second."""
    await asyncio.sleep(SLOW_S)
    await call.reply("")


def hasty(**changes: Any) -> Scaling:
    """The quick settings with these changes."""
    return msgspec.structs.replace(HASTY, **changes)


@contextlib.asynccontextmanager
async def world(**options: Any) -> AsyncIterator[tuple[FunctionsWorld, Gateway]]:
    """Four cards, unless told otherwise."""
    wall_s = asyncio.get_running_loop().time
    bus = InMemoryBus(MemoryServer(wall=wall_s), "all")
    async with (
        functions_world(bus, wall_s=wall_s, **{"cards": 4, **options}) as made,
        gateway(bus, NAMESPACE) as calling,
    ):
        await asyncio.sleep(2)
        yield made, calling


@contextlib.asynccontextmanager
async def arriving(calling: Gateway, per_s: float) -> AsyncIterator[None]:
    """So many calls a second while the context is open; then all of them are waited for."""

    async def come() -> None:
        async with asyncio.TaskGroup() as group:
            while not over.is_set():
                group.create_task(calling.call("f", "x", timeout_s=300))
                await asyncio.sleep(1 / per_s)

    over = asyncio.Event()
    task = asyncio.create_task(come())
    try:
        yield
    finally:
        over.set()
        await task


async def withdraw(made: FunctionsWorld, name: str) -> None:
    """Somebody else takes a replica away."""
    await made.bus.store(REQUESTS.subject(namespace=NAMESPACE), encode(Withdraw(name=name, reason="by hand")))


async def last(made: FunctionsWorld) -> ScaleDecision:
    """The newest decision about f."""
    return (await made.decisions("f"))[-1]


async def test_replicas_follow_the_calls_that_arrive_a_second() -> None:
    """Each answers two a second and is to be busy to the brim: six a second want three, and nobody queues."""
    by_rate = hasty(metric="rate", rate_milli=2000, tolerance_percent=0, stable_s=6)
    async with world(work=half_a_second) as (made, calling):
        await made.deploy(function("f", scaling=by_rate, target_percent=100, max_replicas=8))
        async with arriving(calling, 5.9):
            await made.until("f", "three serve", lambda s: s.ready == 3, 60)
            await asyncio.sleep(20)
            status = await made.status("f")
            assert (status.target, status.ready) in ((3, 3), (4, 4)), "those that wait are load too"
            inputs = (await last(made)).inputs
            assert inputs["capacity_milli"] == 2000
            assert 5000 <= inputs["stable_milli"] <= 7500
        await made.until("f", "it sleeps", lambda s: (s.target, s.ready) == (0, 0), 60)


async def test_what_a_replica_can_do_is_measured_where_nobody_says_it() -> None:
    """S136: one serves until a hundred calls have shown what it can; then there are enough, and that is remembered."""

    async def quick(call: InHand) -> None:
        await asyncio.sleep(0.1)
        await call.reply("")

    by_rate = hasty(metric="rate", stable_s=6)
    async with world(work=quick) as (made, calling):
        await made.deploy(function("f", scaling=by_rate, max_replicas=8))
        async with arriving(calling, 25):
            await asyncio.sleep(5)
            assert (await last(made)).rule == "no-profile"
            assert (await made.status("f")).ready == 1
            await made.until("f", "it is known", lambda s: s.profiles != (), 120)
            await made.until("f", "it grows", lambda s: s.ready >= 4, 60)
            row = (await made.status("f")).profiles[0]
            assert (row.model, row.share_milli) == ("A100", 500)
            assert 5000 <= row.rate_milli <= 10_500
        await made.until("f", "it sleeps", lambda s: (s.target, s.ready) == (0, 0), 300)
        made.stop_autoscaler()
        await asyncio.sleep(2)
        async with scaling(made.bus, name="autoscaler-2", wall_s=asyncio.get_running_loop().time):
            async with arriving(calling, 25):
                await made.until("f", "the next one knows it", lambda s: s.ready >= 3, 10)
            assert [row.share_milli for row in (await made.status("f")).profiles] == [500]


async def test_the_cheapest_slice_that_is_quick_enough_is_asked_for() -> None:
    """Of three rows two are quick enough; 300 thousandths do most for it."""
    rows = (
        Profile(model="A100", share_milli=100, rate_milli=9000, latency_ms=900),
        Profile(model="A100", share_milli=300, rate_milli=3000, latency_ms=90),
        Profile(model="A100", share_milli=600, rate_milli=5000, latency_ms=40),
    )
    priced = hasty(metric="rate", profiles=rows, slices="cheapest", latency_ms=100)
    async with world() as (made, calling):
        await made.deploy(function("f", scaling=priced, share_milli=1000, min_replicas=1))
        await calling.call("f", "x")
        state = made.autoscaler.state
        asked = state.requests[state.by_key[request_key(NAMESPACE, "f-0")]].request.gpu
        assert (asked.share_milli, asked.models) == (300, ("A100",))
        await asyncio.sleep(2)
        assert (await last(made)).inputs["capacity_milli"] == 3000


async def test_a_stretched_slice_is_used_before_another_replica_is_made() -> None:
    """Six a second on replicas of two a second: with limits at three times what was sold one is enough."""
    stretchy = hasty(metric="rate", rate_milli=2000, stretch_percent=300, stable_s=6)
    async with world(work=half_a_second) as (made, calling):
        made.autoscaler.limit_milli = lambda _: 1500
        await made.deploy(function("f", scaling=stretchy, target_percent=100, max_replicas=8))
        async with arriving(calling, 1.5):
            await asyncio.sleep(10)
        assert (await last(made)).inputs["stretch_percent"] in (100, 300)
        assert made.pods.created == ["f-0"]
        made.autoscaler.limit_milli = lambda _: None
        async with arriving(calling, 5):
            await made.until("f", "its card lends nothing: two more", lambda s: s.ready >= 3, 30)


async def test_a_replica_that_somebody_takes_away_is_made_again_and_that_is_told() -> None:
    """S134: reverted by the stated rule, with an event."""
    async with world() as (made, _):
        await made.deploy(function("f", min_replicas=2))
        await made.until("f", "two serve", lambda s: s.ready == 2)
        await withdraw(made, "f-1")
        await made.until("f", "it is made again", lambda s: s.ready == 2 and len(made.pods.created) == 3)
        told = [decision for decision in await made.decisions("f") if "by_hand" in decision.inputs]
        assert [decision.inputs["by_hand"] for decision in told] == [1]
        assert told[0].rule.endswith("+reverted")


async def test_what_we_take_away_ourselves_is_nobodys_number() -> None:
    """From three that have not started yet to none: withdrawn at once, and no decision speaks of a number by hand."""
    async with world(cold_s=30) as (made, _):
        await made.deploy(function("f", replicas=3))
        await made.until("f", "three start", lambda s: s.starting == 3)
        await made.deploy(function("f", replicas=0))
        await made.until("f", "none is left", lambda s: (s.ready, s.starting) == (0, 0))
        await asyncio.sleep(5)
        assert [d.rule for d in await made.decisions("f") if "by_hand" in d.inputs] == []


async def test_a_number_by_hand_is_adopted_for_one_window_where_the_function_says_so() -> None:
    """S134: two of three remain for 20 s though the load wants three."""
    gate = asyncio.Event()

    async def wait(call: InHand) -> None:
        await gate.wait()
        await call.reply("")

    async with world(work=wait) as (made, calling):
        await made.deploy(function("f", scaling=hasty(by_hand="adopt", stable_s=20), target_percent=100))
        calls = [asyncio.create_task(calling.call("f", "x", timeout_s=300)) for _ in range(3)]
        await made.until("f", "three serve", lambda s: s.ready == 3, 60)
        made.pods.kill("f-2")  # as its kubelet does after the withdrawal: its call goes to nobody for now
        await withdraw(made, "f-2")
        await made.until("f", "two stand", lambda s: s.rule.startswith("adopted"), 10)
        began = asyncio.get_running_loop().time()
        await made.until("f", "and then the load decides", lambda s: s.ready == 3, 60)
        assert asyncio.get_running_loop().time() - began > 15
        gate.set()
        await asyncio.gather(*calls)


async def test_a_rival_is_left_alone_until_the_function_is_published_again() -> None:
    """S134: no stuck state, and no fight: after three answers it stands still and says so."""
    async with world() as (made, _):
        wanted = function("f", min_replicas=1, scaling=hasty(stable_s=60))
        await made.deploy(wanted)
        for number in range(4):
            await made.until("f", "one serves", lambda s, n=number: s.ready == 1 and len(made.pods.created) == n + 1)
            await withdraw(made, next(iter(made.pods.running)))
            await asyncio.sleep(1)
        await made.until("f", "it stands back", lambda s: s.rule == "rival")
        await asyncio.sleep(120)
        assert len(made.pods.created) == 4
        await made.deploy(wanted)
        await made.until("f", "it serves again", lambda s: s.ready == 1)


async def test_maxcount_adds_one_for_each_call_that_finds_none_idle_and_keeps_them() -> None:
    """Three calls at once make three; a fourth finds one idle; nothing is taken away."""
    async with world(work=half_a_second) as (made, calling):
        await made.deploy(function("f", scaling=hasty(policy="maxcount", high=3), max_replicas=8))
        await asyncio.gather(*(calling.call("f", str(n)) for n in range(5)))
        await made.until("f", "three stay", lambda s: (s.target, s.ready, s.rule) == (3, 3, "maxcount"))
        await asyncio.sleep(20)
        await calling.call("f", "x")
        assert (await made.status("f")).ready == 3
        assert len(made.pods.created) == 3


async def test_watermark_fills_up_when_replicas_that_answer_one_call_run_low() -> None:
    """Begins at 4; each call ends one; at 1 left, below 2, it is filled to 4 again. A call never meets a used one."""
    used: list[str] = []

    async def once(call: InHand) -> None:
        used.append(call._calls.worker)
        await call.reply("")

    marks = hasty(policy="watermark", low=2, high=4, reuse=False)
    async with world(work=once) as (made, calling):
        await made.deploy(function("f", scaling=marks, max_replicas=8))
        await made.until("f", "filled to the high mark", lambda s: s.ready == 4)
        for _ in range(2):
            await calling.call("f", "x")
        await made.until("f", "two are left", lambda s: (s.ready, s.target) == (2, 2))
        await asyncio.sleep(30)
        assert len(made.pods.created) == 4
        await calling.call("f", "x")
        await made.until("f", "filled again", lambda s: s.ready == 4)
        assert len(made.pods.created) == 7
        assert len(set(used)) == len(used) == 3


async def test_a_replica_that_never_speaks_gives_its_card_back_and_is_made_anew() -> None:
    """The place that it holds has an end: 30 s without a word of its worker. One that starts in 20 s is left alone."""
    async with world(cold_s=1000) as (made, _):
        await made.deploy(function("f", min_replicas=1, scaling=hasty(start_s=30)))
        await asyncio.sleep(25)
        assert made.pods.created == ["f-0"]
        made.pods.cold_s = 20
        await made.until("f", "another one serves", lambda s: s.ready == 1, 60)
        await asyncio.sleep(60)
        assert len(made.pods.created) == 2


async def test_a_replica_whose_worker_hangs_gives_its_card_back_and_is_made_anew() -> None:
    """It served and then says nothing, while its pod runs: after 20 s another one is there. Frozen, it stays."""
    async with world() as (made, _):
        await made.deploy(function("f", min_replicas=1, scaling=hasty(silent_s=20)))
        await made.until("f", "it serves", lambda s: s.ready == 1)
        made.pods.hang("f-0")
        await freeze(made, frozen=True)
        await asyncio.sleep(30)
        assert list(made.pods.running) == made.pods.created == ["f-0"]
        await freeze(made, frozen=False)
        await made.until("f", "another one serves", lambda s: s.ready == 1, 30)
        assert len(made.pods.created) == 2


async def freeze(made: FunctionsWorld, *, frozen: bool) -> None:
    """The operator's brake."""
    await made.bus.store(SCALING_SWITCH.subject(pool="default"), encode(ScalingSwitch(frozen=frozen)))


async def test_a_stopped_function_goes_and_nothing_wakes_it() -> None:
    """Its warm replica goes too; published without it, it serves again."""
    async with world() as (made, calling):
        await made.deploy(function("f", min_replicas=2, warm_replicas=1))
        await made.until("f", "two serve, one stands by", lambda s: (s.ready, s.warm) == (2, 1))
        await made.deploy(function("f", min_replicas=2, warm_replicas=1, stopped=True))
        await made.until("f", "all are gone", lambda s: (s.ready, s.warm, s.draining) == (0, 0, 0))
        call = asyncio.create_task(calling.call("f", "x", timeout_s=100))
        await asyncio.sleep(30)
        assert len(made.pods.created) == 3
        await made.deploy(function("f"))
        assert await call == "did x"
