"""Who decides when the one who decided is gone: killed, stopped, frozen, or cut off from a bus that froze or died.

Times are measured as a user feels them: from the fault to the `placed` event of a request published after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import statistics
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bus.client import connect
from bus.ledger.follow import decode_commit
from bus.ledger.proof import prove
from bus.protocol import Bus, BusError, Received
from contracts.decisions import Commit, Reserved
from contracts.subjects import EVENTS, LEASES, LEDGER, REQUESTS
from gpubus.local.kube import LocalKube, Machine
from tests.contract.bus_worlds import collect
from tests.contract.scheduler_rig import FakeCluster, request, told
from tests.servers.line import Line, exit_code, log_lines
from tests.servers.natsd import NatsServer
from tests.servers.process import ServerProcess, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.slow]

KILLED_S = 2.0
"""The lease runs out after 1.2 s, a candidate looks every 0.2 s, the first decision and its event take the rest."""
STOPPED_S = 1.0
"""A lease that is given back is taken at the next look."""
NOTICED_S = 6.0
AGAIN_S = 5.0
GONE_S = 5.0
BUSY_S = 1.0
"""On top for the slowest of several rounds: this machine may be busy with other tests. The median gets nothing."""

EVERY_S = 0.03


class Load:
    """Somebody who submits a small request every 30 ms, and hears what becomes of each."""

    def __init__(self, bus: Bus, namespace: str = "default") -> None:
        self.bus, self.namespace = bus, namespace
        self.published: dict[str, float] = {}
        self.placed: dict[str, float] = {}
        self._names = (f"r{i}" for i in itertools.count())

    async def submit(self) -> str:
        """One more; a server that is away loses it, as far as we can tell."""
        name = next(self._names)
        data = json.dumps(request(name, 1)).encode()
        with contextlib.suppress(BusError):
            await self.bus.store(REQUESTS.subject(namespace=self.namespace), data, timeout_s=1.0)
            self.published[name] = time.monotonic()
        return name

    async def _hear(self, message: Received) -> None:
        event = json.loads(message.data)
        if event["phase"] == "placed":
            self.placed.setdefault(event["name"], time.monotonic())

    async def _submit_for_ever(self) -> None:
        while True:
            await self.submit()
            await asyncio.sleep(EVERY_S)

    @contextlib.asynccontextmanager
    async def on(self) -> AsyncIterator[Load]:
        """Submitting, until the context ends."""
        async with self.bus.subscribe(EVENTS.wildcard, self._hear):
            task = asyncio.create_task(self._submit_for_ever(), name="load")
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def decided_after(self, since_s: float, timeout_s: float = 20.0) -> float:
        """Seconds from `since_s` until a request published after it was placed."""
        found: list[float] = []

        async def some() -> bool:
            found[:] = [at for name, at in self.placed.items() if self.published.get(name, 0.0) > since_s]
            return bool(found)

        await wait_until(some, what="a request published after the fault is placed", timeout_s=timeout_s)
        return min(found) - since_s


class Pair:
    """Two schedulers, a bus of our own, and the load."""

    def __init__(self, line: Line, bus: Bus, load: Load) -> None:
        self.line, self.bus, self.load = line, bus, load

    async def active(self) -> tuple[ServerProcess, ServerProcess]:
        """The one that decides and the other, when both are well."""
        found: list[ServerProcess] = []

        async def settled() -> bool:
            found[:] = []
            for process in self.line.schedulers:
                if (await self.line.readyz(process)).status != 200:
                    return False
                if instance(process) == await holder(self.bus):
                    found[:0] = [process]
                else:
                    found.append(process)
            return len(found) == 2 and instance(found[0]) == await holder(self.bus)

        await wait_until(settled, what="one scheduler is active, the other stands by", timeout_s=30.0)
        return found[0], found[1]

    async def commits(self) -> list[Commit]:
        """The whole log, proved."""
        messages = await collect(self.bus, LEDGER.stream)
        proof = prove(messages)
        assert proof.holds, str(proof)
        commits = [decode_commit(message) for message in messages]
        decided = [r.uid for commit in commits for r in commit.records if isinstance(r, Reserved)]
        assert len(decided) == len(set(decided))
        return commits


def instance(process: ServerProcess) -> str:
    """The name of its present life."""
    return next((str(line["instance"]) for line in reversed(log_lines(process)) if line["message"] == "started"), "")


async def holder(bus: Bus) -> str:
    """Who holds the lease."""
    with contextlib.suppress(BusError):
        if claim := await bus.last(LEASES.stream, LEASES.subject(name="scheduler-default")):
            told = json.loads(claim.data)
            return "" if told.get("released") else str(told["holder"])
    return ""


@pytest_asyncio.fixture
async def pair(nats_server: NatsServer) -> AsyncIterator[Pair]:
    """Two schedulers over one node that takes thousands of small requests."""
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connect(nats_server.url, name="test"))
        await bus.ensure_streams()
        cluster = await stack.enter_async_context(FakeCluster(bus))
        await cluster.node("gpu-1", cards=16)
        line = await stack.enter_async_context(Line([nats_server.url], schedulers=2, reconciler=False))
        load = await stack.enter_async_context(Load(bus).on())
        both = Pair(line, bus, load)
        await load.decided_after(time.monotonic(), timeout_s=30.0)
        yield both


def judged(what: str, seconds: list[float], limit_s: float) -> None:
    """Report, and hold the promise."""
    p50, worst = statistics.median(seconds), max(seconds)
    told(f"{what}: p50 {p50:.2f} s, max {worst:.2f} s over {len(seconds)} (promised {limit_s:g})")
    assert p50 <= limit_s
    assert worst <= limit_s + BUSY_S


async def test_the_other_decides_within_two_seconds_of_a_kill(pair: Pair) -> None:
    """Kill -9 of the active scheduler, again and again."""
    seconds = []
    for _ in range(6):
        active, _ = await pair.active()
        began = time.monotonic()
        await active.kill()
        seconds.append(await pair.load.decided_after(began))
        active.launch()

    await pair.commits()
    judged("kill -9 of the active scheduler", seconds, KILLED_S)


async def test_the_other_decides_within_a_second_of_a_stop(pair: Pair) -> None:
    """SIGTERM gives the lease back: nobody waits for it to run out, and the process ends well."""
    seconds = []
    for _ in range(4):
        active, _ = await pair.active()
        began = time.monotonic()
        active.signal(signal.SIGTERM)
        seconds.append(await pair.load.decided_after(began))
        assert (await _ended(active)) == 0
        active.launch()

    await pair.commits()
    judged("SIGTERM of the active scheduler", seconds, STOPPED_S)


async def test_a_frozen_one_is_replaced_and_changes_nothing_when_it_goes_on(pair: Pair) -> None:
    """SIGSTOP for longer than the lease, under load, then SIGCONT: its next commit is refused, nobody is decided twice.

    It has requests in its socket that the other has decided meanwhile, and believes for a moment that it leads.
    """
    seconds, zombies = [], []
    for _ in range(3):
        active, _ = await pair.active()
        zombies.append(instance(active))
        began = time.monotonic()
        active.freeze()
        seconds.append(await pair.load.decided_after(began))
        await pair.load.decided_after(time.monotonic())
        thawed = time.monotonic()
        active.thaw()
        await pair.load.decided_after(thawed + 0.5)

    commits = await pair.commits()
    terms = [(commit.term, commit.author) for commit in commits]
    assert terms == sorted(terms, key=lambda t: t[0]), "a commit of an earlier term stands behind one of a later term"
    assert {author for _, author in terms} >= set(zombies)
    refused = sum(
        "commit is lost" in str(line["message"]) for process in pair.line.schedulers for line in log_lines(process)
    )
    told(f"commits of a frozen scheduler that were refused: {refused}")
    assert all(process.running for process in pair.line.schedulers)
    judged("SIGSTOP of the active scheduler", seconds, KILLED_S)


async def test_a_frozen_server_is_noticed_and_deciding_goes_on_when_it_thaws(
    pair: Pair, nats_server: NatsServer
) -> None:
    """Not ready within 6 s of the freeze; the next decision within 5 s of the thaw."""
    await pair.active()
    began = time.monotonic()
    nats_server.freeze()

    async def noticed() -> bool:
        answers = [await pair.line.readyz(process) for process in pair.line.schedulers]
        return all(answer.status == 503 for answer in answers)

    await wait_until(noticed, what="both schedulers say that they are not ready", timeout_s=10.0)
    noticed_s = time.monotonic() - began
    thawed = time.monotonic()
    nats_server.thaw()
    again_s = await pair.load.decided_after(thawed)

    await pair.commits()
    told(f"frozen server: noticed after {noticed_s:.2f} s, deciding {again_s:.2f} s after the thaw")
    assert noticed_s <= NOTICED_S
    assert again_s <= AGAIN_S


async def test_deciding_goes_on_after_the_server_is_killed(pair: Pair, nats_server: NatsServer) -> None:
    """A server killed and started on the same disk: the next decision within 5 s of the port answering."""
    seconds = []
    for _ in range(4):
        await pair.active()
        await nats_server.restart()
        seconds.append(await pair.load.decided_after(time.monotonic()))

    await pair.commits()
    judged("kill -9 of nats-server", seconds, AGAIN_S)


async def test_every_service_ends_within_five_seconds_of_sigterm_under_load(nats_server: NatsServer) -> None:
    """Exit code 0: what was in flight was finished."""
    async with contextlib.AsyncExitStack() as stack:
        kube = await stack.enter_async_context(LocalKube())
        kube.add_node(Machine(name="gpu-1", max_pods=5000))
        bus = await stack.enter_async_context(connect(nats_server.url, name="test"))
        await bus.ensure_streams()
        line = await stack.enter_async_context(Line([nats_server.url], kube_url=kube.url, schedulers=2))
        await line.monitor("gpu-1")
        load = await stack.enter_async_context(Load(bus).on())
        await load.decided_after(time.monotonic(), timeout_s=40.0)
        await load.decided_after(time.monotonic() + 1.0)
        ended = {process.name: await _end(process) for process in line.processes}

    told("SIGTERM: " + ", ".join(f"{name} {seconds:.2f} s" for name, (seconds, _) in ended.items()))
    assert {name: code for name, (_, code) in ended.items()} == dict.fromkeys(ended, 0)
    assert max(seconds for seconds, _ in ended.values()) <= GONE_S


async def _end(process: ServerProcess) -> tuple[float, int | None]:
    """Ask once, as a kubelet does; seconds and exit code."""
    began = time.monotonic()
    process.signal(signal.SIGTERM)
    code = await _ended(process)
    return time.monotonic() - began, code


async def _ended(process: ServerProcess) -> int | None:
    async def ended() -> bool:
        return not process.running

    await wait_until(ended, what=f"{process.name} has ended", timeout_s=10.0)
    return exit_code(process)
