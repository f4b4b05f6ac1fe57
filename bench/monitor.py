"""Measuring on a node: what one period costs, how old it is when somebody hears it, and what a year of pods leaves.

Eight cards in 64 pieces, each held by a pod with one container and one process: real processes in real cgroups where
this machine lets us make them, else a tree of files (the row says which). The cards are made up, so the driver's part
is not in it; a real driver costs about ten calls a card. The floor of a period is opening and reading the same files.
Costs are CPU time, so that a busy machine does not show in them.

The age of a message is a time, and a busy machine does show in it: so the floor, the same bytes published and heard by
the same two connections, is taken in turn with it, sample by sample, and the two ways of measuring (in a thread of the
host's lane, as the service does, and without) as well. A pause lies between two samples, as between two of a monitor.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from bench.node_cards import CARDS, NODE, Cards, card_of
from bench.node_churn import lifetimes
from bench.rows import Row, percentile
from bus.client import connect
from bus.protocol import Bus, Received
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.subjects import USAGE
from contracts.units import RequestUid
from contracts.usage import NodeUsage
from monitor import metrics
from monitor.cards.runner import CardThreads, Runner
from monitor.cgroups.tree import CgroupTree, hierarchies
from monitor.measuring import Measuring, of_shares
from monitor.report import Identity
from monitor.settings import MonitoringSettings
from tests.servers.natsd import NatsServer

PODS = 64
RUNS, PERIODS = 7, 20
MESSAGES = 200
PAUSE_S = 0.02
FLOOR = "floor"
MOUNT = Path("/sys/fs/cgroup")


def run() -> list[Row]:
    """All rows; about half a minute."""
    with pods() as node:
        rows = asyncio.run(_of(node))
    return [*rows, asyncio.run(lifetimes())]


# --- the node ---------------------------------------------------------------------------------------------------------


class Node(msgspec.Struct):
    """64 pods: their processes, and the folders that the kernel counts them in."""

    real: bool
    root: Path
    pids: list[int]
    folders: list[Path]


@contextlib.contextmanager
def pods() -> Iterator[Node]:
    """A process in a container in a pod, 64 times; all of it is gone afterwards."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(subprocess.Popen(["sleep", "300"])) for _ in range(PODS)]
        for child in children:
            stack.callback(child.kill)
        pids = [child.pid for child in children]
        made: list[Path] = []
        try:
            yield _real(pids, made)
        except OSError:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            yield _files(pids, folder)
        finally:
            for child in children:
                child.kill()
                child.wait()
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _real(pids: list[int], made: list[Path]) -> Node:
    mounted = hierarchies(MOUNT)
    trees = sorted({tree for tree in (mounted.unified, mounted.cpu, mounted.cpuacct, mounted.memory) if tree})
    if not trees:
        raise FileNotFoundError(MOUNT)
    for tree in trees:
        for number, pid in enumerate(pids):
            folder = Path(tree) / _path(number)
            for part in reversed([folder, *folder.parents][:4]):
                if not part.exists():
                    part.mkdir()
                    made.append(part)
            (folder / "cgroup.procs").write_text(str(pid))
    return Node(real=True, root=MOUNT, pids=pids, folders=[Path(t) / _path(n) for t in trees for n in range(PODS)])


def _files(pids: list[int], root: Path) -> Node:
    (root / "cgroup.controllers").write_text("cpu memory\n")
    texts = {
        "cpu.stat": "usage_usec 5000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 7\n",
        "cpu.max": "50000 100000\n",
        "memory.current": "3145728\n",
        "memory.stat": "anon 1\ninactive_file 1048576\n" + "other 1\n" * 40,
        "memory.max": "max\n",
    }
    folders = [root / _path(number) for number in range(PODS)]
    for folder in folders:
        folder.mkdir(parents=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
    return Node(real=False, root=root, pids=pids, folders=folders)


def _uid(number: int) -> str:
    return f"8f9b5a2c-1d3e-4f60-9a7b-{number:012x}"


def _path(number: int) -> str:
    return f"kubepods/burstable/pod{_uid(number)}/{number:064x}"


def _told() -> NodeShares:
    uids = [RequestUid(f"e-{number}-0") for number in range(PODS)]
    return NodeShares(
        node=NODE,
        epoch="e",
        ledger_sequence=1,
        assignments=tuple(
            ShareAssignment(
                uid=uid, namespace="team", pod=f"train-{n}", card=card_of(n), share_milli=125, memory_mib=10_000
            )
            for n, uid in enumerate(uids)
        ),
        pods=tuple(PodOnNode(uid=uid, pod_uid=_uid(n), container_id=f"{n:064x}") for n, uid in enumerate(uids)),
    )


# --- rows -------------------------------------------------------------------------------------------------------------


async def _of(node: Node) -> list[Row]:
    cards = Cards(node.pids)
    measuring = await _measuring(node, cards, None)
    usage = await measuring.period(cards.held, [cards.sample(), cards.sample()], cards)
    _check(usage)
    where = "real cgroups and processes" if node.real else "files in place of cgroups: none may be made here"
    return [
        await _period(node, measuring, cards, where),
        _message(usage),
        _scrape(usage),
        *await _heard(node, cards),
    ]


async def _measuring(node: Node, cards: Cards, runner: Runner | None) -> Measuring:
    """Begun, and once gone through."""
    settings = MonitoringSettings(node=NODE, cgroup_path=str(node.root))
    measuring = Measuring(Identity(node=NODE, boot_id="b", incarnation="bench"), settings, runner)
    measuring.told = of_shares(_told())
    await measuring.start()
    await measuring.period(cards.held, [cards.sample()], cards)
    return measuring


def _check(usage: NodeUsage) -> None:
    """What is measured is the whole thing: 64 containers found."""
    if len(usage.containers or ()) != PODS:
        raise AssertionError(f"{len(usage.containers or ())} of {PODS} containers found")


async def _period(node: Node, measuring: Measuring, cards: Cards, where: str) -> Row:
    spent, floors = [], []
    for _ in range(RUNS):
        began = time.process_time()
        for _ in range(PERIODS):
            usage = await measuring.period(cards.held, [cards.sample(), cards.sample()], cards)
            measuring.strangers(usage)
            encode(usage)
        spent.append((time.process_time() - began) / PERIODS)
        floors.append(_floor(node))
    share = statistics.median(spent) * 100
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Row(
        name=f"one period a second, {CARDS} cards, {PODS} pods",
        value=share,
        unit="% of a core",
        floor=statistics.median(floors) * 100,
        note=f"{where}; median of {RUNS}; whole process {rss} MiB resident, the NATS client and this bench included",
    )


def _floor(node: Node) -> float:
    """The same files, opened, read and closed."""
    read = CgroupTree(node.root)
    wanted = {_uid(number) for number in range(PODS)}
    read.look(wanted)
    files = [file for folder in node.folders for file in folder.iterdir() if file.name in _READ]
    files += [Path("/proc") / str(pid) / name for pid in node.pids for name in ("stat", "cgroup", "stat")]
    began = time.process_time()
    for file in files:
        with file.open("rb", buffering=0) as opened:
            opened.read(65_536)
    return time.process_time() - began


_READ = frozenset(
    {
        "cpu.stat", "cpu.max", "memory.current", "memory.stat", "memory.max", "cpuacct.usage", "cpu.cfs_quota_us",
        "cpu.cfs_period_us", "memory.usage_in_bytes", "memory.limit_in_bytes",
    }
)  # fmt: skip


def _message(usage: NodeUsage) -> Row:
    size = len(encode(usage))
    return Row(name="its message", value=size / 1024, unit="KiB", note=f"{size // PODS} bytes a pod")


def _scrape(usage: NodeUsage) -> Row:
    spent = []
    for _ in range(RUNS):
        began = time.process_time()
        series = sum(len(gauge.series) for gauge in metrics.gauges(usage))
        spent.append(time.process_time() - began)
    note = f"{series} series, made from the last message"
    return Row(name="one scrape", value=statistics.median(spent) * 1000, unit="ms", note=note)


async def _heard(node: Node, cards: Cards) -> list[Row]:
    """From the beginning of the look at the host to the decoded message at a subscriber, over a real server."""
    threads = CardThreads()
    ways = {"": await _measuring(node, cards, threads), ", without the thread": await _measuring(node, cards, None)}
    same = encode(await ways[""].period(cards.held, [cards.sample()], cards))

    async def measured(way: str) -> bytes:
        return encode(await ways[way].period(cards.held, [cards.sample()], cards))

    async def repeated() -> bytes:
        return same

    makers: dict[str, Callable[[], Awaitable[bytes]]] = {way: partial(measured, way) for way in ways}
    async with (
        NatsServer() as server,
        connect(server.url, name="bench-monitor") as mouth,
        connect(server.url, name="bench-ear") as ear,
    ):
        took = await _latencies(mouth, ear, makers | {FLOOR: repeated})
    threads.stop()
    return [_age(took, way, percent) for way in ways for percent in (50, 99)]


def _age(took: dict[str, list[float]], way: str, percent: int) -> Row:
    return Row(
        name=f"sample to subscriber{way}, p{percent}",
        value=percentile(took[way], percent) * 1000,
        unit="ms",
        floor=percentile(took[FLOOR], percent) * 1000,
        goal="<= 20 ms" if percent == 99 and not way else "",
        note=f"{MESSAGES} over loopback, {PAUSE_S * 1000:.0f} ms apart; floor: the same bytes, sent and decoded",
    )


async def _latencies(mouth: Bus, ear: Bus, makers: dict[str, Callable[[], Awaitable[bytes]]]) -> dict[str, list[float]]:
    """Of each maker, in turn."""
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def hear(message: Received) -> None:
        msgspec.json.decode(message.data, type=NodeUsage)
        arrived.put_nowait(time.perf_counter())

    took: dict[str, list[float]] = {name: [] for name in makers}
    async with ear.subscribe(USAGE.wildcard, hear):
        await asyncio.sleep(0.2)
        for _ in range(MESSAGES):
            for name, make in makers.items():
                await asyncio.sleep(PAUSE_S)
                began = time.perf_counter()
                await mouth.publish(USAGE.subject(node=NODE), await make())
                took[name].append(await arrived.get() - began)
    return took
