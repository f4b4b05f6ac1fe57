"""`python -m monitor` that enforces: a real kernel, a real nats-server, real files and sockets, kill -9.

The cards are made up, in the mode `gemini`; the CPU limits hold a busy process of the test on the machine's cgroups.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.client import connect
from bus.protocol import Bus
from contracts.inventory import NodeInventory
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.shares import CpuLimit, NodeCpuLimits, NodeEnforcement, PodEnforcement
from contracts.subjects import CPU_LIMITS, ENFORCEMENT, INVENTORY, SHARES
from contracts.units import NodeName, RequestUid
from monitor.cards.simulated import card_uuid
from monitor.cgroups.tree import CpuPlace
from monitor.enforce import cpu
from tests.servers.cgroups import POD, RealPod, missing
from tests.servers.natsd import NatsServer
from tests.servers.process import ServerProcess, wait_until

pytestmark = pytest.mark.nats

ROOT = Path(__file__).parents[2]
NODE = "gpu-7"
CARD = card_uuid(NODE, 0)
UID = RequestUid("e-1-0")
PERIOD_US = 100_000
needs_cgroups = pytest.mark.skipif(missing() != "", reason=missing())


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    async with connect(nats_server.url, name="reconciler") as bus:
        await bus.ensure_streams()
        yield bus


@pytest.fixture
async def start(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Callable[..., ServerProcess]]:
    started: list[ServerProcess] = []

    def launch(**more: Any) -> ServerProcess:
        settings = {
            "NODE": NODE, "PROVIDER": "simulated", "SIMULATED__CARDS": 2, "ENFORCE__CHECK_S": 0.2,
            "ENFORCE__MODE": "gemini", "ENFORCE__GEMINI_PATH": tmp_path / "kubeshare",
            "ENFORCE__STATE_PATH": tmp_path / "state", **more,
        }  # fmt: skip
        env = os.environ | {f"GPUBUS_MONITOR__{key}": str(value) for key, value in settings.items()}
        env |= {"GPUBUS_NATS__URLS": nats_server.url, "PYTHONPATH": str(ROOT)}
        log = tmp_path / f"monitor-{len(started)}.log"
        monitor = ServerProcess("monitor", [sys.executable, "-m", "monitor"], log, env=env)
        monitor.launch()
        started.append(monitor)
        return monitor

    yield launch
    for monitor in started:
        await monitor.kill()
        print(monitor.log_tail())  # noqa: T201 - pytest shows it when the test fails


def share(uid: RequestUid = UID, **more: Any) -> ShareAssignment:
    fields = {"namespace": "team", "pod": "train", "card": CARD, "share_milli": 250, "memory_mib": 1024} | more
    return ShareAssignment(uid=uid, **fields)


async def tell(bus: Bus, sequence: int, *held: ShareAssignment, epoch: str = "e", **more: Any) -> None:
    shares = NodeShares(node=NodeName(NODE), epoch=epoch, ledger_sequence=sequence, assignments=held, **more)
    await bus.store(SHARES.subject(node=NODE), encode(shares), stream=SHARES.stream)


async def limit(bus: Bus, sequence: int, milli: int | None) -> None:
    limits = () if milli is None else (CpuLimit(uid=UID, limit_milli=milli),)
    message = NodeCpuLimits(node=NodeName(NODE), epoch="e", sequence=sequence, limits=limits)
    await bus.store(CPU_LIMITS.subject(node=NODE), encode(message), stream=CPU_LIMITS.stream)


def on_node(container: str) -> tuple[PodOnNode, ...]:
    return (PodOnNode(uid=UID, pod_uid=POD, container_id=container),)


class Reports:
    """What the monitor says that it enforces."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def last(self) -> NodeEnforcement | None:
        message = await self._bus.last(ENFORCEMENT.stream, ENFORCEMENT.subject(node=NODE))
        return msgspec.json.decode(message.data, type=NodeEnforcement) if message else None

    async def until(self, what: str, condition: Callable[[NodeEnforcement], bool]) -> NodeEnforcement:
        found: list[NodeEnforcement] = []

        async def met() -> bool:
            last = await self.last()
            found[:] = [last] if last else []
            return last is not None and condition(last)

        try:
            await wait_until(met, what=what, timeout_s=20.0)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last one is {found}") from None
        return found[0]


def of(report: NodeEnforcement, what: str) -> PodEnforcement | None:
    return next((one for one in report.pods if one.uid == UID and one.what == what), None)


def stands(milli: int | None) -> Callable[[NodeEnforcement], bool]:
    def condition(report: NodeEnforcement) -> bool:
        found = of(report, "cpu")
        return found is None if milli is None else found is not None and found.limit_milli == milli

    return condition


# --- the CPU ---------------------------------------------------------------------------------------------------------


@needs_cgroups
async def test_a_busy_process_is_held_to_its_limit_through_restarts_of_everything(
    bus: Bus, pod: RealPod, start: Callable[..., ServerProcess]
) -> None:
    """Claims S044, S149 (a shrink kills nobody): measured by the kernel; container restart, kill -9, giving back."""
    reports, container = Reports(bus), pod.start()
    await tell(bus, 1, pods=on_node(container))
    await limit(bus, 1, 100)
    monitor = start(CGROUP_ROOT=pod.root)
    await reports.until("the limit stands", stands(100))
    assert pod.limit() == "10000"
    throttled, used_us, began = pod.stat("nr_throttled"), pod.used_us(), time.monotonic()

    async def held_back() -> bool:
        return pod.stat("nr_throttled") >= throttled + 5

    await wait_until(held_back, what="the kernel holds it back five times", timeout_s=60.0)
    used_us, periods = pod.used_us() - used_us, (time.monotonic() - began) * 1e6 / PERIOD_US
    assert used_us <= (periods + 2) * 10_000  # at most its quota in each period that has begun

    container = pod.start()  # its runtime made a new cgroup, without our limit
    assert pod.limit() == "none"
    await tell(bus, 2, pods=on_node(container))
    await wait_until(lambda: _is(pod, "10000"), what="the new container is held")
    pod.put(pod.folder, 50_000)  # a kubelet wrote its own
    await wait_until(lambda: _is(pod, "10000"), what="it is written again")

    os.kill(monitor.pid, signal.SIGKILL)
    await limit(bus, 2, None)
    start(CGROUP_ROOT=pod.root)
    await wait_until(lambda: _is(pod, "none"), what="the new life gives back what the last one took", timeout_s=20.0)
    await reports.until("nothing is limited", stands(None))


async def _is(pod: RealPod, quota: str) -> bool:
    return pod.limit() == quota


@needs_cgroups
def test_the_kernel_takes_our_order_and_refuses_the_other() -> None:
    """A pod with half a core: a container above it is EINVAL in v1 when written alone, and stands when brought."""
    pod = RealPod(pod_us=50_000)
    try:
        pod.start()
        place = CpuPlace(
            pod_uid=POD, container=pod.container, unified=pod.unified,
            pod_folder=str(pod.pod_folder), folder=str(pod.folder),
        )  # fmt: skip
        if not pod.unified:
            with pytest.raises(OSError, match="Invalid argument"):
                pod.put(pod.folder, 100_000)
        assert cpu.bring(place, 1000).quota_us == 100_000
        assert (pod.limit(pod.pod_folder), pod.limit()) == ("100000", "100000")
        assert cpu.bring(place, 200).quota_us == 20_000
        assert (pod.limit(pod.pod_folder), pod.limit()) == ("100000", "20000")
        assert cpu.bring(place, None).quota_us is None
        assert (pod.limit(pod.pod_folder), pod.limit()) == ("100000", "none")
        with pytest.raises(OSError, match="Invalid argument for '1"):
            cpu._put(place.folder, "cpu.max" if pod.unified else "cpu.cfs_quota_us", "1")
    finally:
        pod.remove()


# --- the cards -------------------------------------------------------------------------------------------------------


async def test_a_pod_is_ready_when_its_manager_listens_and_gone_from_the_files_when_released(
    bus: Bus, start: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    """Files from the shares, the wait with its reason, a stale and a foreign state refused, kill -9, cleaning up."""
    reports, files = Reports(bus), tmp_path / "kubeshare" / "scheduler"
    with socket.socket() as manager:
        manager.bind(("127.0.0.1", 0))
        port = manager.getsockname()[1]
        await tell(bus, 5, share(port=port), share(RequestUid("e-2-0"), card="GPU-of-another-node"))
        monitor = start()
        report = await reports.until("the pod waits", lambda r: of(r, CARD) is not None)
        waits = of(report, CARD)
        assert waits is not None
        assert (waits.state, waits.reason) == (
            "waiting", f"no pod manager listens on port {port}; does Gemini's launcher run?",
        )  # fmt: skip
        assert [(one.uid, one.state, one.reason) for one in report.pods if one.state == "refused"] == [
            ("e-2-0", "refused", "this node has no card GPU-of-another-node")
        ]
        assert (files / "config" / CARD).read_bytes() == b"1\nteam/train 0.250000 0.250000 1073741824\n"
        manager.listen()
        await reports.until("the pod is ready", lambda r: (of(r, CARD) or waits).state == "applied")

    await tell(bus, 4, epoch="e")
    report = await reports.until("the stale state is refused", lambda r: r.refused != "")
    assert report.refused == "shares of ledger sequence 4, 5 is in force"
    assert (files / "podmanagerport" / CARD).read_bytes() == f"1\nteam/train {port}\n".encode()
    assert {(one.card, one.mode, one.declared, one.enforced) for one in report.cards} == {
        (card_uuid(NODE, index), "gemini", "both", "both") for index in (0, 1)
    }
    inventory = await bus.last(INVENTORY.stream, INVENTORY.subject(node=NODE))
    assert inventory is not None
    assert {c.isolation for c in msgspec.json.decode(inventory.data, type=NodeInventory).cards} == {"gemini"}

    os.kill(monitor.pid, signal.SIGKILL)
    await tell(bus, 6)
    start()
    await reports.until("the new life has cleaned up", lambda r: r.ledger_sequence == 6 and not r.pods)

    assert {path.read_bytes() for path in (*files.glob("config/*"), *files.glob("podmanagerport/*"))} == {b"0\n"}


async def test_s070_a_monitor_that_restarts_between_decision_and_start_goes_on_with_the_same_plan(
    bus: Bus, start: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    """S070: killed while the pod waits to be bound. The next life reads the same shares: same card, port and files."""
    reports, files = Reports(bus), tmp_path / "kubeshare" / "scheduler"
    with socket.socket() as manager:
        manager.bind(("127.0.0.1", 0))
        port = manager.getsockname()[1]
        await tell(bus, 5, share(port=port))
        monitor = start()
        before = await reports.until("the pod waits", lambda r: of(r, CARD) is not None)
        written = (files / "config" / CARD).read_bytes(), (files / "podmanagerport" / CARD).read_bytes()
        os.kill(monitor.pid, signal.SIGKILL)
        manager.listen()
        start()
        after = await reports.until("another life says so", lambda r: r.incarnation != before.incarnation)
        waits, ready = of(before, CARD), of(after, CARD)
        assert waits is not None
        if ready is None or ready.state != "applied":  # its first word may be of the moment before it looked
            after = await reports.until("the pod is ready", lambda r: (of(r, CARD) or waits).state == "applied")
            ready = of(after, CARD)

    assert ready is not None
    assert (waits.state, ready.state, waits.port, ready.port) == ("waiting", "applied", port, port)
    assert (before.ledger_sequence, after.ledger_sequence) == (5, 5)
    assert ((files / "config" / CARD).read_bytes(), (files / "podmanagerport" / CARD).read_bytes()) == written
