"""Functions on a real nats-server: load step to decision, waking from zero, calls lost while workers are killed.

Scheduler and autoscaler are the real ones, in this process; pods are tasks of it, with a cold start that is a sleep, so
that what is measured is ours alone. Every store is synced to disk. The floor of the wake-ups is the same call to a
replica that is awake.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable

import msgspec

from autoscaler.settings import AutoscalingSettings
from bench.rows import Row, median, percentile
from bus.client import NatsBus, connect
from bus.protocol import Received
from contracts.subjects import SCALE
from contracts.workloads import ScaleDecision
from gpubus.gateway import Gateway, gateway
from gpubus.worker import InHand
from tests.contract.functions_rig import HASTY, NAMESPACE, QUICK, FunctionsWorld, function, functions_world
from tests.servers.natsd import NatsServer

CYCLES = int(os.environ.get("BENCH_CYCLES", "100"))
ROUNDS = 7
STEPS = int(os.environ.get("BENCH_STEPS", "20"))
STEP_CALLS = 10
COLD_S = 5.0
FULL_S = 120.0

Measure = Callable[[NatsBus], Awaitable[list[Row]]]


def run() -> list[Row]:
    """The table."""
    return asyncio.run(_tables())


async def _tables() -> list[Row]:
    rows: list[Row] = []
    measures: tuple[Measure, ...] = (_warm, _cold, _step, _cycles)
    for measure in measures:
        async with NatsServer() as server, connect(server.url, name="bench") as bus:
            rows += await measure(bus)
    return rows


async def _begun(calling: Gateway, begun: asyncio.Queue[float]) -> float:
    """Milliseconds from the call to the moment its work begins."""
    while not begun.empty():
        begun.get_nowait()
    began = time.perf_counter()
    call = asyncio.create_task(calling.call("f", "x"))
    at = await begun.get()
    await call
    return (at - began) * 1000


def _telling(begun: asyncio.Queue[float], busy_s: float = 0.0) -> Callable[[InHand], Awaitable[None]]:
    async def work(call: InHand) -> None:
        begun.put_nowait(time.perf_counter())
        await asyncio.sleep(busy_s)
        await call.reply("")

    return work


async def _asleep(world: FunctionsWorld, *, warm: int) -> None:
    await world.until(
        "f",
        "asleep",
        lambda s: (s.target, s.ready, s.starting, s.draining, s.warm) == (0, 0, 0, 0, warm),
        FULL_S,
    )


async def _warm(bus: NatsBus) -> list[Row]:
    begun: asyncio.Queue[float] = asyncio.Queue()
    async with functions_world(bus, cards=2, work=_telling(begun)) as world, gateway(bus, NAMESPACE) as calling:
        await world.deploy(function("f", warm_replicas=1, max_replicas=1))
        found, awake = [], []
        for _ in range(ROUNDS):
            await _asleep(world, warm=1)
            await asyncio.sleep(0.5)
            found.append(await _begun(calling, begun))
            awake.append(await _begun(calling, begun))
    note = f"median of {ROUNDS}, worst {max(found):.0f} ms; floor: to one that serves"
    name = "call at zero to begun, one replica warm"
    return [Row(name=name, value=median(found), unit="ms", floor=median(awake), goal="<= 100 ms", note=note)]


async def _cold(bus: NatsBus) -> list[Row]:
    begun: asyncio.Queue[float] = asyncio.Queue()
    async with (
        functions_world(bus, work=_telling(begun), cold_s=COLD_S) as world,
        gateway(bus, NAMESPACE) as calling,
    ):
        await world.deploy(function("f", max_replicas=1))
        found = []
        for _ in range(5):
            await _asleep(world, warm=0)
            found.append(await _begun(calling, begun))
    note = f"median of 5, worst {max(found):,.0f} ms; cold start: a sleep of {COLD_S:g} s"
    name = f"call at zero to begun, cold start {COLD_S:g} s"
    goal = "<= cold start + 300 ms"
    return [Row(name=name, value=median(found), unit="ms", floor=COLD_S * 1000, goal=goal, note=note)]


async def _step(bus: NatsBus) -> list[Row]:
    """With the settings that come by default, but windows that let a round end in seconds."""
    begun: asyncio.Queue[float] = asyncio.Queue()
    stable = msgspec.structs.replace(HASTY, stable_s=6, panic_s=6)
    found: list[float] = []
    async with (
        functions_world(bus, cards=4, work=_telling(begun, 0.5), settings=AutoscalingSettings()) as world,
        gateway(bus, NAMESPACE) as calling,
    ):
        await world.deploy(function("f", min_replicas=1, max_replicas=8, scaling=stable))
        for _ in range(STEPS):
            await world.until("f", "at one", lambda s: (s.target, s.ready, s.draining) == (1, 1, 0), FULL_S)
            await asyncio.sleep(random.uniform(1.0, 2.0))
            found.append(await _step_to_decision(bus, calling))
    note = f"{STEPS} steps from nothing to {STEP_CALLS} calls of 0.5 s at once; median {median(found):.0f} ms"
    name = "load step to scale decision, p99"
    return [Row(name=name, value=percentile(found, 99), unit="ms", goal="<= 1,200 ms", note=note)]


async def _step_to_decision(bus: NatsBus, calling: Gateway) -> float:
    decided = asyncio.Event()

    async def hear(received: Received) -> None:
        if msgspec.json.decode(received.data, type=ScaleDecision).target > 1:
            decided.set()

    async with bus.subscribe(SCALE.subject(namespace=NAMESPACE, name="f"), hear):
        began = time.perf_counter()
        calls = [asyncio.create_task(calling.call("f", "x")) for _ in range(STEP_CALLS)]
        await decided.wait()
        took_ms = (time.perf_counter() - began) * 1000
        await asyncio.gather(*calls)
    return took_ms


async def _cycles(bus: NatsBus) -> list[Row]:
    """To zero and back, with workers killed over their work."""
    rng, kills, began = random.Random(11), 0, time.perf_counter()

    async def work(call: InHand) -> None:
        nonlocal kills
        await asyncio.sleep(0.02)
        if call.delivery.attempt == 1 and rng.random() < 0.1:
            kills += 1
            world.pods.kill_self()
            await asyncio.sleep(FULL_S)
        await call.reply(call.body)

    quick = msgspec.structs.replace(QUICK, ack_wait_s=1.0)
    async with functions_world(bus, cards=2, work=work, settings=quick) as world, gateway(bus, NAMESPACE) as calling:
        await world.deploy(function("f"))
        lost = sent = 0
        for cycle in range(CYCLES):
            bodies = [f"{cycle}-{n}" for n in range(rng.randint(1, 8))]
            calls = (calling.call("f", body, timeout_s=60) for body in bodies)
            answers = await asyncio.gather(*calls, return_exceptions=True)
            sent += len(bodies)
            lost += sum(answer != body for answer, body in zip(answers, bodies, strict=True))
            await _asleep(world, warm=0)
        replicas = len(world.pods.created)
    took_s = time.perf_counter() - began
    note = f"{sent} calls, {kills} workers killed, {replicas} replicas made, in {took_s:.0f} s"
    name = f"calls lost in {CYCLES} cycles to zero and back"
    return [Row(name=name, value=lost, unit="calls", goal="0", note=note)]
