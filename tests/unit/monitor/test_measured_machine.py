"""On this machine, as a monitor does it: pynvml over a stand-in driver, a real process in a real cgroup of a pod.

The pod's part of the card, its container's CPU, and a process outside of any pod, in one message. Skipped where no
cgroups may be made.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import NodeUsage
from monitor.cards.nvml import NvmlCards
from monitor.cgroups.tree import hierarchies
from monitor.measuring import Measuring, of_shares
from monitor.procs.reading import sees_host
from monitor.report import Identity
from monitor.settings import MonitoringSettings
from tests.nvml_stub.stub import GIB, MIB, World, build, driver

MOUNT, PROC = Path("/sys/fs/cgroup"), Path("/proc")
CONTAINER = "5a" * 32
POD_UID = f"1b2c3d4e-1d3e-4f60-9a7b-{os.getpid():012x}"
UID = RequestUid("e-1-0")
CARD = CardUuid("GPU-a")
SPIN = "while True: pass"


@contextlib.contextmanager
def in_a_pod(pid: int) -> Iterator[None]:
    """The process is in a container of the pod, in every hierarchy of this machine."""
    mounted = hierarchies(MOUNT)
    trees = sorted({t for t in (mounted.unified, mounted.cpu, mounted.cpuacct, mounted.memory) if t})
    made: list[Path] = []
    try:
        try:
            for tree in trees:
                folder = Path(tree) / "kubepods" / "burstable" / f"pod{POD_UID}" / CONTAINER
                for part in reversed([folder, *folder.parents][:4]):
                    if not part.exists():
                        part.mkdir()
                        made.append(part)
                (folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            pytest.skip(f"no cgroups may be made below {MOUNT}: {error}")
        if not trees or not sees_host(PROC):
            pytest.skip("no cgroups are mounted, or this is a pid namespace of its own")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()


def shares() -> NodeShares:
    piece = ShareAssignment(uid=UID, namespace="team", pod="p", card=CARD, share_milli=500, memory_mib=8000)
    pod = PodOnNode(uid=UID, pod_uid=POD_UID, container_id=CONTAINER)
    return NodeShares(node=NodeName("n1"), epoch="e", ledger_sequence=1, assignments=(piece,), pods=(pod,))


async def measured(cards: NvmlCards) -> NodeUsage:
    """Periods until the container's CPU is known to be used, at most 20 s of them."""
    who = Identity(node=NodeName("n1"), boot_id="b", incarnation="m")
    measuring = Measuring(who, MonitoringSettings(node=NodeName("n1")))
    measuring.told = of_shares(shares())
    await measuring.start()
    until = time.monotonic() + 20
    while True:
        (seat,) = cards.seats()
        look = cards.look(seat)
        usage = await measuring.period(look.cards, [look.usage], cards)
        if (usage.containers and usage.containers[0].cpu_used_milli) or time.monotonic() > until:
            return usage


async def test_a_real_process_is_its_requests_and_another_one_is_nobodys(tmp_path: Path) -> None:
    """Claim: from the driver's list of pids to a request, over this machine's own /proc and cgroups."""
    world = World(tmp_path / "world")
    busy = subprocess.Popen([sys.executable, "-c", SPIN])  # noqa: ASYNC220 - reaped by `in_a_pod`
    with in_a_pod(busy.pid), driver(build(tmp_path), world):
        world.card(0, uuid=CARD, name="Tesla T4", total=16 * GIB, reserved=0, used=4 * GIB, util=60)
        world.card(0, processes=f"{busy.pid}:{3 * GIB},{os.getpid()}:{700 * MIB},{2**22 - 1}:{GIB}")
        cards = NvmlCards()
        usage = await measured(cards)
        cards.close()

    (card,) = usage.cards
    assert [(p.pid, p.belongs, p.request) for p in card.processes or ()] == sorted(
        [(busy.pid, "request", UID), (os.getpid(), "nobody", "")]
    )
    assert [(s.uid, s.memory_used_mib, s.processes) for s in card.slices or ()] == [(UID, 3 * 1024, 1)]
    assert card.unmanaged_mib == 700
    (container,) = usage.containers or ()
    assert (container.pod_uid, container.own) == (POD_UID, True)
    assert (container.cpu_used_milli or 0) > 0
