"""Chaos: the whole line on real servers while everything is killed and frozen, judged by an independent checker.

Strangers publish three hundred requests, each one to three times and in any order, withdraw some and send garbage,
while schedulers, reconciler, monitors and nats-server are killed with -9 or frozen for longer than their leases. When
all is quiet, the history is judged: what was sent, the raw streams, and every change of every pod.

A run is drawn from a seed, which is printed; CHAOS_SEED=… draws the same again (the operating system's part of
the timing stays its own). On failure the history is left in a temporary folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats.errors
import pytest
import pytest_asyncio

from bus.client import connect
from bus.ledger.proof import prove
from bus.protocol import Bus, BusError
from contracts.subjects import LEDGER, REQUESTS, STATE
from gpubus.local.kube import LocalKube, Machine, Timings
from gpubus.local.kube.resources import NAMESPACES
from tests.contract.bus_worlds import collect
from tests.contract.scheduler_rig import told
from tests.servers.checker import Finding, History, Published, judge
from tests.servers.control_plane import ControlPlane, HollowNode
from tests.servers.history import PodWatch, dump, gathered
from tests.servers.line import Line, Stranger, log_lines, stranger
from tests.servers.natsd import NatsServer
from tests.servers.nemesis import Nemesis
from tests.servers.process import ServerProcess, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.timeout(330)]

REQUESTS_COUNT = 300
FAULTS_S = 25.0
CLASSED = 0.4
"""Part of the requests that name a class: one in eight may ask others to leave, and those wait again."""
STRANGERS = 3
NODES = 3
CARDS = 4
QUIET_S = 5.0
"""Pods run three seconds at most, or for ever: a ledger that is quiet for longer has settled."""
SETTLE_S = 150.0
THE_WORLDS = ("BusUnavailable", "GaveUp", "StreamMissing")
"""Errors that say that the server is away."""


def seed() -> int:
    """Of this run."""
    return int(os.environ.get("CHAOS_SEED") or secrets.randbits(32))


# --- what strangers send ---------------------------------------------------------------------------------------------

Sent = tuple[float, str, bytes, dict[str, str]]
"""When (as a part of the whole time), the namespace, the bytes, the headers."""

MALFORMED = (
    b"",
    b"\xff\xfe",
    b'{"type":"pod.request.v1","name":"cut',
    b'{"type":"pod.request.v1","name":"nopod"}',
    b'{"type":"pod.request.v9","name":"tomorrow"}',
    b'{"type":"pod.withdraw.v1","name":"nobody-knows-it"}',
    b'{"type":"pod.request.v1","name":"greedy","pod":{"image":"i"},"gpu":{"share_milli":5000}}',
    b'{"type":"pod.request.v1","name":"root","pod":{"image":"i","hostNetwork":true}}',
)


def messages(rng: random.Random, namespaces: list[str], count: int) -> list[Sent]:
    """Everything that is sent, in the order of its times: copies, others of the same name, withdrawals, garbage."""
    out: list[Sent] = []
    for index in range(count):
        namespace, at = rng.choice(namespaces), rng.random()
        body = json.dumps(request(rng, index)).encode()
        out += [(min(1.0, at + rng.expovariate(8)), namespace, body, {}) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.12:
            gone = json.dumps({"type": "pod.withdraw.v1", "name": f"r{index}"}).encode()
            out += [(min(1.0, at + rng.expovariate(4)), namespace, gone, {}) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.1:
            other = json.dumps({**request(rng, index), "priority": 7}).encode()
            out.append((min(1.0, at + rng.expovariate(6)), namespace, other, {}))
        if rng.random() < 0.12:
            headers = {"Status": "404"} if rng.random() < 0.3 else {}
            out.append((at, namespace, rng.choice(MALFORMED), headers))
    return sorted(out)


def request(rng: random.Random, index: int) -> dict[str, Any]:
    """One request: most run for a while and end, some stay, some are a gang of three, some ask others to leave."""
    runs = "3600" if rng.random() < 0.06 else f"{rng.uniform(0.2, 3.0):.1f}"
    pod = {"image": "busybox", "command": ["sleep", runs], "cpu_milli": 5, "memory_mib": 4, "grace_s": 1}
    gpu = {"share_milli": rng.choice((100, 250, 300, 500, 1000))}
    if rng.random() < 0.1:
        gpu["cards"] = 2
    found = {"type": "pod.request.v1", "name": f"r{index}", "pod": pod, "gpu": gpu, "priority": rng.choice((0, 0, 5))}
    if index % 25 < 3:
        found["gang"] = {"name": f"g{index // 25}", "size": 3}
    elif rng.random() < CLASSED:
        del found["priority"]
        found["priority_class"] = rng.choice(("low", "low", "high"))
    return found


async def publish(client: Stranger, sent: Sent, published: list[Published]) -> None:
    """Until it is acknowledged, as a careful client does; each try is written down with what it was told."""
    _, namespace, data, headers = sent
    while True:
        try:
            ack = await client.js.publish(f"gpubus.v1.requests.{namespace}", data, headers=headers or None, timeout=1.0)
        except (nats.errors.Error, OSError, TimeoutError):
            published.append(Published(namespace, data))
            await asyncio.sleep(0.1)
        else:
            published.append(Published(namespace, data, ack.seq))
            return


async def send(url: str, plan: list[Sent], seconds: float) -> list[Published]:
    """Several strangers, each with every third message, late where the server was away."""
    published: list[Published] = []
    began = time.monotonic()

    async def one(part: list[Sent]) -> None:
        async with stranger(url) as client:
            for sent in part:
                await asyncio.sleep(began + sent[0] * seconds - time.monotonic())
                await publish(client, sent, published)

    async with asyncio.TaskGroup() as group:
        for index in range(STRANGERS):
            group.create_task(one(plan[index::STRANGERS]), name=f"stranger {index}")
    return published


# --- the world -------------------------------------------------------------------------------------------------------


class Kubernetes:
    """An API server with nodes and namespaces of this test, embedded or real."""

    def __init__(self, names: list[str], namespaces: list[str], watch: PodWatch, line: dict[str, Any]) -> None:
        self.nodes, self.namespaces, self.watch, self.line = names, namespaces, watch, line


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
def plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """A real control plane, or none: started outside of the test's event loop, for all tests that use one."""
    return request.getfixturevalue("own_control_plane") if request.param == "real" else None


@pytest_asyncio.fixture
async def kubernetes(plane: ControlPlane | None) -> AsyncIterator[Kubernetes]:
    """Real: etcd, API server and kubelets; embedded: the same over HTTP, with simulated machines."""
    names = [f"chaos-{secrets.token_hex(2)}-{index}" for index in range(NODES)]
    async with contextlib.AsyncExitStack() as stack:
        yield await (embedded(stack, names) if plane is None else real(stack, plane, names))


async def embedded(stack: contextlib.AsyncExitStack, names: list[str]) -> Kubernetes:
    kube = await stack.enter_async_context(LocalKube(timings=Timings(start_s=0.1, stop_s=0.1)))
    for name in names:
        kube.add_node(Machine(name=name, max_pods=200))
    for namespace in ("team-a", "team-b"):
        kube.store.create(NAMESPACES, "", {"metadata": {"name": namespace}})
    watch = await stack.enter_async_context(PodWatch(kube.url))
    return Kubernetes(names, ["team-a", "team-b"], watch, {"kube_url": kube.url})


async def real(stack: contextlib.AsyncExitStack, plane: ControlPlane, names: list[str]) -> Kubernetes:
    namespaces = [await plane.namespace("team") for _ in range(2)]
    watch = await stack.enter_async_context(PodWatch(plane.url, token=plane.admin_token, tls=plane.tls))
    for name in names:
        await stack.enter_async_context(HollowNode(plane, name))
    return Kubernetes(names, namespaces, watch, {"plane": plane})


async def ready(bus: Bus, nodes: list[str]) -> None:
    """Every node takes pods."""

    async def enough() -> bool:
        view = await state(bus, "nodes")
        fresh = {n["node"] for n in view.get("nodes", []) if n["health"] == "fresh" and n["ready"] and n["cards"]}
        return fresh >= set(nodes)

    await wait_until(enough, what="all nodes take pods", timeout_s=60.0, every_s=0.1)


async def state(bus: Bus, what: str) -> dict[str, Any]:
    """A view of the active scheduler; empty while there is none."""
    with contextlib.suppress(BusError):
        answer = await bus.request(STATE.subject(), json.dumps({"type": "ask.state.v1", "what": what}).encode())
        view: dict[str, Any] = json.loads(answer.data)
        return view
    return {}


async def settled(bus: Bus) -> None:
    """Every message is handled, and the ledger has been quiet for a while."""
    seen, since = -1, time.monotonic()

    async def quiet() -> bool:
        nonlocal seen, since
        with contextlib.suppress(BusError):
            last = await bus.last(LEDGER.stream, LEDGER.subject(pool="default"))
            through = json.loads(last.data).get("requests_through", 0) if last else 0
            if last and (last.sequence != seen or through < await bus.last_sequence(REQUESTS.stream)):
                seen, since = last.sequence, time.monotonic()
        return seen >= 0 and time.monotonic() - since > QUIET_S

    await wait_until(quiet, what="everything has settled", timeout_s=SETTLE_S, every_s=0.2)


def victims(line: Line, server: NatsServer) -> dict[ServerProcess, int]:
    """Who is hurt how often: those most who have most to lose."""
    schedulers = dict.fromkeys(line.schedulers, 3)
    return {**schedulers, server.process: 4, line.reconciler: 4, **dict.fromkeys(line.monitors.values(), 1)}


def crashes(line: Line) -> list[str]:
    """Ends that are our own fault; whoever starts while there is no server may give up and be started again."""
    ends = (entry for process in line.processes for entry in log_lines(process) if entry["message"] == "ending")
    reasons = (str(end["reason"]) for end in ends if end["exit"] == "CRASHED")
    return [reason for reason in reasons if not any(fault in reason for fault in THE_WORLDS)]


def accused(findings: list[Finding], history: History, nemesis: Nemesis, run: int) -> str:
    """What to say of a failed run; the history is left behind."""
    folder = Path(tempfile.mkdtemp(prefix=f"gpubus-chaos-{run}-"))
    dump(history, folder)
    (folder / "faults.txt").write_text("\n".join(nemesis.told), encoding="utf-8")
    lines = [f"{finding.rule}: {finding.text}" for finding in findings[:20]]
    return "\n".join([f"seed {run}: {len(findings)} findings; the history is in {folder}", *lines])


# --- the runs --------------------------------------------------------------------------------------------------------


async def test_nothing_is_lost_sold_twice_or_decided_twice_whatever_is_killed(
    kubernetes: Kubernetes, nats_server: NatsServer
) -> None:
    """Faults of every kind for 25 s under load; afterwards every rule of the checker holds, and it still works."""
    run = seed()
    told(f"CHAOS_SEED={run}")
    rng = random.Random(run)
    plan = messages(rng, kubernetes.namespaces, REQUESTS_COUNT)
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connect(nats_server.url, name="test"))
        line = await stack.enter_async_context(Line([nats_server.url], schedulers=2, **kubernetes.line))
        for node in kubernetes.nodes:
            await line.monitor(node, cards=CARDS)
        await ready(bus, kubernetes.nodes)
        nemesis = Nemesis(rng, victims(line, nats_server))
        published, _ = await asyncio.gather(send(nats_server.url, plan, FAULTS_S), nemesis.rage(FAULTS_S))
        await settled(bus)
        summary = (await state(bus, "summary"))["summary"]
        history = await gathered(bus, pods=kubernetes.watch.changes, published=published, summary=summary)
        findings = judge(history)
        proof = prove(await collect(bus, LEDGER.stream))

        assert not findings, accused(findings, history, nemesis, run)
        assert proof.holds, str(proof)
        again = sum(message.data.count(b'"requeue":true') for message in history.ledger)
        told(f"{dict(nemesis.counts)}; {len(history.requests)} messages; {again} had to leave; {proof}")
        assert crashes(line) == []
        assert sum(nemesis.counts.values()) >= 12
        assert proof.decided >= REQUESTS_COUNT // 2


GUARDS = [
    pytest.param("", ("chain", "over-commit", "double-accept", "double-decision"), id="no-guards"),
    pytest.param("1", (), id="compare-and-set-alone"),
]


@pytest.mark.parametrize(("keep", "rules"), GUARDS)
async def test_compare_and_set_is_what_keeps_it_safe(
    nats_server: NatsServer, keep: str, rules: tuple[str, ...]
) -> None:
    """Two schedulers that both believe to be the active one: with compare-and-set nothing happens, without it all does.

    The same load and the same checker as above, without faults: two active schedulers are fault enough.
    """
    run = seed()
    told(f"CHAOS_SEED={run}")
    names = [f"n{index}" for index in range(NODES)]
    async with contextlib.AsyncExitStack() as stack:
        kubernetes = await embedded(stack, names)
        bus = await stack.enter_async_context(connect(nats_server.url, name="test"))
        line = Line(
            [nats_server.url],
            schedulers=2,
            scheduler_module="tests.servers.unsafe_scheduler",
            env={"KEEP_COMPARE_AND_SET": keep},
            **kubernetes.line,
        )
        second = line.schedulers.pop()
        await stack.enter_async_context(line)
        for node in names:
            await line.monitor(node, cards=CARDS)
        await ready(bus, names)
        line.schedulers.append(second)
        second.launch()
        await wait_until(lambda: _active(line), what="both believe to be active", timeout_s=20.0)
        published = await send(nats_server.url, messages(random.Random(run), kubernetes.namespaces, 120), 6.0)
        with contextlib.suppress(AssertionError if rules else ()):
            await settled(bus)
        history = await gathered(bus, published=published, pods=None if rules else kubernetes.watch.changes)
        findings = judge(history)

        told(str(Counter(finding.rule for finding in findings)))
        assert {json.loads(message.data)["author"] for message in history.ledger} == instances(line)
        if rules:
            assert {finding.rule for finding in findings} >= set(rules)
        else:
            assert not findings, accused(findings, history, Nemesis(random.Random(0), {}), run)


def instances(line: Line) -> set[str]:
    """The names of all lives of the schedulers."""
    logged = (entry for process in line.schedulers for entry in log_lines(process))
    return {str(entry["instance"]) for entry in logged if entry["message"] == "started"}


async def _active(line: Line) -> bool:
    return all(any(told["message"] == "active" for told in log_lines(p)) for p in line.schedulers)
