"""A scheduler under test between a cluster that the test plays and the streams that the test reads.

    async with FakeCluster(bus) as cluster:
        await cluster.node("gpu-1", cards=2)
        ...
        cluster.silence("gpu-1")                       # its monitor says nothing more
        await cluster.outcome(uid, "default", "train", "ended")

`FakeCluster` stands where monitors and the reconciler stand: it says what it is told to say, and places nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from bus.protocol import Bus, BusError, Received
from bus.runtime.deadline import Deadline
from bus.runtime.process import Process
from bus.runtime.telemetry import start_in_memory
from contracts.inventory import Card, Heartbeat, NodeFacts, NodeInventory
from contracts.messages import encode
from contracts.outcomes import Allocation, AllocationsPage, Outcome
from contracts.subjects import (
    ALLOCATIONS,
    EVENTS,
    HEARTBEATS,
    INVENTORY,
    LEDGER,
    NODE_FACTS,
    OUTCOMES,
    REQUESTS,
    STATE,
)
from contracts.units import CardUuid, NodeName, RequestUid, node_token, pod_name
from scheduler.core.arrays.warm import warm_up
from scheduler.service import Scheduler
from scheduler.settings import SchedulerSettings, SchedulingSettings
from tests.contract.bus_worlds import collect
from tests.servers.checker import Finding, judge
from tests.servers.history import gathered
from tests.servers.process import wait_until

warm_up()  # a service does so in its own process; here it would hold up the loop that also renews the lease

BEAT_S = 0.5
NAMESPACE = "default"


def request(name: str, share_milli: int = 100, **more: Any) -> dict[str, Any]:
    """A request as its documentation shows it; host resources so small that cards alone decide."""
    pod = {"image": "busybox", "cpu_milli": 1, "memory_mib": 1}
    return {"type": "pod.request.v1", "name": name, "pod": pod, "gpu": {"share_milli": share_milli}, **more}


def told(text: str) -> None:
    """A measurement, for whoever reads the output of a test that passed (`pytest -rP`, `-s`)."""
    print(text)  # noqa: T201 - that is what it is for


class FakeCluster:
    """Nodes that beat, and a reconciler that has seen these pods, none unless told."""

    def __init__(self, bus: Bus, *, beat_s: float = BEAT_S) -> None:
        self.bus = bus
        self.beat_s = beat_s
        self.speaking: set[str] = set()
        self.allocations: tuple[Allocation, ...] = ()
        """What runs in Kubernetes when a ledger begins."""
        self._lives: dict[str, int] = {}
        self._cards: dict[str, int] = {}
        self._sequence = 0
        self._stack = contextlib.AsyncExitStack()
        self._beating: asyncio.Task[None] | None = None

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def node(self, name: str, *, cards: int = 1, memory_mib: int = 80_000, **facts: Any) -> None:
        """A node that Kubernetes and its monitor have told of, with a first heartbeat."""
        self._cards[name] = cards
        self._lives[name] = self._lives.get(name, 0) + 1
        found = tuple(
            Card(uuid=CardUuid(f"GPU-{name}-{i}"), index=i, model="A100", memory_total_mib=memory_mib)
            for i in range(cards)
        )
        inventory = NodeInventory(node=NodeName(name), boot_id="b", incarnation="i", cards=found)
        await self.bus.store(INVENTORY.subject(node=node_token(name)), encode(inventory))
        await self.facts(name, **facts)
        await self.speak(name)

    async def facts(self, name: str, **changes: Any) -> None:
        """What Kubernetes says of it now."""
        roomy = {"allocatable_cpu_milli": 64_000, "allocatable_memory_mib": 512_000, "allocatable_pods": 10_000}
        told = NodeFacts(node=NodeName(name), uid=f"uid-{name}", **{**roomy, **changes})
        await self.bus.store(NODE_FACTS.subject(node=node_token(name)), encode(told))

    def silence(self, name: str) -> None:
        """Its monitor says nothing more."""
        self.speaking.discard(name)

    async def speak(self, name: str) -> None:
        """Its monitor says something now, and goes on."""
        self.speaking.add(name)
        await self._beat(name)

    async def _beat(self, name: str) -> None:
        self._sequence += 1
        beat = Heartbeat(
            node=NodeName(name),
            boot_id="b",
            incarnation=f"i{self._lives[name]}",
            sequence=self._sequence,
            uptime_ms=self._sequence,
            cards=self._cards[name],
        )
        with contextlib.suppress(BusError):  # a server that was killed for the test
            await self.bus.publish(HEARTBEATS.subject(node=node_token(name)), encode(beat))

    async def _beats(self) -> None:
        while True:
            for name in sorted(self.speaking):
                await self._beat(name)
            await asyncio.sleep(self.beat_s)

    # --- what a reconciler says --------------------------------------------------------------------------------------

    async def outcome(self, uid: str, namespace: str, name: str, phase: Any, **more: Any) -> None:
        """What became of a request's pod."""
        seen = Outcome(
            uid=RequestUid(uid), namespace=namespace, name=name, phase=phase, pod=pod_name(name, uid), **more
        )
        await self.bus.store(OUTCOMES.subject(namespace=namespace, name=name), encode(seen))

    async def _pods(self, _: Received) -> bytes:
        return encode(AllocationsPage(items=self.allocations))

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.bus.respond(ALLOCATIONS.subject(), self._pods))
        self._beating = asyncio.create_task(self._beats(), name="heartbeats")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        await self._stack.aclose()


class Place:
    """A cluster, the scheduler's bus, and somebody who submits and listens."""

    def __init__(self, bus: Bus, cluster: FakeCluster) -> None:
        self.bus, self.cluster = bus, cluster

    async def submit(self, payload: dict[str, Any], namespace: str = NAMESPACE) -> int:
        stored = await self.bus.store(REQUESTS.subject(namespace=namespace), json.dumps(payload).encode())
        return stored.sequence

    async def submits(self, name: str, share_milli: int, **more: Any) -> None:
        await self.submit(request(name, share_milli, **more))

    async def events(self, name: str) -> list[dict[str, Any]]:
        subject = EVENTS.subject(namespace=NAMESPACE, name=name)
        return [json.loads(m.data) for m in await collect(self.bus, EVENTS.stream, subject=subject)]

    async def until(self, name: str, phase: str, *, timeout_s: float = 10.0) -> dict[str, Any]:
        """The first event of that phase."""
        found: list[dict[str, Any]] = []

        async def some() -> bool:
            found[:] = [event for event in await self.events(name) if event["phase"] == phase]
            return bool(found)

        await wait_until(some, what=f"{name} is {phase}", timeout_s=timeout_s)
        return found[0]

    async def phases(self, name: str) -> list[str]:
        return [event["phase"] for event in await self.events(name)]

    async def ends(self, name: str) -> None:
        """Its pod is seen to end."""
        uid = (await self.until(name, "placed"))["uid"]
        await self.cluster.outcome(uid, NAMESPACE, name, "ended")
        await self.until(name, "ended")

    async def withdraws(self, name: str) -> None:
        await self.submit({"type": "pod.withdraw.v1", "name": name})

    async def summary(self) -> dict[str, int]:
        answer = await self.bus.request(STATE.subject(), b'{"type":"ask.state.v1","what":"summary"}')
        summary: dict[str, int] = json.loads(answer.data)["summary"]
        return {name: count for name, count in summary.items() if name not in ("nodes", "cards")}

    async def commits(self) -> int:
        return await self.bus.last_sequence(LEDGER.stream)

    async def proved(self) -> None:
        """The independent checker over everything that was said, once it has been said."""
        findings: list[Finding] = []

        async def sound() -> bool:
            findings[:] = judge(await gathered(self.bus))
            return not findings

        with contextlib.suppress(AssertionError):
            await wait_until(sound, what="no findings", timeout_s=10.0, every_s=0.1)
        assert findings == []


@contextlib.asynccontextmanager
async def deciding(bus: Bus, **settings: Any) -> AsyncIterator[Scheduler]:
    """A scheduler in this process, until the context ends; for tests that need no process to kill."""
    name = f"scheduler-{secrets.token_hex(4)}"
    deadline, (telemetry, _) = Deadline(), start_in_memory("scheduler")
    process = Process("scheduler", name, telemetry, deadline)
    made = Scheduler(SchedulerSettings(scheduler=SchedulingSettings(**settings)), process)
    stop = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(made.serve(bus, stop), name=name)
            try:
                yield made
            finally:
                stop.set()
    finally:
        telemetry.shutdown(0.1)
        deadline.disarm()
