"""Measuring on a node: what one period costs, how old it is when somebody hears it, and what a year of pods leaves.

Eight cards in 64 pieces, each held by a pod with one container and one process: real processes in real cgroups where
this machine lets us make them, else a tree of files (the row says which). The cards are made up, so the driver's part
is not in it; a real driver costs about ten calls a card. The floor of a period is opening and reading the same files.
Costs are CPU time, so that a busy machine does not show in them.
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
from pathlib import Path

import msgspec

from bench.rows import Row, percentile
from bus.client import connect
from bus.protocol import Bus, Received
from contracts.inventory import Card
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.subjects import USAGE
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import CardUsage, NodeUsage, ProcessUsage
from monitor import metrics
from monitor.attribution import Owner
from monitor.cards.protocol import DriverInfo, Look, Place, ProviderName
from monitor.cgroups.stats import Reading
from monitor.cgroups.tree import CgroupTree, Found, hierarchies
from monitor.measuring import Measuring, of_shares
from monitor.meters import Meter, measured
from monitor.report import Identity
from monitor.settings import MonitoringSettings
from tests.servers.natsd import NatsServer

CARDS, PODS = 8, 64
RUNS, PERIODS = 7, 20
MESSAGES = 500
LIVES, AT_ONCE = 100_000, 64
FILLED = 100
"""Generations of pods after which every pool and cache of the interpreter is filled."""
MOUNT = Path("/sys/fs/cgroup")
NODE = NodeName("bench")


def run() -> list[Row]:
    """All rows; about half a minute."""
    with pods() as node:
        rows = asyncio.run(_of(node))
    return [*rows, lifetimes()]


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


def _card(number: int) -> CardUuid:
    return CardUuid(f"GPU-{number % CARDS}")


def _told() -> NodeShares:
    uids = [RequestUid(f"e-{number}-0") for number in range(PODS)]
    return NodeShares(
        node=NODE,
        epoch="e",
        ledger_sequence=1,
        assignments=tuple(
            ShareAssignment(
                uid=uid, namespace="team", pod=f"train-{n}", card=_card(n), share_milli=125, memory_mib=10_000
            )
            for n, uid in enumerate(uids)
        ),
        pods=tuple(PodOnNode(uid=uid, pod_uid=_uid(n), container_id=f"{n:064x}") for n, uid in enumerate(uids)),
    )


class Cards:
    """Eight cards with the processes of the pods."""

    name: ProviderName = "nvml"

    def __init__(self, pids: list[int]) -> None:
        self.held = tuple(
            Card(uuid=CardUuid(f"GPU-{n}"), index=n, model="A100", memory_total_mib=81_920) for n in range(CARDS)
        )
        self._on = {
            card.uuid: tuple(
                ProcessUsage(pid=pid, memory_mib=9000, compute_percent=10)
                for n, pid in enumerate(pids)
                if _card(n) == card.uuid
            )
            for card in self.held
        }

    def sample(self) -> tuple[CardUsage, ...]:
        """As the driver would list it."""
        return tuple(
            CardUsage(uuid=uuid, compute_percent=80, memory_used_mib=72_000, power_w=300, processes=on)
            for uuid, on in self._on.items()
        )

    def seats(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(CARDS))

    def look(self, seat: int) -> Look:
        """One of them."""
        return Look(cards=(self.held[seat],), usage=(self.sample()[seat],))

    def info(self) -> DriverInfo:
        """None."""
        return DriverInfo()

    def places(self, seats: tuple[int, ...]) -> dict[int, Place]:  # noqa: ARG002 - the port's name
        """Nowhere."""
        return {}

    def reopen(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""


# --- rows -------------------------------------------------------------------------------------------------------------


async def _of(node: Node) -> list[Row]:
    settings = MonitoringSettings(node=NODE, cgroup_path=str(node.root))
    cards = Cards(node.pids)
    measuring = Measuring(Identity(node=NODE, boot_id="b", incarnation="bench"), settings)
    measuring.told = of_shares(_told())
    await measuring.start()
    usage = await measuring.period(cards.held, [cards.sample(), cards.sample()], cards)
    _check(usage)
    where = "real cgroups and processes" if node.real else "files in place of cgroups: none may be made here"
    return [
        await _period(node, measuring, cards, where),
        _message(usage),
        _scrape(usage),
        *await _heard(measuring, cards),
    ]


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


async def _heard(measuring: Measuring, cards: Cards) -> list[Row]:
    """From the beginning of the look at the host to the decoded message at a subscriber, over a real server."""

    async def measure() -> bytes:
        return encode(await measuring.period(cards.held, [cards.sample()], cards))

    same = await measure()

    async def repeat() -> bytes:
        return same

    async with (
        NatsServer() as server,
        connect(server.url, name="bench-monitor") as mouth,
        connect(server.url, name="bench-ear") as ear,
    ):
        whole = await _latencies(mouth, ear, measure)
        bare = await _latencies(mouth, ear, repeat)
    return [
        Row(
            name=f"sample to subscriber, {name}",
            value=percentile(whole, percent) * 1000,
            unit="ms",
            floor=percentile(bare, percent) * 1000,
            note=f"{MESSAGES} messages over loopback; floor: the same bytes, sent and decoded",
        )
        for name, percent in (("p50", 50), ("p99", 99))
    ]


async def _latencies(mouth: Bus, ear: Bus, make: Callable[[], Awaitable[bytes]]) -> list[float]:
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def hear(message: Received) -> None:
        msgspec.json.decode(message.data, type=NodeUsage)
        arrived.put_nowait(time.perf_counter())

    took: list[float] = []
    async with ear.subscribe(USAGE.wildcard, hear):
        await asyncio.sleep(0.2)
        for _ in range(MESSAGES):
            began = time.perf_counter()
            await mouth.publish(USAGE.subject(node=NODE), await make())
            took.append(await arrived.get() - began)
    return took


def lifetimes() -> Row:
    """100,000 pods, 64 at a time, each seen twice: what they cost, and what is left of them."""
    owners = {"pod": Owner(uid=RequestUid("e-1-0"), namespace="team", pod="p")}
    meters: dict[str, Meter] = {}
    before_kib = 0
    began = time.process_time()
    for generation in range(LIVES // AT_ONCE):
        if generation == FILLED:
            before_kib = _resident_kib()
        for look in range(2):
            reading = Reading(cpu_ns=look, periods=look, throttled_periods=0, throttled_ns=0)
            found = [
                Found(pod_uid="pod", container=f"{generation}-{n}", runtime="", reading=reading) for n in range(AT_ONCE)
            ]
            _, meters = measured(meters, found, owners, at_ns=(2 * generation + look) * 10**9)
    spent_s = time.process_time() - began
    return Row(
        name="a thousand pods come and go",
        value=spent_s * 1000 / (LIVES / 1000),
        unit="ms",
        note=f"{LIVES:,} of them: {len(meters)} meters left, resident memory grew {_resident_kib() - before_kib} KiB",
    )


def _resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 1024
