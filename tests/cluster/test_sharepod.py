"""SharePods on real servers: replicas on shares of cards, scaled by `scale`, with everything said in their status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.servers.cluster_line import ClusterWorld, cluster_line, held, running
from tests.servers.control_plane import ControlPlane
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]

ONE = {"containers": [{"name": "c"}]}
MERGE = "application/merge-patch+json"


class Shares:
    """SharePods of the tenant."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.path = f"/apis/gpubus.dev/v1alpha1/namespaces/{world.namespace}/sharepods"

    async def create(self, name: str, **spec: Any) -> Any:
        """The answer: status and body."""
        container = {"name": "serve", "image": "busybox", "resources": {"requests": {"cpu": "10m"}}}
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "hostname": "h"}}
        body = {"apiVersion": "gpubus.dev/v1alpha1", "kind": "SharePod", "metadata": {"name": name}}
        return await self.world.call("POST", self.path, {**body, "spec": {"template": template, **spec}})

    async def get(self, name: str) -> dict[str, Any]:
        answer = await self.world.call("GET", f"{self.path}/{name}")
        return answer.body if answer.status == 200 else {}

    async def until(
        self, name: str, holds: Callable[[dict[str, Any]], object], *, timeout_s: float = 40.0
    ) -> dict[str, Any]:
        """The SharePod, once this holds of it."""
        return await held(lambda: self.get(name), holds, what=name, timeout_s=timeout_s)

    async def scale(self, name: str, replicas: int) -> None:
        """As `kubectl scale` does."""
        patch = {"spec": {"replicas": replicas}}
        answer = await self.world.call("PATCH", f"{self.path}/{name}/scale", patch, content_type=MERGE)
        assert answer.status == 200, answer.body


def ready(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda found: found.get("status", {}).get("ready") == text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(own_control_plane: ControlPlane) -> AsyncIterator[ClusterWorld]:
    async with NatsServer() as nats, cluster_line(own_control_plane, nats) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def shares(line: ClusterWorld) -> AsyncIterator[Shares]:
    """And none left after each test."""
    made = Shares(line)
    yield made
    listed = await line.call("GET", made.path)
    for found in listed.body["items"]:
        await line.call("DELETE", f"{made.path}/{found['metadata']['name']}")
    await line.sold(0)

    async def none_left() -> bool:
        return await line.pods() == []

    await wait_until(none_left, what="the pods of the SharePods are gone", timeout_s=40.0)


async def test_replicas_run_and_its_status_says_where(shares: Shares) -> None:
    """Owned, so that Kubernetes takes them along; with every field of the template's spec."""
    answer = await shares.create("model", replicas=2, share={"shareMilli": 400})
    assert answer.status == 201, answer.body
    found = await shares.until("model", ready("2/2"))

    status, pods = found["status"], await shares.world.pods()
    assert (status["replicas"], status["readyReplicas"], status["reason"]) == (2, 2, "")
    assert status["observedGeneration"] == found["metadata"]["generation"] == 1
    conditions = [(c["type"], c["status"], c["observedGeneration"]) for c in status["conditions"]]
    assert conditions == [("Ready", "True", 1), ("Updated", "True", 1)]
    cards = sorted({pod["metadata"]["annotations"]["gpubus.dev/cards"] for pod in pods})
    assert status["card"].partition(" +")[0] in cards
    assert all(pod["spec"]["hostname"] == "h" for pod in pods)
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods} == {found["metadata"]["uid"]}
    await shares.world.sold(800)

    await shares.world.call("DELETE", f"{shares.path}/model")
    await shares.world.sold(0)


async def test_scale_goes_up_and_down_and_to_none(shares: Shares) -> None:
    """Through the scale subresource; its selector finds the pods."""
    await shares.create("web", replicas=1, share={"shareMilli": 100})
    await shares.until("web", ready("1/1"))
    await shares.scale("web", 3)
    await shares.until("web", ready("3/3"))
    scale = await shares.world.call("GET", f"{shares.path}/web/scale")
    assert scale.body["status"] == {"replicas": 3, "selector": "gpubus.dev/sharepod=web"}
    selected = await shares.world.plane.api(
        "GET", shares.world.path, query={"labelSelector": scale.body["status"]["selector"]}
    )
    assert len(selected.body["items"]) == 3

    await shares.scale("web", 1)
    await shares.until("web", ready("1/1"))
    await shares.world.sold(100)
    await shares.scale("web", 0)
    found = await shares.until("web", ready("0/0"))
    assert found["metadata"]["generation"] == found["status"]["observedGeneration"] == 4
    await shares.world.sold(0)


def updated(found: dict[str, Any]) -> bool:
    """All of its pods are of what the spec says now."""
    status = found.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
    seen = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
    return seen and conditions == {"Ready": "True", "Updated": "True"}


def stays(pod: dict[str, Any]) -> bool:
    """It runs, and nobody has deleted it."""
    return running(pod) and "deletionTimestamp" not in pod["metadata"]


async def test_another_share_replaces_the_pods_one_by_one(shares: Shares) -> None:
    """A successor fits only where a pod has gone; of the two one is there all the time."""
    await shares.create("model", replicas=2, share={"shareMilli": 600})
    await shares.until("model", updated)
    before = {pod["metadata"]["uid"] for pod in await shares.world.pods()}
    patch = {"spec": {"share": {"shareMilli": 700}}}
    assert (await shares.world.call("PATCH", f"{shares.path}/model", patch, content_type=MERGE)).status == 200
    fewest = 2

    async def done() -> bool:
        nonlocal fewest
        fewest = min(fewest, sum(map(stays, await shares.world.pods())))
        return updated(await shares.get("model"))

    await wait_until(done, what="both are replaced", timeout_s=60.0, every_s=0.05)
    assert fewest == 1
    now: set[str] = set()

    async def two_stay() -> bool:
        now.clear()
        now.update(pod["metadata"]["uid"] for pod in await shares.world.pods() if stays(pod))
        return len(now) == 2

    await wait_until(two_stay, what="two successors stay", timeout_s=60.0)
    assert not now & before
    await shares.world.sold(1400)


async def test_a_template_that_never_runs_takes_one_pod_and_stops(shares: Shares) -> None:
    """And taken back, the broken one goes first."""
    await shares.create("keep", replicas=2, share={"shareMilli": 100})
    await shares.until("keep", updated)
    gated = {"spec": {"template": {"spec": {"schedulingGates": [{"name": "example.com/never"}]}}}}
    assert (await shares.world.call("PATCH", f"{shares.path}/keep", gated, content_type=MERGE)).status == 200
    found = await shares.until("keep", lambda f: f.get("status", {}).get("updatedReplicas") == 1)
    assert (found["status"]["readyReplicas"], found["status"]["replicas"]) == (1, 2)
    [survivor] = [pod["metadata"]["uid"] for pod in await shares.world.pods() if stays(pod)]

    back = {"spec": {"template": {"spec": {"schedulingGates": None}}}}
    await shares.world.call("PATCH", f"{shares.path}/keep", back, content_type=MERGE)
    await shares.until("keep", updated)
    assert survivor in {pod["metadata"]["uid"] for pod in await shares.world.pods() if stays(pod)}


async def test_a_horizontal_autoscaler_can_scale_it(shares: Shares) -> None:
    """Kubernetes' own controller finds it through `scale`, and brings it to its least number of replicas."""
    await shares.create("web", replicas=1, share={"shareMilli": 100})
    path = f"/apis/autoscaling/v2/namespaces/{shares.world.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "gpubus.dev/v1alpha1", "kind": "SharePod", "name": "web"}
    body = {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3}}
    assert (await shares.world.plane.api("POST", path, body)).status == 201
    try:
        # A controller learns of a new kind of object within half a minute, and looks every quarter of one.
        await shares.until("web", ready("2/2"), timeout_s=90.0)
    finally:
        await shares.world.plane.api("DELETE", f"{path}/web")


async def test_a_pod_that_is_deleted_is_made_again(shares: Shares) -> None:
    await shares.create("keep", share={"shareMilli": 200})
    await shares.until("keep", ready("1/1"))
    [first] = await shares.world.pods()
    await shares.world.delete(first["metadata"]["name"])

    async def another() -> bool:
        pods = await shares.world.pods()
        return len(pods) == 1 and running(pods[0]) and pods[0]["metadata"]["uid"] != first["metadata"]["uid"]

    await wait_until(another, what="another pod runs", timeout_s=40.0)
    await shares.world.sold(200)


async def test_without_cards_it_takes_none(shares: Shares) -> None:
    await shares.create("cpu", share={"cards": 0})
    await shares.until("cpu", ready("1/1"))

    assert await shares.world.used_milli() == 0


async def test_why_it_waits_stands_in_its_status(shares: Shares) -> None:
    """With the scheduler's numbers."""
    await shares.create("huge", share={"memoryMib": 500_000})
    found = await shares.until("huge", lambda f: "500000" in f.get("status", {}).get("reason", ""))

    condition = found["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "Waiting")


async def test_what_the_policies_refuse_of_its_template_is_said(shares: Shares) -> None:
    """Making pods for somebody is no way around what somebody may not do."""
    container = {"name": "c", "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    answer = await shares.create("sly", template={"spec": {"containers": [container]}})
    assert answer.status == 201
    found = await shares.until("sly", lambda f: "set by the platform" in f.get("status", {}).get("reason", ""))

    assert found["status"]["conditions"][0]["reason"] == "Refused"
    assert await shares.world.pods() == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"share": {"shareMilli": 0}}, "spec.share.shareMilli"),
        ({"share": {"shareMilli": 1001}}, "spec.share.shareMilli"),
        ({"share": {"cards": 65}}, "spec.share.cards"),
        ({"share": {"memoryMib": 1, "memoryMilli": 1}}, "spec.share"),
        ({"share": {"cards": 0, "memoryMib": 5}}, "spec.share"),
        ({"update": {"maxUnavailable": 0}}, "spec.update"),
        ({"update": {"maxSurge": -1}}, "spec.update.maxSurge"),
        ({"template": {}}, "spec.template.spec"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
        ({"template": {"spec": {**ONE, "nodeName": "n"}}}, "spec.template.spec"),
        (
            {"template": {"metadata": {"annotations": {"gpubus.dev/cards": "x"}}, "spec": ONE}},
            "spec.template.metadata.annotations",
        ),
        ({"template": {"spec": {**ONE, "schedulerName": "x"}}}, "spec.template.spec"),
    ],
)
async def test_nonsense_is_refused_by_field(shares: Shares, spec: dict[str, Any], field: str) -> None:
    """By the schema and its rules, before anybody of us sees it."""
    answer = await shares.create("bad", **spec)

    assert answer.status == 422
    assert field in [cause.get("field") for cause in answer.body["details"]["causes"]]
