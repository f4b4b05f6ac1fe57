"""A fleet of monitors and one scheduler: what heartbeats cost, and how soon a failing card is out of the pool.

Heartbeats of `NODES` nodes, once a second each, come from this process; the scheduler is a process of its own on a real
nats-server. The floor of its CPU share is a process that receives the same messages and drops them.
The time to the last placement is taken from the driver's event (an Xid 79 of the stand-in driver, a monitor process
with real pynvml) to the moment the scheduler's view of the card is `failed`: from then on nothing is placed on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from bench.rows import Row, median
from bus.client import NatsBus, connect
from bus.codec import ask, store
from bus.protocol import BusError
from contracts import subjects
from contracts.answers import AskState, StateView
from contracts.inventory import Card, Heartbeat, NodeFacts, NodeInventory
from contracts.messages import encode
from contracts.outcomes import AllocationsPage
from contracts.units import CardUuid, NodeName
from tests.nvml_stub.stub import GIB, World, build, environment
from tests.servers.natsd import NatsServer

NODES = int(os.environ.get("BENCH_NODES", "5000"))
CARDS = 8
SECONDS = int(os.environ.get("BENCH_SECONDS", "10"))
TRIES = 7
POLICY = {"GPUBUS_SCHEDULER__POLICY": "packing"}
"""Nothing is placed here; this one has nothing to compile before it begins."""
DRAIN_S = 2.0
SLICES = 50
"""Heartbeats of a second are sent in so many portions."""

RECEIVER = f"""
import asyncio, sys, nats
async def main():
    count = 0
    async def take(message):
        nonlocal count
        count += 1
    client = await nats.connect(sys.argv[1])
    await client.subscribe({subjects.HEARTBEATS.wildcard!r}, cb=take)
    await client.flush()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(count, flush=True)
asyncio.run(main())
"""


def run() -> list[Row]:
    """The table."""
    return asyncio.run(_tables())


async def _tables() -> list[Row]:
    async with NatsServer() as server, connect(server.url, name="bench") as bus:
        await bus.ensure_streams()
        async with (
            bus.respond(subjects.ALLOCATIONS.wildcard, _nothing_runs),
            _process(server.url, "scheduler", os.environ, **POLICY) as one,
        ):
            return [*await _failures(bus, server.url), *await _heartbeats(bus, server.url, one)]


async def _nothing_runs(_: object) -> bytes:
    return encode(AllocationsPage(items=()))


@contextlib.asynccontextmanager
async def _process(
    url: str, service: str, env: Mapping[str, str] = os.environ, **settings: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    own = {"GPUBUS_NATS__URLS": url, "GPUBUS_LOG__LEVEL": "warning", **settings}
    with tempfile.TemporaryFile() as log:
        child = await asyncio.create_subprocess_exec(sys.executable, "-m", service, env={**env, **own}, stderr=log)
        try:
            yield child
        finally:
            child.terminate()
            await child.wait()


# --- heartbeats ------------------------------------------------------------------------------------------------------


async def _heartbeats(bus: NatsBus, url: str, scheduler: asyncio.subprocess.Process) -> list[Row]:
    for index in range(NODES):
        await _node(bus, _name(index))
    sequence = await _beaten(bus, 0, 3)
    floor = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RECEIVER, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert floor.stdout is not None
    await floor.stdout.readline()
    before, before_floor, began = _cpu_s(scheduler.pid), _cpu_s(floor.pid), time.monotonic()
    await _beaten(bus, sequence, SECONDS)
    seconds = time.monotonic() - began
    fresh = await _fresh(bus)
    await asyncio.sleep(DRAIN_S)  # what is still on its way belongs to the same work
    cores, floor_cores = (_cpu_s(scheduler.pid) - before) / seconds, (_cpu_s(floor.pid) - before_floor) / seconds
    told, _ = await floor.communicate(b"\n")
    lost = NODES * SECONDS - int(told)
    what = f"{NODES:,} nodes x {CARDS} cards, one heartbeat a second each, for {SECONDS} s"
    return [
        Row(
            name="heartbeats: CPU of the scheduler",
            value=cores,
            unit="cores",
            floor=floor_cores,
            goal="<= 0.3",
            note=f"{what}; {NODES * SECONDS / seconds:,.0f}/s reached; floor: received by nats-py and dropped",
        ),
        Row(name="heartbeats: lost on the way to the floor", value=lost, unit="of all", goal="0", note=what),
        Row(name="heartbeats: nodes that the scheduler calls fresh after it", value=fresh, unit="nodes", note=what),
    ]


def _name(index: int) -> NodeName:
    return NodeName(f"node-{index}")


async def _node(bus: NatsBus, name: NodeName) -> None:
    cards = tuple(
        Card(uuid=CardUuid(f"GPU-{name}-{i}"), index=i, model="A100", memory_total_mib=81_920) for i in range(CARDS)
    )
    await store(bus, subjects.INVENTORY, NodeInventory(node=name, boot_id="b", incarnation="i", cards=cards), node=name)
    await store(bus, subjects.NODE_FACTS, NodeFacts(node=name, uid="u", allocatable_cpu_milli=96_000), node=name)


async def _beaten(bus: NatsBus, sequence: int, seconds: int) -> int:
    """Every node once a second, spread over it. Returns the last sequence."""
    where = [subjects.HEARTBEATS.subject(node=_name(index)) for index in range(NODES)]
    began = time.monotonic()
    for turn in range(seconds * SLICES):
        second, part = divmod(turn, SLICES)
        for index in range(part, NODES, SLICES):
            beat = Heartbeat(
                node=_name(index),
                boot_id="b",
                incarnation="i",
                sequence=sequence + second + 1,
                uptime_ms=0,
                cards=CARDS,
            )
            await bus.publish(where[index], encode(beat))
        await asyncio.sleep(max(0.0, began + (turn + 1) / SLICES - time.monotonic()))
    return sequence + seconds


def _cpu_s(pid: int) -> float:
    """CPU time that the process has used, user and system (proc(5))."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


async def _fresh(bus: NatsBus) -> int:
    found, after, more = 0, "", True
    while more:
        page = await ask(bus, subjects.STATE, AskState(what="nodes", limit=1000, after=after), StateView, timeout_s=5.0)
        found += sum(node.health == "fresh" for node in page.nodes)
        after, more = page.last, page.more
    return found


# --- a failing card ---------------------------------------------------------------------------------------------------


async def _failures(bus: NatsBus, url: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "world")
        for index in range(CARDS):
            world.card(index, uuid=f"GPU-failing-{index}", name="T4", total=16 * GIB, events=8)
        env = environment(build(Path(folder)), world)
        async with _process(url, "monitor", env, GPUBUS_MONITOR__NODE="failing"):
            await _health(bus, 0, "healthy", within_s=30)
            await asyncio.sleep(1)  # the driver tells only what happens after its event set was made
            waits_ms = [await _failure(bus, world, index) for index in range(TRIES)]
    note = f"monitor with looks 0.5 s apart; median of {TRIES}, longest {max(waits_ms):.0f} ms"
    return [
        Row(
            name="Xid 79 to no new placement on the card",
            value=median(waits_ms),
            unit="ms",
            goal="<= 1,000 ms",
            note=note,
        )
    ]


async def _failure(bus: NatsBus, world: World, index: int) -> float:
    began = time.perf_counter()
    world.happen(index, 79)
    await _health(bus, index, "failed", within_s=10)
    return (time.perf_counter() - began) * 1000


async def _health(bus: NatsBus, index: int, health: str, *, within_s: float) -> None:
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        with contextlib.suppress(BusError):
            view = await ask(bus, subjects.STATE, AskState(what="cards", limit=2000), StateView, timeout_s=2.0)
            cards = {row.card.uuid: row.card.health for row in view.cards if row.node == "failing"}
            if cards.get(CardUuid(f"GPU-failing-{index}")) == health:
                return
        await asyncio.sleep(0.002)
    raise RuntimeError(f"card {index} is not {health} within {within_s:g} s")
