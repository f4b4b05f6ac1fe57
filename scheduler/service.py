"""The scheduler process: follow the ledger, win the lease, decide, lose it, follow again.

One is active by lease and the others follow the log with a warm state, so that a takeover costs the lease and nothing
else. The lease is a matter of speed: two that both believe to be active harm nothing, because each commit names the
head it was decided on and the later one is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

from bus.lease import Lease
from bus.ledger.append import Ledger
from bus.ledger.follow import follow, open_ledger
from bus.protocol import Bus
from bus.runtime.connection import connected
from bus.runtime.exits import EndProcess, ExitCode
from bus.runtime.process import Process
from scheduler import policyfile
from scheduler.batch import Author
from scheduler.compiledcode import make_writable
from scheduler.core.engine import Engine
from scheduler.core.policies import POLICIES
from scheduler.leader import Leader
from scheduler.metrics import Metrics
from scheduler.sampling import Sampler
from scheduler.settings import SchedulerSettings
from scheduler.waiting import first

TRACES_PER_S = 50.0
"""Traces that begin here, per second; see `scheduler.sampling`."""


class Scheduler:
    """What `python -m scheduler` runs."""

    def __init__(self, settings: SchedulerSettings, process: Process) -> None:
        self.settings = settings.scheduler
        self.nats = settings.nats
        self.process = process
        self.role = "starting"
        self.sampler = Sampler(TRACES_PER_S, time.monotonic)
        process.health.ready("role", lambda: "" if self.role in ("active", "standby") else self.role)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`: load what is the user's own, connect, follow, lead."""
        _own_policy(self.settings.policy_file)
        await asyncio.to_thread(_warm_up, self.settings.policy)
        async with connected(self.nats, self.process) as bus:
            await bus.ensure_streams(replicas=self.nats.replicas)
            await self.serve(bus, stop)

    async def serve(self, bus: Bus, stop: asyncio.Event) -> None:
        """Everything after the connection; tests and simulations bring their own bus."""
        state, _ = await open_ledger(bus, self.settings.pool)
        ledger = Ledger(bus, state)
        metrics = Metrics(self.process.telemetry.meter, lambda: ledger.state)
        name, who = f"scheduler-{self.settings.pool}", self.process.instance
        renew_s, duration_s = self.settings.lease_renew_s, self.settings.lease_duration_s
        async with Lease(bus, name, who, renew_s=renew_s, duration_s=duration_s) as lease:
            engine: Engine | None = None
            while not stop.is_set():
                self.role = "standby"
                if await self._follow_until_held(bus, ledger, lease, stop):
                    leader = self._leader(bus, ledger, lease, metrics, engine)
                    await leader.lead(stop)
                    engine = leader.engine

    @staticmethod
    async def _follow_until_held(bus: Bus, ledger: Ledger, lease: Lease, stop: asyncio.Event) -> bool:
        """Fold what the active one writes; True when the lease is ours and the head is folded."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(_follow(bus, ledger), name="follow")
            await first(lease.wait_acquired(), stop.wait())
            following.cancel()
        if stop.is_set() or not lease.held:
            return False
        await ledger.catch_up()
        return True

    def _leader(self, bus: Bus, ledger: Ledger, lease: Lease, metrics: Metrics, warm: Engine | None) -> Leader:
        version = f"{self.settings.policy}.v{POLICIES[self.settings.policy].version}"
        return Leader(
            bus,
            ledger,
            lease,
            author=Author(incarnation=self.process.instance, term=lease.term, policy_version=version),
            settings=self.settings,
            metrics=metrics,
            sampler=self.sampler,
            tell=self._tell,
            warm=warm,
        )

    def _tell(self, role: str) -> None:
        self.role = role


def _warm_up(policy: str) -> None:
    """What the default policy computes with is compiled, or loaded, before the first request waits for it."""
    if POLICIES[policy].menu is not None:
        make_writable(os.environ)
        from scheduler.core.arrays.warm import warm_up  # noqa: PLC0415 - numba takes a second; other policies do without

        warm_up()


def _own_policy(file: str) -> None:
    """Load it; a file that is no policy ends the process, because what it was to decide would be decided otherwise."""
    if not file:
        return
    try:
        policyfile.load(file)
    except policyfile.BadPolicyFile as error:
        raise EndProcess(ExitCode.BAD_SETTINGS, f"policy_file {error}") from error


async def _follow(bus: Bus, ledger: Ledger) -> None:
    async with contextlib.aclosing(follow(bus, ledger.state)) as commits:
        async for _ in commits:
            pass
