"""The autoscaler around the pure decisions, with the real scheduler, on the bus in memory and on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bus.memory import InMemoryBus, MemoryServer
from contracts.functions import FunctionStatus, ScalingSwitch
from contracts.messages import encode
from contracts.subjects import CALLS, REQUESTS, SCALING_SWITCH, WORKLOADS
from contracts.units import request_key
from contracts.workloads import Promotion
from gpubus.gateway import CallGaveUp, CallLate, Gateway, gateway
from gpubus.worker import InHand
from tests.contract.functions_rig import NAMESPACE, FunctionsWorld, function, functions_world, scaling
from tests.contract.scheduler_rig import request

pytestmark = pytest.mark.looptime(start=0)


@contextlib.asynccontextmanager
async def world(**options: Any) -> AsyncIterator[tuple[FunctionsWorld, Gateway]]:
    wall_s = asyncio.get_running_loop().time
    bus = InMemoryBus(MemoryServer(wall=wall_s), "all")
    async with functions_world(bus, wall_s=wall_s, **options) as made, gateway(bus, NAMESPACE) as calling:
        await asyncio.sleep(2)
        yield made, calling


def missing(status: FunctionStatus) -> int:
    return status.missing.replicas if status.missing else 0


class Gate:
    """A worker that answers when it is told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun: list[str] = []

    async def work(self, call: InHand) -> None:
        self.begun.append(call.body)
        await self.open.wait()
        await call.reply(call.body)


async def test_twenty_calls_to_a_function_at_zero_wake_it_once_and_are_answered_in_order() -> None:
    """S158: one wake-up, not twenty; the calls are held meanwhile."""
    answered: list[str] = []

    async def work(call: InHand) -> None:
        answered.append(call.body)
        await call.reply("")

    async with world(work=work, cold_s=5.0) as (made, calling):
        await made.deploy(function("f", max_replicas=1))
        calls = []
        for number in range(20):
            calls.append(asyncio.create_task(calling.call("f", str(number))))
            await asyncio.sleep(0.01)
        await asyncio.gather(*calls)
        assert answered == [str(number) for number in range(20)]
        assert made.pods.created == ["f-0"]


async def test_what_cannot_be_placed_is_not_asked_for_and_what_is_missing_is_told() -> None:
    """Three thirds fit on the one card; the other three are counted as missing, and never wait in the queue.

    The third is made in a batch of two, of which the second does not fit: each is asked for before it is made.
    """
    gate = Gate()
    async with world(work=gate.work) as (made, calling):
        await made.deploy(function("f", max_replicas=6, share_milli=333))
        calls = [asyncio.create_task(calling.call("f", str(n))) for n in range(12)]
        await made.until("f", "cards are missing", lambda s: s.ready == 3 and missing(s) == 3)
        status = await made.status("f")
        assert status.missing is not None
        assert (status.missing.replicas, status.missing.cards, status.missing.share_milli) == (3, 3, 333)
        assert status.missing.reason
        assert status.rule.endswith("no-room")
        assert not made.autoscaler.state.pending
        assert made.autoscaler.state.totals.accepted == 3
        gate.open.set()
        await asyncio.gather(*calls)


async def test_of_two_functions_that_reach_for_the_last_card_one_gets_it_and_the_other_lets_go() -> None:
    """Both were told that there is room. The placement in the ledger is the reservation: who has none lets go."""
    async with world() as (made, _):
        await asyncio.gather(*(made.deploy(function(f, share_milli=1000, min_replicas=1)) for f in ("f", "g")))
        for _ in range(2000):
            await asyncio.sleep(0.01)
            if made.autoscaler.state.totals.withdrawn:
                break
        await asyncio.sleep(3)
        statuses = [await made.status("f"), await made.status("g")]
        assert sorted((status.ready, missing(status)) for status in statuses) == [(0, 1), (1, 0)]
        assert not made.autoscaler.state.pending
        assert (made.autoscaler.state.totals.accepted, made.autoscaler.state.totals.withdrawn) == (2, 1)


async def test_a_replica_whose_node_is_lost_is_not_asked_for_until_there_is_another_place() -> None:
    """S138: it never waits in the scheduler's queue."""
    async with world() as (made, calling):
        await made.deploy(function("f", share_milli=1000, min_replicas=1))
        await made.until("f", "it serves", lambda s: s.ready == 1)
        made.cluster.silence("gpu-1")
        await asyncio.sleep(10)
        made.pods.kill("f-0")
        await asyncio.sleep(30)
        assert not made.autoscaler.state.pending
        assert (await made.status("f")).missing is not None
        await made.cluster.speak("gpu-1")
        await made.until("f", "it serves again", lambda s: s.ready == 1 and s.missing is None)
        assert await calling.call("f", "x") == "did x"


async def test_a_frozen_autoscaler_changes_nothing_and_goes_on_where_it_was() -> None:
    async with world() as (made, calling):
        await made.deploy(function("f"))
        switch = SCALING_SWITCH.subject(pool="default")
        await made.bus.store(switch, encode(ScalingSwitch(frozen=True, reason="maintenance")))
        waiting = asyncio.create_task(calling.call("f", "x", timeout_s=100))
        await asyncio.sleep(20)
        assert made.pods.created == []
        assert (await made.decisions("f"))[-1].rule == "frozen"
        await made.bus.store(switch, encode(ScalingSwitch(frozen=False)))
        assert await waiting == "did x"


async def test_another_autoscaler_goes_on_with_the_target_of_the_one_before() -> None:
    """S132: it knows nothing of the load, and wants what was wanted: the replica that died meanwhile is made again."""
    gate = Gate()
    async with world(work=gate.work, cards=2) as (made, calling):
        await made.deploy(function("f", max_replicas=4))
        calls = [asyncio.create_task(calling.call("f", str(n))) for n in range(4)]
        await made.until("f", "four serve", lambda s: s.ready == 4)
        made.stop_autoscaler()
        gate.open.set()
        await asyncio.gather(*calls)
        await asyncio.sleep(5)
        made.pods.kill("f-3")
        await asyncio.sleep(1)
        assert sorted(made.pods.running) == ["f-0", "f-1", "f-2"]
        async with scaling(made.bus, name="autoscaler-2"):
            await made.until("f", "it is made again", lambda _: made.pods.created.count("f-3") == 2)
            assert len(made.pods.created) == 5


async def test_a_warm_replica_takes_over_without_a_cold_start_and_is_replaced_behind() -> None:
    async with world(cards=2, cold_s=20.0) as (made, calling):
        await made.deploy(function("f", warm_replicas=1))
        await made.until("f", "one stands by", lambda s: s.warm == 1)
        await asyncio.sleep(25)
        began = asyncio.get_running_loop().time()
        assert await calling.call("f", "x") == "did x"
        assert asyncio.get_running_loop().time() - began < 0.05, "at once, not at the next look"
        await made.until("f", "another stands by", lambda s: (s.ready, s.warm) == (1, 1))
        assert made.pods.created[:2] == ["f-0", "f-1"]


@pytest.mark.parametrize(("rule", "first"), [("steadiest", "f-1"), ("best-fit", "f-0")])
async def test_the_function_says_which_warm_replica_serves_next(rule: Any, first: str) -> None:
    """Two stand by alike, each on a card of its own, and one of the cards is shared with somebody: that is the fit."""
    async with world(cards=2) as (made, calling):
        await made.deploy(function("f", share_milli=600, warm_replicas=2, promotion=Promotion(rule=rule)))
        await made.until("f", "two stand by", lambda s: s.warm == 2)
        await made.bus.store(REQUESTS.subject(namespace=NAMESPACE), json.dumps(request("train", 400)).encode())
        await asyncio.sleep(5)
        assert card_of(made, "train") == card_of(made, "f-0") != card_of(made, "f-1")
        await calling.call("f", "x")
        await made.until("f", "one serves", lambda s: s.ready == 1)
        assert [name for name, calls in sorted(made.pods.running.items()) if calls.phase == "ready"] == [first]


def card_of(made: FunctionsWorld, name: str) -> str:
    """Where the ledger has placed it."""
    placed = made.autoscaler.state.requests[made.autoscaler.state.by_key[request_key(NAMESPACE, name)]].placement
    assert placed is not None
    return placed.slices[0].card


async def test_a_warm_replica_gives_way_to_somebody_who_waits_for_its_card() -> None:
    async with world() as (made, _):
        await made.deploy(function("f", share_milli=1000, warm_replicas=1))
        await made.until("f", "one stands by", lambda s: s.warm == 1)
        await made.bus.store(REQUESTS.subject(namespace=NAMESPACE), json.dumps(request("train", 1000)).encode())
        await made.until("f", "it is given back", lambda s: s.warm == 0)
        await asyncio.sleep(5)
        assert made.autoscaler.state.by_key[request_key(NAMESPACE, "train")] not in made.autoscaler.state.pending


async def test_a_scale_down_waits_for_the_call_that_runs() -> None:
    """S129: it is drained first, and what it works on is answered."""
    gate = Gate()
    async with world(work=gate.work) as (made, calling):
        await made.deploy(function("f", max_replicas=1))
        call = asyncio.create_task(calling.call("f", "long"))
        await made.until("f", "it serves", lambda s: s.ready == 1)
        await made.deploy(function("f", replicas=0))
        await made.until("f", "it drains", lambda s: s.draining == 1)
        await asyncio.sleep(3)
        assert list(made.pods.running) == ["f-0"]
        gate.open.set()
        assert await call == "long"
        await made.until("f", "it is gone", lambda s: s.draining == 0)


async def test_a_call_that_nobody_can_take_in_time_is_answered_too_late_and_kept_as_dead() -> None:
    """There is no card at all: the autoscaler itself answers; the call is not run when a worker comes later."""
    async with world(cards=0) as (made, calling):
        await made.deploy(function("f"))
        with pytest.raises(CallLate, match="too late"):
            await calling.call("f", "x", timeout_s=5)
        dead = await made.dead()
        assert len(dead) == 1
        assert b"too late" in dead[0].data
        await made.cluster.node("gpu-1", cards=1)
        assert await calling.call("f", "y") == "did y"


async def test_a_call_that_kills_its_workers_is_given_up_after_three() -> None:
    """The function lives on, and the caller is told."""
    made_world: list[FunctionsWorld] = []

    async def work(call: InHand) -> None:
        if call.body == "poison":
            made_world[0].pods.kill_self()
            await asyncio.sleep(1000)
        await call.reply("fine")

    async with world(work=work) as (made, calling):
        made_world.append(made)
        await made.deploy(function("f", max_replicas=1))
        with pytest.raises(CallGaveUp, match="handed out 3 times"):
            await calling.call("f", "poison", timeout_s=300)
        assert await calling.call("f", "x") == "fine"
        assert len(await made.dead()) == 1


async def test_what_is_no_workload_is_a_dead_letter_and_stops_nobody() -> None:
    async with world() as (made, calling):
        await made.bus.store(WORKLOADS.subject(namespace=NAMESPACE, name="bad"), b"{")
        await made.bus.store(WORKLOADS.subject(namespace=NAMESPACE, name="other"), encode(function("f")))
        await made.bus.store(CALLS.subject(namespace=NAMESPACE, function="f"), b"no call")
        await made.deploy(function("f"))
        assert await calling.call("f", "x") == "did x"
        assert len(await made.dead()) == 1
        assert len(await made.dead_letters()) == 2
