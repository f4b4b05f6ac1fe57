"""What a scraper sees, against what the driver was told to say: real processes, cgroups, server, monitor and pynvml.

Two tenants in containers of this machine and a stranger share a card; the stand-in driver has their numbers in a file.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.client import connect
from bus.protocol import Bus
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.subjects import SHARES
from contracts.units import CardUuid, NodeName, RequestUid
from tests.nvml_stub.stub import GIB, MIB, World, build, environment
from tests.servers.cgroups import POD, RealPod, missing
from tests.servers.natsd import NatsServer
from tests.servers.ports import reserve_port
from tests.servers.process import ServerProcess, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.skipif(missing() != "", reason=missing())]

ROOT = Path(__file__).parents[2]
NODE, CARD, OTHER = NodeName("gpu-7"), CardUuid("GPU-0"), CardUuid("GPU-1")
UID, QUIET = RequestUid("e-1-0"), RequestUid("e-2-0")
SERIES = re.compile(r"^(\w+)\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    async with connect(nats_server.url, name="reconciler") as bus:
        await bus.ensure_streams()
        yield bus


def share(uid: RequestUid, pod: str) -> ShareAssignment:
    return ShareAssignment(uid=uid, namespace="team", pod=pod, card=CARD, share_milli=500, memory_mib=4096)


async def tell(bus: Bus, sequence: int, container: str, *held: ShareAssignment) -> None:
    """Pods of the node; the quiet one has no process on the card."""
    names = {UID: (POD, container), QUIET: ("0badcafe-0000-4000-8000-000000000002", "")}
    pods = tuple(PodOnNode(uid=one.uid, pod_uid=names[one.uid][0], container_id=names[one.uid][1]) for one in held)
    shares = NodeShares(node=NODE, epoch="e", ledger_sequence=sequence, assignments=held, pods=pods)
    await bus.store(SHARES.subject(node=NODE), encode(shares), stream=SHARES.stream)


def scraped(port: int) -> dict[str, dict[tuple[str, str], float]]:
    """By name: UUID and pod, and the value; of series that are of no card, nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    found: dict[str, dict[tuple[str, str], float]] = {}
    for name, labels, value in SERIES.findall(text):
        known = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if "UUID" in known:
            found.setdefault(name, {})[known["UUID"], known.get("pod", "")] = float(value)
    return found


async def until(port: int, what: str, pods: set[str]) -> dict[str, dict[tuple[str, str], float]]:
    """Scrape until the card has a series for just these pods, and for the rest of it."""
    last: list[dict[str, dict[tuple[str, str], float]]] = [{}]

    async def seen() -> bool:
        last[0] = await asyncio.to_thread(scraped, port)
        return {pod for card, pod in last[0].get("DCGM_FI_DEV_GPU_UTIL", {}) if card == CARD} == {"", *pods}

    await wait_until(seen, what=what, timeout_s=30.0)
    return last[0]


async def test_s173_a_scrape_tells_what_the_driver_said_pod_by_pod(
    bus: Bus, nats_server: NatsServer, pod: RealPod, tmp_path: Path
) -> None:
    """S173, S174: one series for each card and pod, adding up to the card to the number; gone with its pod."""
    container = pod.start()
    (busy,) = pod._busy
    me = os.getpid()
    world = World(tmp_path / "world")
    for index in range(2):
        world.card(index, uuid=f"GPU-{index}", name="Tesla T4", total=16 * GIB, reserved=GIB, power_mw=70_000)
    world.card(
        0, used=5 * GIB, util=70, temperature=55, processes=f"{busy.pid}:{3 * GIB},{me}:{700 * MIB}",
        samples=f"{busy.pid}:45,{me}:20",
    )  # fmt: skip
    world.card(1, used=0, util=0, processes="")
    await tell(bus, 1, container, share(UID, "train"), share(QUIET, "quiet"))
    port = reserve_port()
    env = environment(build(tmp_path), world) | {
        "GPUBUS_NATS__URLS": nats_server.url, "GPUBUS_MONITOR__NODE": NODE, "PYTHONPATH": str(ROOT),
        "GPUBUS_HEALTH__PORT": str(port.number), "GPUBUS_MONITOR__CGROUP_ROOT": pod.root,
    }  # fmt: skip
    monitor = ServerProcess("monitor", [sys.executable, "-m", "monitor"], tmp_path / "log", env=env)
    monitor.launch()
    try:
        found = await until(port.number, "both pods have their series", {"train", "quiet"})
        assert {name: series[OTHER, ""] for name, series in found.items() if (OTHER, "") in series} == {
            "DCGM_FI_DEV_GPU_UTIL": 0, "DCGM_FI_DEV_FB_USED": 0, "DCGM_FI_DEV_POWER_USAGE": 70,
            "gpubus_card_unmanaged_mib": 0,
        }  # fmt: skip
        on_card = {
            name: {pod: n for (card, pod), n in series.items() if card == CARD} for name, series in found.items()
        }
        assert on_card == {
            "DCGM_FI_DEV_GPU_UTIL": {"train": 45, "quiet": 0, "": 25},
            "DCGM_FI_DEV_FB_USED": {"train": 3072, "quiet": 0, "": 2048},
            "DCGM_FI_DEV_POWER_USAGE": {"": 70},
            "DCGM_FI_DEV_GPU_TEMP": {"": 55},
            "gpubus_card_unmanaged_mib": {"": 700},
        }
        await tell(bus, 2, container, share(UID, "train"))
        await until(port.number, "the series of the quiet one is gone", {"train"})
        await tell(bus, 3, container)
        found = await until(port.number, "the card is alone", set())
        assert found["DCGM_FI_DEV_GPU_UTIL"][CARD, ""] == 70
    finally:
        await monitor.kill()
        port.release()
        print(monitor.log_tail())  # noqa: T201 - pytest shows it when the test fails
