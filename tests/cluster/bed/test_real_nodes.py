"""The chart on a real cluster: real kubelets, real containers, and tenants with nothing but a Kubernetes token.

One bed of two nodes for the whole file; the tests build on each other, in this order, as an installation's life does.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.bed import layout
from tests.bed.bed import Bed
from tests.bed.installing import NAMESPACE, VALUES, install, namespace, tenant, wait_ready
from tests.bed.needs import skip_without
from tests.bed.restarting import restart_kubelet
from tests.bed.watching import containers, quota_us, shown
from tests.bed.world import MERGE, TEAM, World, adds_up, audit, deployment, lives, request
from tests.servers.jaegerd import Jaeger
from tests.servers.process import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

STEPS = {"submit", "admit", "decide", "commit", "create", "bind", "running"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """A bed, a Jaeger beside it, the chart installed and Ready."""
    skip_without()
    bed = Bed(["gpu-1", "gpu-2"])
    async with bed:
        with bed.entered():
            async with Jaeger(host=layout.ADDRESS) as jaeger:
                made = World(bed, jaeger)
                await namespace(bed, TEAM)
                await install(bed, {**VALUES, "tracing": {"otlpEndpoint": jaeger.otlp_url}})
                await wait_ready(bed)
                yield made
                for process in made.started:
                    await process.kill()


async def test_the_chart_comes_up_and_a_first_share_runs(world: World, record_property: Any) -> None:
    """From `helm install` to a container on half a card; every pod of ours Ready without a restart."""
    await world.publish("first")
    seconds = time.monotonic() - world.installed_at
    record_property("install_to_first_share_s", round(seconds, 1))
    assert seconds < 110, "the goal is 60 on a quiet machine"
    restarts = {
        pod["metadata"]["name"]: status["restartCount"]
        for pod in await world.bed.pods(NAMESPACE)
        for status in pod["status"].get("containerStatuses", ())
    }
    assert set(restarts.values()) == {0}, restarts


async def test_every_container_sees_the_card_that_the_ledger_says(world: World) -> None:
    """Sixteen halves in one burst by a tenant's own client, under one trace that ends with the running container."""
    trace = secrets.token_hex(16)
    names = tuple(f"half-{number}" for number in range(16))
    placed = await world.publish(*names, traceparent=f"00-{trace}-{secrets.token_hex(8)}-01")
    pods = await world.pods()
    for name in names:
        [piece], pod = placed[name]["slices"], pods[name]
        assert pod["spec"]["nodeName"] == placed[name]["node"]
        assert await shown(world.bed, pod) == piece["card"]
    cards = await world.cards()
    assert max(card.get("used_milli", 0) for card in cards.values()) <= 1000
    assert await world.sold() == 17 * 500

    async def told() -> bool:
        found = await world.jaeger.traces(trace_id=trace)
        spans = Counter(span["operationName"] for one in found for span in one["spans"])
        return all(spans[step] >= (1 if step == "submit" else 16) for step in STEPS - {"submit"})

    await wait_until(told, what="one trace of sixteen requests, to the running containers", every_s=0.5, timeout_s=30)


async def test_a_deployment_goes_to_twenty_and_back_to_three(world: World) -> None:
    """Ordinary pods with our scheduler's name get cards; cards come back when they go."""
    path = f"/apis/apps/v1/namespaces/{TEAM}/deployments"
    before = await world.sold()
    assert (await world.bed.api("POST", path, deployment("web", 20))).status == 201

    async def ready(count: int) -> bool:
        status = (await world.bed.api("GET", f"{path}/web")).body["status"]
        return (status.get("readyReplicas", 0), status.get("replicas", 0)) == (count, count)

    await wait_until(lambda: ready(20), what="twenty replicas Ready", timeout_s=60, every_s=0.25)
    assert await world.sold() - before == 20 * 250
    for name, pod in (await world.pods()).items():
        if name.startswith("web-"):
            assert await shown(world.bed, pod) == pod["metadata"]["annotations"]["gpubus.dev/cards"]
    scale = {"spec": {"replicas": 3}}
    await world.bed.api("PATCH", f"{path}/web", scale, content_type=MERGE)

    async def given_back() -> bool:
        return await world.sold() == before + 3 * 250

    await wait_until(given_back, what="the cards of seventeen", timeout_s=60, every_s=0.5)


async def test_the_kernel_holds_the_quota_and_a_resize_changes_it_in_place(world: World) -> None:
    """250 of 1000 CPU are 25 of each 100 ms; a resize of the running pod to 600 needs no new container."""
    asked, pod = next(
        (name, pod) for name, pod in (await world.pods()).items() if name.startswith("web-") and lives(pod)
    )
    assert quota_us(world.bed, pod) == 25_000
    resources = {"requests": {"cpu": "30m"}, "limits": {"cpu": "600m"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    path = f"/api/v1/namespaces/{TEAM}/pods/{pod['metadata']['name']}/resize"
    answer = await world.bed.api("PATCH", path, patch, content_type="application/strategic-merge-patch+json")
    assert answer.status == 200, answer.body

    async def changed() -> bool:
        return quota_us(world.bed, pod) == 60_000

    await wait_until(changed, what="a quota of 60 ms", timeout_s=20)
    assert containers((await world.pods())[asked]) == containers(pod)


async def test_killed_services_lose_nothing(world: World) -> None:
    """Reconcilers and schedulers are killed while requests come in: each runs, none runs twice."""
    names = [f"storm-{number}" for number in range(6)]

    async def storm() -> None:
        for part in ("reconciler", "scheduler", "reconciler"):
            await world.kill(part)
            await asyncio.sleep(0.5)

    async def ask() -> None:
        async with tenant(world.bed, TEAM) as team:
            for name in names:
                await team.publish(TEAM, request(name))
                await asyncio.sleep(0.2)

    await asyncio.gather(storm(), ask())

    await world.run(names)
    await wait_ready(world.bed)
    await adds_up(world)


async def test_a_rolling_update_goes_round_a_cordoned_node_and_who_is_killed_is_replaced(world: World) -> None:
    """Three replicas change their template while one node takes nobody: all end on the other, each on its share."""
    full, roomy = await world.by_room()
    path = f"/apis/apps/v1/namespaces/{TEAM}/deployments/web"
    async with world.cordoned(full):
        template = {"metadata": {"annotations": {"gpubus.dev/share-milli": "300"}}}
        await world.bed.api("PATCH", path, {"spec": {"template": template}}, content_type=MERGE)
        await world.rolled("web", 3)
        found = [pod for name, pod in (await world.pods()).items() if name.startswith("web-") and lives(pod)]
        assert {pod["spec"]["nodeName"] for pod in found} == {roomy}
        assert {pod["metadata"]["annotations"]["gpubus.dev/share-milli"] for pod in found} == {"300"}
    pods = [pod["metadata"]["name"] for pod in (await world.pods()).values() if lives(pod)]
    for name in random.sample(pods, 5):
        grace = {"gracePeriodSeconds": random.choice((0, 1))}
        await world.bed.api("DELETE", f"/api/v1/namespaces/{TEAM}/pods/{name}", query=grace)
    await world.rolled("web", 3)
    await adds_up(world)


async def test_a_kubelet_that_is_killed_and_back_changes_nothing(world: World) -> None:
    """No container of its node ends, nothing is released; and the node takes pods as before."""
    full, roomy = await world.by_room()
    before, sold = await world.lives(), await world.sold()
    world.started.append(restart_kubelet(world.bed, roomy))
    async with world.cordoned(full):
        placed = await world.publish("after-the-kubelet")
    assert placed["after-the-kubelet"]["node"] == roomy
    assert before.items() <= (await world.lives()).items()
    assert await world.sold() == sold + 500
    await adds_up(world)


async def test_an_upgrade_under_load_loses_nothing(world: World) -> None:
    """`helm upgrade` that replaces every scheduler and reconciler, two of each, while requests come in all the time."""
    names: list[str] = []
    over = asyncio.Event()

    async def load() -> None:
        async with tenant(world.bed, TEAM) as team:
            while not over.is_set() and len(names) < 12:
                names.append(f"meanwhile-{len(names)}")
                await team.publish(TEAM, request(names[-1], 50))
                await asyncio.sleep(1.0)

    async def upgrade() -> None:
        try:
            await install(world.bed, upgraded(world), wait_s=90)
        finally:
            over.set()

    before = await world.lives()
    await asyncio.gather(load(), upgrade())
    await wait_ready(world.bed)
    await world.run(names)
    assert before.items() <= (await world.lives()).items(), "no pod of a tenant was touched"
    await adds_up(world)
    assert "adds up" in await audit(world.bed)


def upgraded(world: World) -> dict[str, Any]:
    """Two of each, and another setting in all of them, so that every pod of theirs is replaced."""
    env = {"GPUBUS_HEALTH__MAX_LOOP_LAG_S": "3"}
    changed = {part: {**VALUES[part], "replicas": 2, "env": env} for part in ("scheduler", "reconciler")}
    return {**VALUES, **changed, "tracing": {"otlpEndpoint": world.jaeger.otlp_url}}


async def test_the_bus_is_lost_with_all_its_data_and_rebuilt_from_the_pods(world: World) -> None:
    """The server's volume goes with its pod: nothing that runs is touched, and no card is sold twice afterwards."""
    before = await world.lives()
    await world.kill("nats")
    await wait_ready(world.bed)
    await adds_up(world)
    assert await world.lives() == before
    await world.publish("after-the-loss")
    await adds_up(world)


async def test_the_audit_in_a_pod_of_its_own_agrees(world: World) -> None:
    """`gpubus audit` as an operator would run it: a pod with the operator's service account."""
    assert "adds up" in await audit(world.bed)


THREE = {**VALUES["nats"], "replicas": 3, "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}


async def test_uninstalling_leaves_the_tenants_pods_and_installing_again_adopts_them(world: World) -> None:
    """What tenants run is theirs: gpubus may go and come back under it, this time with a bus of three servers.

    They speak TLS with each other, sync every write, and one of them may go: nobody notices.
    """
    before = await world.lives()
    await world.bed.helm("uninstall", "gpubus", "-n", NAMESPACE, "--wait", "--timeout", "60s")
    assert await world.lives() == before
    await install(world.bed, {**VALUES, "nats": THREE})
    await wait_ready(world.bed)
    await adds_up(world)
    assert await world.lives() == before
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/gpubus-nats-2"
    await world.bed.api("DELETE", path, query={"gracePeriodSeconds": 0})
    await world.publish("without-the-third")
    await wait_ready(world.bed)
    await adds_up(world)
