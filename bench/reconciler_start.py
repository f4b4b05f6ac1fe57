"""A reconciler that starts in a large cluster: how soon it may act, what it holds in memory, what it costs at rest.

5,000 nodes and 20,000 pods on a real API server: 16,000 pods of ours that run and that the ledger counts, 4,000 of
others (`cluster_objects`). No controllers run, which would call 5,000 nodes without kubelets lost. The ledger stands on
a real nats-server, with every node and every request in commits of a hundred and a checkpoint at its end.

The reconciler is a process of its own. It `may act` when it logs so; it is `quiet` when it has looked at everything and
has nothing left to say. The first start publishes the facts and the shares of every node and is a row of its own; the
next ones find them standing, as any restart does. At rest nodes change as they do in the world: each kubelet reports
once in five minutes, 16 of them a second, and once a minute everything is compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec

from bench import cluster_objects as objects
from bench.rows import Row, median
from bus.client import connect as connect_nats
from bus.ledger.shelf import write_checkpoint
from bus.ledger.snapshot import copy
from bus.protocol import Bus
from contracts.decisions import Accepted, FactsSet, HealthSet, InventorySet, Observed, Record
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.units import CardUuid, NodeName
from reconciler import kube
from reconciler.calls import NODES as NODES_RESOURCE
from reconciler.calls import PODS, Kube, Resource
from reconciler.informer import PAGE
from reconciler.objects import Object
from reconciler.plan import pod_of
from tests.contract.reconciler.rig import Author
from tests.servers.binaries import CLUSTER, missing
from tests.servers.control_plane import ControlPlane
from tests.servers.http import call
from tests.servers.natsd import NatsServer
from tests.servers.ports import reserve_port
from tests.servers.process import ServerProcess, wait_until

NODES = int(os.environ.get("BENCH_NODES", "5000"))
OURS = int(os.environ.get("BENCH_PODS", "16000"))
OTHERS = OURS // 4
STARTS = 5
CARDS = 8
PER_COMMIT = 100
REST_S = 60
REPORTS_PER_S = max(1, NODES // 300)
TEAM = "team"
REPOSITORY = Path(__file__).resolve().parents[1]
_GAUGE = re.compile(r"^gpubus_reconciler_(\w+) (\S+)$", re.MULTILINE)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One life of the process."""

    active_s: float
    active_cpu_s: float
    """Of its own processor time until then: what is left of `active_s` it waited for others."""
    quiet_s: float
    peak_mib: float
    rest_mib: float
    rest_cpu: float
    """Of a core, while it had nothing to do but listen."""


def run() -> list[Row]:
    """The table. Raises RuntimeError when the control plane has not been built."""
    if absent := missing(*CLUSTER):
        raise RuntimeError(f"not built: {', '.join(absent)}; run tests/cluster/build.sh")
    return asyncio.run(_table())


async def _table() -> list[Row]:
    async with _world() as (plane, nats):
        first = await _start(plane, nats)
        starts = [await _start(plane, nats, rest_s=REST_S if turn == STARTS - 1 else 0) for turn in range(STARTS)]
        floor_s = median([await _listed(plane) for _ in range(STARTS)])
    where = f"{NODES:,} nodes, {OURS + OTHERS:,} pods"
    return [
        Row(
            name="start to may act",
            value=median([one.active_s for one in starts]),
            unit="s",
            floor=floor_s,
            goal="<= 10 s",
            note=f"{where}; median of {STARTS}; floor: both lists by a process that has started",
        ),
        Row(
            name="its own CPU time until then",
            value=median([one.active_cpu_s for one in starts]),
            unit="s",
            note="the rest it waits for the API server, for nats and for a core",
        ),
        Row(name="start to quiet", value=median([one.quiet_s for one in starts]), unit="s", note=where),
        Row(
            name="the very first start, to quiet", value=first.quiet_s, unit="s", note="facts and shares of every node"
        ),
        Row(
            name="resident memory, highest",
            value=max(one.peak_mib for one in starts),
            unit="MiB",
            goal="<= 400 MiB",
            note=f"of {STARTS} starts; {starts[-1].rest_mib:.0f} MiB at rest",
        ),
        Row(
            name="CPU at rest",
            value=100 * starts[-1].rest_cpu,
            unit="%",
            note=f"of a core, over {REST_S} s with {REPORTS_PER_S} reports of kubelets a second and one sweep",
        ),
    ]


# --- the world -------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _world() -> AsyncIterator[tuple[ControlPlane, NatsServer]]:
    """Servers with everything on them."""
    async with ControlPlane() as plane, NatsServer() as nats:
        await plane.api("POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
        await plane.controllers.kill()
        async with connect_nats(nats.url, name="bench") as bus:
            await bus.ensure_streams()
            await _fill(bus, plane)
        yield plane, nats


async def _fill(bus: Bus, plane: ControlPlane) -> None:
    author = await Author.open(bus, namespace=TEAM)
    for batch in _batches(_names()):
        await author.write(*(record for name in batch for record in _node_records(name)))
    await _requests(author)
    await write_checkpoint(bus, copy(author.ledger.state))
    await objects.write(plane.etcd_url, map(objects.node, _names()))
    ours = (objects.pod_of(request, author.epoch) for request in author.ledger.state.requests.values())
    await objects.write(plane.etcd_url, ours)
    others = zip(range(OTHERS), itertools.cycle(_names()), strict=False)
    await objects.write(plane.etcd_url, (objects.stranger(number, name, TEAM) for number, name in others))
    await wait_until(lambda: _served(plane), what="the API server has seen all of them", timeout_s=60.0, every_s=0.5)


async def _served(plane: ControlPlane) -> bool:
    query = {"limit": 1}
    counts = []
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        answer = await plane.api("GET", path, query=query)
        counts.append(1 + answer.body["metadata"].get("remainingItemCount", 0) if answer.status == 200 else 0)
    return counts == [NODES, OURS + OTHERS]


async def _requests(author: Author) -> None:
    """Placed one after the other on every node, and running."""
    wheres = itertools.cycle(_names())
    for numbers in _batches(range(OURS)):
        placed: list[Record] = []
        for index, number in enumerate(numbers):
            placed += author.placing(f"r{number}", on=next(wheres), cards=(number % CARDS,), index=index)
        await author.write(*placed)
        requests = author.ledger.state.requests
        found = [requests[record.uid] for record in placed if isinstance(record, Accepted)]
        await author.write(*(Observed(uid=one.uid, phase="running", pod=pod_of(one)) for one in found))


def _names() -> list[str]:
    return [f"gpu-{number:05d}" for number in range(NODES)]


def _node_records(name: str) -> tuple[Record, ...]:
    cards = tuple(
        Card(uuid=CardUuid(f"GPU-{name}-{index}"), index=index, model="A100", memory_total_mib=81_920)
        for index in range(CARDS)
    )
    node = NodeName(name)
    facts = NodeFacts(
        node=node,
        uid=name,
        allocatable_cpu_milli=128_000,
        allocatable_memory_mib=1_000_000,
        allocatable_pods=110,
    )
    inventory = NodeInventory(node=node, boot_id="b", incarnation="i", cards=cards)
    return InventorySet(inventory=inventory), FactsSet(facts=facts), HealthSet(node=node, health="fresh")


def _batches(things: Iterable[Any]) -> Iterable[list[Any]]:
    iterator = iter(things)
    while batch := list(itertools.islice(iterator, PER_COMMIT)):
        yield batch


# --- one start -------------------------------------------------------------------------------------------------------


async def _start(plane: ControlPlane, nats: NatsServer, *, rest_s: int = 0) -> Start:
    """Start it, wait until it is quiet, let it rest, end it."""
    port = reserve_port()
    with tempfile.TemporaryDirectory(prefix="gpubus-bench-") as folder:
        url = f"http://127.0.0.1:{port.number}/metrics"
        process = _process(plane, nats, Path(folder), port.number)
        began = time.perf_counter()
        process.launch()
        try:
            await wait_until(lambda: _active(process), what="it may act", timeout_s=120.0, every_s=0.05)
            active_s, active_cpu_s = time.perf_counter() - began, _cpu_s(process.pid)
            await wait_until(lambda: _quiet(url), what="it is quiet", timeout_s=180.0, every_s=0.2)
            quiet_s = time.perf_counter() - began
            rest_cpu = await _at_rest(plane, process.pid, rest_s) if rest_s else 0.0
            memory = _memory_mib(process.pid)
        finally:
            await process.stop(grace_s=10.0)
            port.release()
    return Start(
        active_s=active_s,
        active_cpu_s=active_cpu_s,
        quiet_s=quiet_s,
        peak_mib=memory["VmHWM"],
        rest_mib=memory["VmRSS"],
        rest_cpu=rest_cpu,
    )


def _process(plane: ControlPlane, nats: NatsServer, folder: Path, port: int) -> ServerProcess:
    env = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "GPUBUS_NATS__URLS": nats.url,
        "GPUBUS_RECONCILER__KUBE__KUBECONFIG": str(plane.kubeconfig),
        "GPUBUS_HEALTH__PORT": str(port),
        "GPUBUS_LOG__FORMAT": "json",
    }
    profile = os.environ.get("BENCH_PROFILE")
    command = ["-m", "cProfile", "-o", profile, "-m", "reconciler"] if profile else ["-m", "reconciler"]
    return ServerProcess("reconciler", [sys.executable, *command], folder / "reconciler.log", env=env)


async def _active(process: ServerProcess) -> bool:
    return '"active"' in process.log.read_text(encoding="utf-8")


async def _quiet(url: str) -> bool:
    answer = await call("GET", url, timeout_s=10.0)
    found = {name: float(value) for name, value in _GAUGE.findall(str(answer.body))}
    return found.get("active") == 1 and found.get("pods", 0) > 0 and not found.get("queue") and not found.get("unsaid")


async def _at_rest(plane: ControlPlane, pid: int, seconds: int) -> float:
    """Share of a core while kubelets report."""
    names = itertools.cycle(_names())
    before, began = _cpu_s(pid), time.perf_counter()
    for second in range(seconds):
        batch = list(itertools.islice(names, REPORTS_PER_S))
        await objects.write(plane.etcd_url, objects.changed_nodes(batch, second))
        await asyncio.sleep(max(0.0, began + second + 1 - time.perf_counter()))
    return (_cpu_s(pid) - before) / (time.perf_counter() - began)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int) -> dict[str, float]:
    """Resident now, and at its highest."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    named = dict(line.split(":", 1) for line in lines)
    return {name: int(named[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


async def _listed(plane: ControlPlane) -> float:
    """Seconds for both lists, page by page, decoded and thrown away."""
    async with kube.connect(kubeconfig=str(plane.kubeconfig)) as transport:
        calls = Kube(transport)
        began = time.perf_counter()
        await _read_away(calls, NODES_RESOURCE)
        await _read_away(calls, PODS)
        return time.perf_counter() - began


async def _read_away(calls: Kube, resource: Resource[Object]) -> None:
    page = await calls.page(resource, limit=PAGE)
    while page.more:
        page = await calls.page(resource, limit=PAGE, after=page.more)
