"""Pods of anybody with `schedulerName: gpubus`, on real servers: our policies in force, the chart's rights, no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from reconciler.foreign import name_for
from tests.servers.cluster_line import ClusterWorld, cluster_line, condition, nodes_ready, pod, running
from tests.servers.control_plane import ControlPlane
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]

HALF = {"gpubus.dev/share-milli": "500"}
WHOLE = {"gpubus.dev/share-milli": "1000"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(own_control_plane: ControlPlane) -> AsyncIterator[ClusterWorld]:
    """One node with two cards."""
    async with NatsServer() as nats, cluster_line(own_control_plane, nats) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def world(line: ClusterWorld) -> AsyncIterator[ClusterWorld]:
    """And nothing left of each test."""
    yield line
    for found in await line.pods():
        await line.delete(found["metadata"]["name"])
    await line.sold(0)
    for found in await line.pods():
        await line.gone(found["metadata"]["name"])


def reason(found: dict[str, Any]) -> tuple[str, str]:
    return condition(found).get("status", ""), condition(found).get("reason", "")


async def test_it_runs_on_the_slice_that_it_asked_for(world: ClusterWorld) -> None:
    """Bound on that very pod, in one write with what was decided; counted; released when it is gone."""
    made = await world.create(pod("train", HALF))
    bound = await world.until("train", running)

    annotations = bound["metadata"]["annotations"]
    keys = {f"gpubus.dev/{key}" for key in ("epoch", "sequence", "nonce", "uid", "spec", "external")}
    assert bound["metadata"]["uid"] == made["metadata"]["uid"]
    assert bound["spec"]["nodeName"] == world.node
    assert annotations["gpubus.dev/shares"].startswith(f"{annotations['gpubus.dev/cards']}=500:")
    assert keys <= set(annotations)
    await world.sold(500)

    await world.delete("train")
    await world.sold(0)


@pytest.mark.parametrize(
    ("name", "annotations", "limits", "milli"),
    [
        ("kai", {"gpu-fraction": "0.25"}, {}, 250),
        ("hami", {}, {"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}, 300),
        ("gpushare", {}, {"aliyun.com/gpu-mem": "3"}, 100),
        ("two-cards", {**HALF, "gpubus.dev/card-count": "2"}, {}, 1000),
        ("no-card", {}, {}, 0),
    ],
)
async def test_it_may_ask_in_the_words_of_others(
    world: ClusterWorld, name: str, annotations: dict[str, str], limits: dict[str, str], milli: int
) -> None:
    await world.create(pod(name, annotations, resources={"limits": limits} if limits else {}))
    await world.until(name, running)

    await world.sold(milli)


async def test_who_must_wait_is_told_why_with_numbers(world: ClusterWorld) -> None:
    """A condition, an Event, and a place as soon as there is one."""
    for name in ("one", "two"):
        await world.create(pod(name, WHOLE))
        await world.until(name, running)
    await world.create(pod("three", HALF))
    waits = await world.until("three", lambda found: reason(found) == ("False", "Unschedulable"))
    assert "500" in condition(waits)["message"]

    async def told() -> bool:
        return any(e["reason"] == "Unschedulable" and "500" in e["note"] for e in await world.events("three"))

    await wait_until(told, what="an Event of the pod that waits")
    await world.delete("one")
    await world.until("three", running)


async def test_a_misspelt_key_is_refused_with_the_nearest(world: ClusterWorld) -> None:
    """By the policy, at creation; where no policy is, by the reconciler, on the pod: see the unit tests."""
    answer = await world.call("POST", world.path, pod("typo", {"gpubus.dev/share-mili": "500"}))

    assert answer.status == 403
    assert "share-milli" in answer.body["message"]


async def test_a_value_out_of_bounds_is_refused_on_the_pod(world: ClusterWorld) -> None:
    """The policy knows keys, not values."""
    await world.create(pod("much", {"gpubus.dev/share-milli": "5000", "gpu-fraction": "0.5"}))
    refused = await world.until("much", lambda found: reason(found) == ("False", "Refused"))

    assert "gpubus.dev/share-milli" in condition(refused)["message"]
    assert "1000" in condition(refused)["message"]
    assert await world.used_milli() == 0


async def test_a_pod_made_again_under_its_name_is_another_request(world: ClusterWorld) -> None:
    """A StatefulSet does so: the first is released on evidence, the second gets a place of its own."""
    await world.create(pod("web-0", HALF))
    first = await world.until("web-0", running)
    await world.delete("web-0")
    await world.gone("web-0")
    await world.create(pod("web-0", HALF))
    second = await world.until("web-0", running)

    uids = [found["metadata"]["annotations"]["gpubus.dev/uid"] for found in (first, second)]
    assert uids[0] != uids[1]
    await world.sold(500)


async def test_a_stateful_set_whose_pod_dies_again_and_again_has_one_pod_on_one_slice(world: ClusterWorld) -> None:
    """Each life is deleted a little later than the one before, so some die with their binding on its way."""
    template = {"metadata": {"labels": {"app": "db"}, "annotations": HALF}, "spec": pod("db", HALF)["spec"]}
    template["spec"]["terminationGracePeriodSeconds"] = 1
    body = {
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template,
        },
    }
    path = f"/apis/apps/v1/namespaces/{world.namespace}/statefulsets"
    assert (await world.plane.api("POST", path, body)).status == 201
    seen: set[str] = set()
    try:
        for life in range(8):
            found = await world.until("db-0", lambda one: one and one["metadata"]["uid"] not in seen)
            seen.add(found["metadata"]["uid"])
            await asyncio.sleep(0.03 * life)
            await world.delete("db-0")
        last = await world.until("db-0", lambda one: running(one) and one["metadata"]["uid"] not in seen)

        assert last["metadata"]["annotations"]["gpubus.dev/shares"].partition("=")[2].startswith("500:")
        await world.sold(500)

        async def one_lives() -> bool:
            phases = [r["phase"] for r in await world.requests() if r["name"].startswith("db-0-")]
            return sorted(phase for phase in phases if phase not in ("ended", "withdrawn")) == ["running"]

        await wait_until(one_lives, what="of its requests one lives, and runs", timeout_s=40.0, every_s=0.1)
    finally:
        await world.plane.api("DELETE", f"{path}/db", query={"propagationPolicy": "Background"})
        await world.gone("db-0")


async def test_a_pod_that_goes_while_it_waits_takes_its_request_along(world: ClusterWorld) -> None:
    await world.create(pod("huge", {"gpubus.dev/memory-mib": "500000"}))
    await world.until("huge", lambda found: reason(found) == ("False", "Unschedulable"))
    await world.delete("huge")

    async def withdrawn() -> bool:
        mine = [r for r in await world.requests() if r["name"].startswith("huge-")]
        return [r["phase"] for r in mine] == ["withdrawn"]

    await wait_until(withdrawn, what="the request of the pod is withdrawn")


async def test_a_made_up_request_binds_nothing(world: ClusterWorld) -> None:
    """Somebody publishes that a pod asks for less than it does: it is refused, and the pod gets what it asks for."""
    made = await world.create(pod("mine", HALF, schedulingGates=[{"name": "example.com/later"}]))
    fake = {
        "type": "pod.request.v1",
        "name": "fake",
        "pod": {"image": "x", "cpu_milli": 1, "memory_mib": 1},
        "gpu": {"share_milli": 1},
        "external": {"name": "mine", "uid": made["metadata"]["uid"]},
    }
    await world.client.publish(world.namespace, fake)
    released = await world.client.until(world.namespace, "fake", "released", "ended")
    assert "made-up" in released["text"]

    opened = [{"op": "remove", "path": "/spec/schedulingGates"}]
    await world.plane.api("PATCH", f"{world.path}/mine", opened, content_type="application/json-patch+json")
    await world.until("mine", running)
    await world.sold(500)


async def test_one_under_the_right_name_binds_nothing_either(world: ClusterWorld) -> None:
    """It is compared with the pod right before the binding, and the pod is asked for anew."""
    gated = pod("mine", HALF, schedulingGates=[{"name": "example.com/later"}])
    await world.line.reconciler.kill()
    made = await world.create(gated)
    uid = made["metadata"]["uid"]
    fake = {
        "type": "pod.request.v1",
        "name": name_for("mine", uid),
        "pod": {"image": "external", "cpu_milli": 10, "memory_mib": 16, "labels": {"app": "mine"}},
        "gpu": {"share_milli": 1},
        "external": {"name": "mine", "uid": uid},
    }
    await world.client.publish(world.namespace, fake)
    await world.client.until(world.namespace, name_for("mine", uid), "placed")
    world.line.reconciler.launch()
    opened = [{"op": "remove", "path": "/spec/schedulingGates"}]
    await world.plane.api("PATCH", f"{world.path}/mine", opened, content_type="application/json-patch+json")

    bound = await world.until("mine", running)
    assert "=500:" in bound["metadata"]["annotations"]["gpubus.dev/shares"]
    await world.sold(500)


async def test_a_deployment_of_twelve_fills_the_cards_exactly(world: ClusterWorld) -> None:
    """Made by the real controllers; a kill of the reconciler in the middle makes no second request of any pod."""
    labels = {"app": "many"}
    template = pod("many", {"gpubus.dev/share-milli": "150"})
    body = {
        "metadata": {"name": "many"},
        "spec": {
            "replicas": 12,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": template["metadata"]["annotations"]},
                "spec": template["spec"],
            },
        },
    }
    path = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    await world.plane.api("POST", path, body)
    try:
        await world.line.reconciler.kill()
        world.line.reconciler.launch()

        async def all_run() -> bool:
            return sum(running(found) for found in await world.pods()) == 12

        await wait_until(all_run, what="twelve pods run", timeout_s=60.0, every_s=0.2)
        await world.sold(12 * 150)
        requests = [r for r in await world.requests() if r["name"].startswith("many-")]
        assert len(requests) == 12
    finally:
        await world.plane.api("DELETE", f"{path}/many", query={"propagationPolicy": "Foreground"})

        async def none_left() -> bool:
            return await world.pods() == []

        await wait_until(none_left, what="the pods of the deployment are gone", timeout_s=60.0, every_s=0.2)


async def test_losing_the_whole_bus_loses_no_pod(world: ClusterWorld) -> None:
    """The ledger is rebuilt from the pods, these ones too; the same card stays with the same pod."""
    await world.create(pod("keep", HALF))
    before = await world.until("keep", running)
    await world.nats.kill()
    await world.nats.wipe()
    await world.nats.restart()
    for process in world.line.processes:
        await process.stop(grace_s=6.0)
        process.launch()
    await nodes_ready(world.client, 2)

    await world.sold(500)
    await world.create(pod("next", HALF))
    await world.until("next", running)
    after = await world.get("keep")
    for key in ("gpubus.dev/cards", "gpubus.dev/uid"):
        assert after["metadata"]["annotations"][key] == before["metadata"]["annotations"][key]
    await world.sold(1000)


async def test_a_quota_that_refuses_a_pod_of_ours_is_told(world: ClusterWorld) -> None:
    """`explain` and the events of a request say what Kubernetes says, while it goes on trying."""
    path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    await world.plane.api("POST", path, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    request = {"type": "pod.request.v1", "name": "capped", "pod": {"image": "busybox"}, "gpu": {"share_milli": 100}}
    await world.client.publish(world.namespace, request)
    waiting = await world.client.until(world.namespace, "capped", "waiting")
    assert "exceeded quota" in waiting["text"]
    explained = await world.client.ask(
        f"gpubus.v1.ask.explain.{world.namespace}", {"type": "ask.explain.v1", "name": "capped"}
    )
    assert "exceeded quota" in explained["reasons"][0]["text"]

    await world.plane.api("DELETE", f"{path}/none")
    await world.client.until(world.namespace, "capped", "running")
