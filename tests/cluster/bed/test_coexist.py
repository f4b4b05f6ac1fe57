"""Whole cards beside other schedulers, on a real kubelet with a device plugin: from a request to the card and back.

One node with two cards that the plugin of the tests gives out; the kubelet, its Allocate, the pod statuses, containers
and Kubernetes' own scheduler are real. The services run as processes beside it, in the bed's network. The tests build
on each other, in this order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.bed import images, layout
from tests.bed.bed import Bed
from tests.bed.bed import trees as cgroup_trees
from tests.bed.devices import RESOURCE, DevicePlugin
from tests.bed.installing import NAMESPACE, namespace
from tests.bed.needs import skip_without
from tests.bed.restarting import process_of, restart_kubelet
from tests.bed.watching import containers, shown
from tests.bed.world import MERGE, TEAM, request
from tests.servers import chart
from tests.servers.line import Line, Stranger, stranger
from tests.servers.natsd import NatsServer
from tests.servers.process import ServerProcess, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

NODE = "gpu-1"
SETTINGS = {
    "GPUBUS_RECONCILER__PLACEHOLDERS__IMAGE": images.PAUSE,
    "GPUBUS_RECONCILER__PLACEHOLDERS__RELEASE_IDLE_AFTER_S": "3",
    "GPUBUS_RECONCILER__PLACEHOLDERS__ACQUIRE_AFTER_S": "0.2",
}
ACCOUNT, RIGHTS = "gpubus-reconciler", ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")


class World:
    """The bed with its plugin, and who asks in it."""

    def __init__(self, bed: Bed, line: Line, client: Stranger, plugin: DevicePlugin) -> None:
        self.bed, self.line, self.client, self.plugin = bed, line, client, plugin
        self.started: list[ServerProcess] = []

    async def placeholders(self) -> dict[str, dict[str, Any]]:
        """Those that run, by the card that their status names."""
        found = await self.bed.pods(NAMESPACE)
        running = (pod for pod in found if pod["status"]["phase"] == "Running" and not gone(pod))
        return {cards[0]: pod for pod in running if (cards := devices_of(pod))}

    async def cards(self) -> dict[str, dict[str, Any]]:
        """The ledger's view."""
        return {card["card"]["uuid"]: card for card in (await self.client.state("cards")).get("cards", ())}

    async def ask(self, name: str, share_milli: int = 500) -> dict[str, Any]:
        """A request of the team, once it runs: the event of its placement."""
        await self.publish(name, share_milli)
        return await self.client.until(TEAM, name, "running", timeout_s=40)

    async def publish(self, name: str, share_milli: int = 500) -> None:
        await self.client.publish(TEAM, request(name, share_milli))

    async def withdraw(self, *names: str) -> None:
        """And until their pods are gone."""
        for name in names:
            await self.client.publish(TEAM, {"type": "pod.withdraw.v1", "name": name})
        for name in names:
            await self.client.until(TEAM, name, "withdrawn", "ended", timeout_s=30)

    async def pod(self, name: str) -> dict[str, Any]:
        """The pod of a request."""
        [found] = await self.bed.pods(TEAM, **{"gpubus.dev/request": name})
        return found

    async def node(self) -> tuple[int, int]:
        """Devices that the kubelet has, and offers."""
        status = (await self.bed.api("GET", f"/api/v1/nodes/{NODE}")).body["status"]
        return int(status["capacity"].get(RESOURCE, 0)), int(status["allocatable"].get(RESOURCE, 0))

    def restart_kubelet(self) -> None:
        """It is ended with the others."""
        self.started.append(restart_kubelet(self.bed, NODE))

    async def until(self, holds: Callable[[], Any], what: str, timeout_s: float = 40.0) -> None:
        await wait_until(holds, what=what, timeout_s=timeout_s, every_s=0.1)


def gone(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def devices_of(pod: dict[str, Any]) -> list[str]:
    """The cards that the kubelet says it gave to a pod."""
    return [
        device["resourceID"]
        for status in pod["status"].get("containerStatuses", ())
        for given in status.get("allocatedResourcesStatus") or ()
        for device in given["resources"]
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """One node in mode `coexist` with two cards, the line, and a team."""
    skip_without()
    async with Bed([NODE]) as bed:
        with bed.entered():
            async with NatsServer() as nats, stranger(nats.url) as client:
                for name in (NAMESPACE, TEAM):
                    await namespace(bed, name)
                settings = {**SETTINGS, "GPUBUS_RECONCILER__KUBE__KUBECONFIG": str(await rights(bed))}
                label = {"metadata": {"labels": {"gpubus.dev/mode": "coexist"}}}
                await bed.api("PATCH", f"/api/v1/nodes/{NODE}", label, content_type=MERGE)
                async with Line([nats.url], env=settings) as line:
                    await line.monitor(NODE, cards=2)
                    cards = await listed(client)
                    async with DevicePlugin(bed, NODE, cards) as plugin:
                        made = World(bed, line, client, plugin)
                        await made.until(lambda: offers(made, 2), "two devices of the plugin")
                        yield made
                        for process in made.started:
                            await process.kill()


async def rights(bed: Bed) -> Path:
    """A kubeconfig with the rights that the chart gives the reconciler, and no more."""
    for document in chart.rendered(NAMESPACE):
        kind = document["kind"]
        if kind in RIGHTS and document["metadata"]["name"] == ACCOUNT:
            answer = await bed.api("POST", chart.PATHS[kind].format(ns=NAMESPACE), document)
            assert answer.status == 201, answer.body
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    token = (await bed.api("POST", path, {"spec": {"expirationSeconds": 3600}})).body["status"]["token"]
    file = bed.folder / "reconciler.kubeconfig"
    file.write_text(layout.kubeconfig(bed.folder / "certs" / "apiserver.crt", token), encoding="utf-8")
    return file


async def listed(client: Stranger) -> list[str]:
    """The cards that the monitor found."""
    found: list[str] = []

    async def both() -> bool:
        found[:] = [card["card"]["uuid"] for card in (await client.state("cards")).get("cards", ())]
        return len(found) == 2

    await wait_until(both, what="two cards in the ledger", timeout_s=60)
    return found


async def offers(world: World, count: int) -> bool:
    """The kubelet offers so many devices."""
    return (await world.node())[1] == count


async def test_a_request_gets_a_card_from_the_device_plugin_and_sees_exactly_that_one(world: World) -> None:
    """No card is ours at first; a placeholder gets one; the share goes there and its container prints it."""
    assert await world.placeholders() == {}
    assert {card["health"] for card in (await world.cards()).values()} == {"not acquired"}
    await world.ask("first")
    [card] = await world.placeholders()

    assert await shown(world.bed, await world.pod("first")) == card
    assert {uuid: view["health"] for uuid, view in (await world.cards()).items() if uuid != card}.popitem()[1] == (
        "not acquired"
    )


async def test_the_other_card_goes_to_another_scheduler_and_the_next_request_waits_until_it_is_back(
    world: World,
) -> None:
    """Somebody's whole card through Kubernetes' own scheduler: it is neither sold nor fought for."""
    limits = {RESOURCE: "1", "memory": "64Mi"}
    container = {"name": "main", "image": images.PAUSE, "resources": {"limits": limits}}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    path = f"/api/v1/namespaces/{TEAM}/pods"
    await world.bed.api("POST", path, {"metadata": {"name": "theirs"}, "spec": spec})

    async def has_one() -> bool:
        return bool(devices_of((await world.bed.api("GET", f"{path}/theirs")).body))

    await world.until(has_one, "a card for the other")
    await world.publish("second", 1000)
    await world.client.until(TEAM, "second", "pending")
    assert len(await world.placeholders()) == 1
    await world.bed.api("DELETE", f"{path}/theirs")
    await world.client.until(TEAM, "second", "running", timeout_s=40)
    assert len(await world.placeholders()) == 2
    assert await shown(world.bed, await world.pod("second")) in await world.placeholders()


async def test_a_kubelet_that_is_killed_and_comes_back_changes_nothing(world: World) -> None:
    """Same containers, same cards; the plugin registers again and no tenant notices."""
    before = {card: containers(pod) for card, pod in (await world.placeholders()).items()}
    tenant, registered = containers(await world.pod("first")), world.plugin.registered
    world.restart_kubelet()

    async def again() -> bool:
        return world.plugin.registered > registered and await offers(world, 2)

    await world.until(again, "the plugin known again")
    assert {card: containers(pod) for card, pod in (await world.placeholders()).items()} == before
    assert containers(await world.pod("first")) == tenant


async def test_a_lost_plugin_keeps_tenants_and_a_lost_placeholder_is_made_good_when_it_is_back(
    world: World,
) -> None:
    """S053: somebody deletes the placeholder under a tenant while no device can be had: counted, named, found again."""
    await world.plugin.stop()
    await world.until(lambda: offers(world, 0), "no device offered")
    card = await shown(world.bed, await world.pod("first"))
    lost = (await world.placeholders())[card]["metadata"]["name"]
    await world.bed.api("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{lost}")

    async def named() -> bool:
        view = (await world.cards())[card]
        return bool(view["health"] == "not acquired" and view["used_milli"] == 500)

    await world.until(named, "the lost card, still counted")
    await world.plugin.start()

    async def held_again() -> bool:
        return (await world.cards())[card]["health"] == "healthy" and card in await world.placeholders()

    await world.until(held_again, "a placeholder on the card of the tenant")
    assert (await world.pod("first"))["status"]["phase"] == "Running"


async def test_after_a_boot_with_a_late_plugin_no_card_is_sold_before_it_is_ours_again(world: World) -> None:
    """The kubelet will refuse the placeholders for good, and the API says Running for a while: nothing goes there.

    The kubelet is stopped as soon as it has told of the boot, so that what the API says stays as it was before.
    """
    before = {pod["metadata"]["uid"] for pod in (await world.placeholders()).values()}
    await world.plugin.stop()
    booted = await boot(world)

    async def told() -> bool:
        node = (await world.bed.api("GET", f"/api/v1/nodes/{NODE}")).body
        return bool(node["status"]["nodeInfo"]["bootID"] == booted)

    await world.until(told, "the kubelet has told of the boot")
    world.bed.kill(f"kubelet-{NODE}", signal.SIGSTOP)

    async def fenced() -> bool:
        return {card["health"] for card in (await world.cards()).values()} == {"not acquired"}

    await world.until(fenced, "no card acquired any more", timeout_s=15)
    world.bed.kill(f"kubelet-{NODE}", signal.SIGCONT)
    await world.publish("third")

    async def refused() -> bool:
        there = {pod["metadata"]["uid"] for pod in await world.bed.pods(NAMESPACE)}
        return not there & before

    await world.until(refused, "the placeholders of before cleared away")
    assert await world.bed.pods(TEAM, **{"gpubus.dev/request": "third"}) == []
    await world.plugin.start()
    await world.client.until(TEAM, "third", "running", timeout_s=40)
    assert await shown(world.bed, await world.pod("third")) in await world.placeholders()


async def test_cards_go_back_when_nobody_uses_them(world: World) -> None:
    """The requests end; the placeholders go after the time that was set, and every card is free for others."""
    await world.withdraw("third")

    async def none() -> bool:
        return await world.bed.pods(NAMESPACE) == []

    await world.until(none, "no placeholder left")
    assert {card["health"] for card in (await world.cards()).values()} == {"not acquired"}
    assert await world.node() == (2, 2)


# --- what happens to the node ----------------------------------------------------------------------------------------


async def boot(world: World) -> str:
    """All containers of the node are killed with its kubelet; as far as that can tell another boot begins: its id."""
    bed = world.bed
    bed.kill(f"kubelet-{NODE}")
    containerd = process_of(bed, f"containerd-{NODE}")
    booted = secrets.token_hex(16)
    file = bed.folder / f"boot-{booted}"
    file.write_text(f"{booted}\n", encoding="ascii")
    bind = ["mount", "--bind", str(file), "/proc/sys/kernel/random/boot_id"]
    enter = ["nsenter", "--mount", "-t", str(containerd), "--", *bind]
    await asyncio.to_thread(subprocess.run, enter, check=True)
    for pid in in_containers(bed):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    world.restart_kubelet()
    return booted


def in_containers(bed: Bed) -> set[int]:
    """Every process of every pod of the node; in version 1 of cgroups each stands in several trees."""
    found: set[int] = set()
    for tree in cgroup_trees():
        for procs in (tree / bed.group / NODE).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                found.update(map(int, procs.read_text(encoding="ascii").split()))
    return found
