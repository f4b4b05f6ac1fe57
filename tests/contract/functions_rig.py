"""Functions under test: a real scheduler and a real autoscaler, and pods that are tasks of this process.

    async with functions_world(bus, cards=2) as world:
        await world.deploy(function("resize"))
        async with gateway(bus, "default") as calling:
            assert await calling.call("resize", "x") == "did x"

`Pods` stands where reconciler and kubelets stand: a replica that has a place gets a worker after its cold start, one
that is withdrawn gets SIGTERM's drain and is gone when it has finished, one that is killed is gone in the middle of
whatever it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from autoscaler.roster import CALLS, WARM, value_of
from autoscaler.service import Autoscaler
from autoscaler.settings import AutoscalingSettings
from bus.ledger.follow import follow, open_ledger
from bus.ledger.state import LedgerState, RequestState
from bus.protocol import Bus, Received
from contracts.functions import FunctionStatus
from contracts.messages import encode
from contracts.requests import GpuAsk, PodTemplate
from contracts.subjects import DEAD_CALLS, DEAD_LETTERS, FUNCTION_STATUS, SCALE, WORKLOADS
from contracts.units import RequestUid, request_key
from contracts.workloads import Function, ScaleDecision, Scaling
from gpubus.worker import Calls, InHand, Options, worker
from tests.contract.bus_worlds import collect
from tests.contract.scheduler_rig import FakeCluster, deciding

NAMESPACE = "default"
QUICK = AutoscalingSettings(look_s=0.1, asleep_s=1.0, ack_wait_s=2.0, pending_s=1.0, report_fresh_s=5.0)
HASTY = Scaling(
    stable_s=3, panic_s=1, period_s=1, down_delay_s=1, zero_grace_s=1, warmup_s=0, drain_s=10, up_percent=1000
)

Work = Callable[[InHand], Awaitable[None]]
Connect = Callable[[str], Awaitable[Bus]]


async def did(call: InHand) -> None:
    """The plain worker's work."""
    await call.reply(f"did {call.body}")


def function(name: str, *, share_milli: int = 500, **more: Any) -> Function:
    """A function whose replicas need cards and next to nothing else."""
    pod = PodTemplate(image="busybox", cpu_milli=1, memory_mib=1)
    fields: dict[str, Any] = {"max_replicas": 4, "scaling": HASTY, **more}
    return Function(name=name, pod=pod, gpu=GpuAsk(share_milli=share_milli), **fields)


class Pods:
    """Replicas as tasks."""

    def __init__(
        self,
        bus: Bus,
        cluster: FakeCluster,
        work: Work,
        *,
        cold_s: float = 0.0,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.bus, self.cluster, self.work = bus, cluster, work
        self.cold_s, self.wall_s = cold_s, wall_s
        self.state = LedgerState()
        self.running: dict[str, Calls] = {}
        """By replica name."""
        self.created: list[str] = []
        self.killed: set[str] = set()
        self._tasks: dict[RequestUid, asyncio.Task[None]] = {}

    async def follow(self) -> None:
        self.state, _ = await open_ledger(self.bus)
        self._look()
        async with contextlib.aclosing(follow(self.bus, self.state)) as commits, asyncio.TaskGroup() as group:
            self._group = group
            self._look()
            async for _ in commits:
                self._look()

    def _look(self) -> None:
        group = getattr(self, "_group", None)
        if group is None:
            return
        for uid, request in self.state.requests.items():
            if request.placement is not None and not request.leaving and uid not in self._tasks:
                self._tasks[uid] = group.create_task(self._live(request), name=f"pod {request.key}")
            elif request.leaving and request.request.name in self.running:
                self.running[request.request.name].drain()

    async def _live(self, request: RequestState) -> None:
        """A pod's life; killed = cancelled from outside, and gone all the same."""
        name, namespace = request.request.name, request.accepted.namespace
        say = {"uid": request.uid, "namespace": namespace, "name": name}
        self.created.append(name)
        await self.cluster.outcome(**say, phase="running")
        owner = value_of(request.request, "WORKER_FUNCTION")
        if not owner:
            return
        try:
            await asyncio.sleep(self.cold_s)
            await self._work(owner, request)
        except asyncio.CancelledError:
            if name not in self.killed:
                raise
            self.killed.discard(name)
        await self.cluster.outcome(**say, phase="gone")

    async def _work(self, owner: str, request: RequestState) -> None:
        name = request.request.name
        options = Options(
            replica=name,
            warm=value_of(request.request, WARM) == "1",
            calls=int(value_of(request.request, CALLS) or "0"),
            report_s=0.2,
            wall_s=self.wall_s,
        )
        async with worker(owner, bus=self.bus, options=options, signals=False) as calls:
            self.running[name] = calls
            if (now := self.state.requests.get(request.uid)) is not None and now.leaving:
                calls.drain()
            try:
                async for call in calls:
                    await self.work(call)
            except asyncio.CancelledError:
                calls._hands.clear()  # a killed process gives nothing back
                raise
            finally:
                del self.running[name]

    def kill_self(self) -> None:
        """The process of the worker that runs this."""
        task = asyncio.current_task()
        self.kill(next(str(self.state.requests[uid].request.name) for uid, t in self._tasks.items() if t is task))

    def hang(self, name: str) -> None:
        """SIGSTOP, as far as anybody can tell: not a word more."""
        self.running[name]._options = msgspec.structs.replace(self.running[name]._options, report_s=math.inf)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        uid = self.state.by_key[request_key(NAMESPACE, name)]
        self.killed.add(name)
        self._tasks[uid].cancel()


class FunctionsWorld:
    """Somebody who deploys and looks."""

    def __init__(
        self, bus: Bus, cluster: FakeCluster, pods: Pods, autoscaler: Autoscaler, stop_autoscaler: Callable[[], None]
    ) -> None:
        self.bus, self.cluster, self.pods, self.autoscaler = bus, cluster, pods, autoscaler
        self.stop_autoscaler = stop_autoscaler

    async def deploy(self, wanted: Function, namespace: str = NAMESPACE) -> None:
        await self.bus.store(WORKLOADS.subject(namespace=namespace, name=wanted.name), encode(wanted))

    async def status(self, name: str) -> FunctionStatus:
        found = await self.bus.last(FUNCTION_STATUS.stream, FUNCTION_STATUS.subject(namespace=NAMESPACE, function=name))
        return msgspec.json.decode(found.data, type=FunctionStatus) if found else FunctionStatus(target=0)

    async def until(self, name: str, what: str, holds: Callable[[FunctionStatus], bool], timeout_s: float = 15) -> None:
        """Poll its status; AssertionError with the last one. On the loop's clock, which may be virtual."""
        clock = asyncio.get_running_loop().time
        give_up = clock() + timeout_s
        while not holds(status := await self.status(name)):
            assert clock() < give_up, f"not within {timeout_s:g} s: {what}; {status}"
            await asyncio.sleep(0.02)

    async def decisions(self, name: str) -> list[ScaleDecision]:
        found = await collect(self.bus, SCALE.stream, subject=SCALE.subject(namespace=NAMESPACE, name=name))
        return [msgspec.json.decode(m.data, type=ScaleDecision) for m in found]

    async def dead_letters(self) -> list[Received]:
        return await collect(self.bus, DEAD_LETTERS.stream)

    async def dead(self) -> list[Received]:
        return await collect(self.bus, DEAD_CALLS.stream)


@contextlib.asynccontextmanager
async def scaling(
    bus: Bus,
    settings: AutoscalingSettings = QUICK,
    *,
    name: str = "autoscaler-1",
    stop: asyncio.Event | None = None,
    wall_s: Callable[[], float] = time.time,
) -> AsyncIterator[Autoscaler]:
    """An autoscaler in this process, until the context ends."""
    autoscaler = Autoscaler(bus, settings, name, wall_ms=lambda: round(wall_s() * 1000))
    stop = stop or asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(autoscaler.run(stop), name=name)
        try:
            yield autoscaler
        finally:
            stop.set()


@contextlib.asynccontextmanager
async def functions_world(
    bus: Bus,
    *,
    cards: int = 1,
    work: Work = did,
    cold_s: float = 0.0,
    settings: AutoscalingSettings = QUICK,
    wall_s: Callable[[], float] = time.time,
) -> AsyncIterator[FunctionsWorld]:
    """A cluster of one node, a scheduler, an autoscaler, and pods."""
    await bus.ensure_streams()
    async with FakeCluster(bus) as cluster, deciding(bus, policy="packing"):
        if cards:
            await cluster.node("gpu-1", cards=cards)
        pods, stop = Pods(bus, cluster, work, cold_s=cold_s, wall_s=wall_s), asyncio.Event()
        following = asyncio.create_task(pods.follow(), name="pods")
        try:
            async with scaling(bus, settings, stop=stop, wall_s=wall_s) as autoscaler:
                yield FunctionsWorld(bus, cluster, pods, autoscaler, stop.set)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
