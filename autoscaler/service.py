"""The autoscaler around its loops: follow the ledger, win the lease, look after everything, lose it, follow again.

In: the ledger, functions and the operator's brake from the workloads stream, words of workers. Out: one `Keeper` for
each function, and whatever else works only while the lease is held (training jobs, vertical shares): `companions`.
Two that both believe to be active ask for the same replicas under the same names, which the ledger takes once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from autoscaler.functions import Keeper
from autoscaler.hands import World
from autoscaler.settings import AutoscalingSettings
from bus import codec, deadletter
from bus.lease import Lease
from bus.ledger.follow import follow, open_ledger
from bus.ledger.state import LedgerState
from bus.protocol import Bus, BusError, Received
from contracts.functions import ScalingSwitch, WorkerReport
from contracts.requests import PodRequest
from contracts.subjects import SCALING_SWITCH, WORKER_REPORTS, WORKLOADS
from contracts.workloads import Function

log = logging.getLogger(__name__)

BREATH_S = 0.02
"""Commits that come within this time are told to the loops together."""


class Autoscaler:
    """What `python -m autoscaler` runs, over a bus that somebody has opened.

    Args:
        bus: the connection.
        settings: of the service.
        instance: this incarnation, for the lease.
        wall_ms: wall clock, for people and for the age of calls.
        companions: made at each beginning of a term, run until its end.
    """

    def __init__(
        self,
        bus: Bus,
        settings: AutoscalingSettings,
        instance: str,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        companions: Sequence[Companion] = (),
    ) -> None:
        self.bus = bus
        self.settings = settings
        self.state = LedgerState(pool=settings.pool)
        self.switch = ScalingSwitch(frozen=False)
        self.keepers: dict[tuple[str, str], Keeper] = {}
        self.listeners: set[Callable[[], None]] = set()
        """Called when commits have come, or functions lack room: by companions that should look then."""
        self.limit_milli: Callable[[str], int | None] = lambda _: None
        """What a request may use of each of its cards; set by the companion that stretches."""
        self.role = "starting"
        self._instance = instance
        self._wall_ms = wall_ms
        self._companions = companions
        self._moved = asyncio.Event()

    @property
    def frozen(self) -> bool:
        """Whether an operator stopped all scaling."""
        return self.switch.frozen

    def wanting(self) -> list[tuple[str, PodRequest, int]]:
        """Functions without room: who, one replica as a request, and how many do not fit. By name."""
        found = ((f"{namespace}/{name}", keeper) for (namespace, name), keeper in sorted(self.keepers.items()))
        return [(key, keeper.request_of_one(), keeper.short_of) for key, keeper in found if keeper.short_of]

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`: standby, active, standby, ..."""
        self.state, _ = await open_ledger(self.bus, self.settings.pool)
        name, own = f"autoscaler-{self.settings.pool}", self.settings
        async with (
            Lease(self.bus, name, self._instance, renew_s=own.lease_renew_s, duration_s=own.lease_duration_s) as lease,
            asyncio.TaskGroup() as group,
        ):
            following = group.create_task(self._follow(), name="follow the ledger")
            while not stop.is_set():
                self.role = "standby"
                await _first(lease.wait_acquired(), stop.wait())
                if lease.held and not stop.is_set():
                    self.role = "active"
                    await self._lead(lease, stop)
            following.cancel()

    async def _lead(self, lease: Lease, stop: asyncio.Event) -> None:
        """Look after everything until the lease is lost."""
        self.keepers = {}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._read_workloads(group), name="read the workloads"),
                group.create_task(self._tell_of_commits(), name="tell of commits"),
                *(
                    group.create_task(companion(self), name=f"companion {index}")
                    for index, companion in enumerate(self._companions)
                ),
            ]
            async with self.bus.subscribe(WORKER_REPORTS.wildcard, self._hear_worker):
                await _first(lease.wait_lost(), stop.wait())
            for task in (*tasks, *(keeper.task for keeper in self.keepers.values() if keeper.task is not None)):
                task.cancel()

    # --- what comes in -----------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        async with contextlib.aclosing(follow(self.bus, self.state)) as commits:
            async for _ in commits:
                moved, self._moved = self._moved, asyncio.Event()
                moved.set()

    async def _tell_of_commits(self) -> None:
        """Wake those who wait for something in the ledger."""
        while True:
            await self._moved.wait()
            await asyncio.sleep(BREATH_S)
            self._tell_listeners()
            for keeper in self.keepers.values():
                if keeper.restless:
                    keeper.wake()

    def _tell_listeners(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    async def _read_workloads(self, group: asyncio.TaskGroup) -> None:
        async with contextlib.aclosing(self.bus.read(WORKLOADS.stream)) as batches:
            async for batch in batches:
                for received in batch.messages:
                    await self._take(received, group)

    async def _take(self, received: Received, group: asyncio.TaskGroup) -> None:
        if SCALING_SWITCH.parse(received.subject) is not None:
            self._take_switch(received)
        elif (where := WORKLOADS.parse(received.subject)) is not None:
            workload = codec.decode(WORKLOADS, received)
            if isinstance(workload, Function) and workload.name == where["name"]:
                self._take_function(where["namespace"], workload, group)
            elif isinstance(workload, codec.Malformed | Function):
                why = str(workload) if isinstance(workload, codec.Malformed) else f"its name is {workload.name!r}"
                with contextlib.suppress(BusError):
                    await deadletter.keep(self.bus, stream=WORKLOADS.stream, received=received, reason=why)

    def _take_switch(self, received: Received) -> None:
        switch = codec.decode_as(ScalingSwitch, received)
        if isinstance(switch, ScalingSwitch) and switch != self.switch:
            self.switch = switch
            log.warning("scaling is %s: %s", "frozen" if switch.frozen else "on", switch.reason)
            for keeper in self.keepers.values():
                keeper.wake()

    def _take_function(self, namespace: str, function: Function, group: asyncio.TaskGroup) -> None:
        keeper = self.keepers.get((namespace, function.name))
        if keeper is None:
            keeper = self.keepers[namespace, function.name] = Keeper(self._world(), namespace, function)
            keeper.task = group.create_task(keeper.run(), name=f"function {namespace}/{function.name}")
            return
        keeper.publish(function)

    async def _hear_worker(self, received: Received) -> None:
        where = WORKER_REPORTS.parse(received.subject)
        report = codec.decode_as(WorkerReport, received)
        if where is not None and isinstance(report, WorkerReport):
            keeper = self.keepers.get((where["namespace"], where["function"]))
            if keeper is not None and report.replica:
                keeper.hear(report)

    def _limit_milli(self, uid: str) -> int | None:
        """Asked anew each time: whoever stretches may begin after a function does."""
        return self.limit_milli(uid)

    def _world(self) -> World:
        return World(
            bus=self.bus,
            state=lambda: self.state,
            settings=self.settings,
            frozen=lambda: self.frozen,
            wall_ms=self._wall_ms,
            folded=lambda sequence: self.state.sequence >= sequence,
            moved=lambda: self._moved,
            limit_milli=self._limit_milli,
            short=self._tell_listeners,
        )


Companion = Callable[[Autoscaler], Coroutine[Any, Any, None]]


async def _first(*things: Awaitable[object]) -> None:
    """Return when one of them is done; no task is left behind."""
    tasks = [asyncio.ensure_future(thing) for thing in things]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
