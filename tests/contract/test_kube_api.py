"""One suite for the embedded Kubernetes-shaped API and for a real API server with hollow kubelets.

Whatever a test here claims holds for both, so code that is tested on the fast one works on the real one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from gpubus.local.kube import LocalKube, Machine, Timings
from tests.contract.kube_rig import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Backend,
    Rig,
    binding,
    causes,
    condition,
    pod,
    refusal,
    unique,
)
from tests.servers.process import wait_until

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from tests.servers.control_plane import ControlPlane, HollowNode

GPU = {"nvidia.com/gpu": 8}
MICRO = "2026-11-30T14:25:12.899271Z"


class Embedded:
    """The embedded server of one test."""

    name = "embedded"
    token = "secret"
    tls: ssl.SSLContext | None = None
    node = "gpu-1"

    def __init__(self, kube: LocalKube) -> None:
        self.kube = kube

    @property
    def url(self) -> str:
        return self.kube.url

    async def restart(self) -> None:
        await self.kube.restart()

    def freeze(self) -> None:
        self.kube.freeze()

    def thaw(self) -> None:
        self.kube.thaw()

    async def start_node(self, name: str) -> None:
        self.kube.add_node(Machine(name=name, cpu_milli=8000, extended=GPU))

    async def kill_node(self, name: str) -> None:
        self.kube.kill_node(name)

    async def stop_node(self, name: str) -> None:
        pass


class Real:
    """The real servers of the session, and one hollow node of this module."""

    name = "real"

    def __init__(self, plane: ControlPlane, node: HollowNode) -> None:
        self.plane, self.node = plane, node.name
        self.url, self.token, self.tls = plane.url, plane.admin_token, plane.tls
        self._more: dict[str, HollowNode] = {}

    async def restart(self) -> None:
        await self.plane.restart_apiserver()

    def freeze(self) -> None:
        self.plane.freeze()

    def thaw(self) -> None:
        self.plane.thaw()

    async def start_node(self, name: str) -> None:
        from tests.servers.control_plane import HollowNode

        self._more[name] = HollowNode(self.plane, name)
        await self._more[name].start()

    async def kill_node(self, name: str) -> None:
        await self._more[name].kill()

    async def stop_node(self, name: str) -> None:
        await self._more.pop(name).close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hollow_node(control_plane: ControlPlane) -> AsyncIterator[HollowNode]:
    from tests.servers.control_plane import HollowNode

    async with HollowNode(control_plane, unique("gpu")) as node:
        yield node


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """The API under test, with a namespace of this test's own."""
    if request.param == "real":
        plane = request.getfixturevalue("control_plane")
        backend: Backend = Real(plane, request.getfixturevalue("hollow_node"))
        yield Rig(backend, await plane.namespace())
        return
    timings = Timings(start_s=0.02, stop_s=0.05, node_grace_s=0.3)
    async with LocalKube(token=Embedded.token, timings=timings) as kube:
        kube.add_node(Machine(name=Embedded.node, cpu_milli=8000, extended=GPU))
        rig = Rig(Embedded(kube), unique("test"))
        await rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": rig.namespace}})
        yield rig


# --- the server ---------------------------------------------------------------------------------------------


async def test_health_version_and_unknown_paths(rig: Rig) -> None:
    """Claim: /readyz and /version answer, unknown resources and methods are told apart."""
    ready, version = await rig.call("GET", "/readyz"), await rig.call("GET", "/version")
    assert (ready.status, ready.body) == (200, "ok")
    assert (version.body["major"], version.body["minor"]) == ("1", "37")
    assert refusal(await rig.call("GET", "/api/v1/nope")) == (404, "NotFound", "")
    assert refusal(await rig.call("PUT", rig.pods, {})) == (405, "MethodNotAllowed", "")


async def test_a_wrong_token_is_unauthorized(rig: Rig) -> None:
    """Claim: 401 with a Status, and nothing is served."""
    assert refusal(await rig.call("GET", rig.pods, token="wrong")) == (401, "Unauthorized", "")


async def test_a_frozen_server_accepts_and_stays_silent(rig: Rig) -> None:
    """Claim: only a timeout of the client ends a call to a frozen server; after the thaw it serves again."""
    rig.backend.freeze()
    try:
        assert (await rig.call("GET", rig.pods, timeout_s=0.5)).status == 0
    finally:
        rig.backend.thaw()
    assert (await rig.call("GET", rig.pods)).status == 200


# --- creation -----------------------------------------------------------------------------------------------


async def test_a_new_pod_is_pending_with_the_servers_fields(rig: Rig) -> None:
    """Claim: uid, version, creation time, defaults and phase are the server's; what a client sends in them is ignored."""
    sent = pod("a", limits={"cpu": "100m"})
    sent["metadata"] |= {"uid": "mine"}
    sent["status"] = {"phase": "Running"}
    made = (await rig.call("POST", rig.pods, sent)).body
    assert made["metadata"]["namespace"] == rig.namespace
    assert made["metadata"]["uid"] != "mine"
    assert len(made["metadata"]["uid"]) == 36
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert made["metadata"]["creationTimestamp"].endswith("Z")
    assert made["metadata"]["generation"] == 1
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m"}
    tolerated = {(t["key"], t["tolerationSeconds"]) for t in made["spec"]["tolerations"]}
    assert tolerated == {("node.kubernetes.io/not-ready", 300), ("node.kubernetes.io/unreachable", 300)}


async def test_a_second_creation_is_already_exists(rig: Rig) -> None:
    """Claim: 409 AlreadyExists, told apart from 409 Conflict by its reason."""
    await rig.create_pod("a")
    assert refusal(await rig.call("POST", rig.pods, pod("a"))) == (409, "AlreadyExists", "pods")


async def test_a_missing_namespace_is_not_found_as_a_namespace(rig: Rig) -> None:
    """Claim: 404 whose details say that the namespace is missing, not the pod."""
    answer = await rig.call("POST", "/api/v1/namespaces/none/pods", pod("a"))
    assert refusal(answer) == (404, "NotFound", "namespaces")
    assert answer.body["details"]["name"] == "none"


async def test_a_dry_run_stores_nothing(rig: Rig) -> None:
    """Claim: the answer is that of a creation, and the pod is not there."""
    assert (await rig.call("POST", rig.pods, pod("a"), query={"dryRun": "All"})).status == 201
    assert (await rig.call("GET", f"{rig.pods}/a")).status == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param(pod("UPPER"), "metadata.name", id="name"),
        pytest.param({"metadata": {"name": "a"}, "spec": {"containers": []}}, "spec.containers", id="containers"),
        pytest.param(pod("a", labels={"bad key!": "x"}), "metadata.labels", id="label key"),
        pytest.param(pod("a", labels={"key": "bad value!"}), "metadata.labels", id="label value"),
        pytest.param(pod("a", annotations={"a/b/c": "x"}), "metadata.annotations", id="annotation key"),
        pytest.param(pod("a", annotations={"a": "x" * 270_000}), "metadata.annotations", id="annotation size"),
        pytest.param(
            pod("a", limits={"nvidia.com/gpu": "500m"}),
            "spec.containers[0].resources.limits[nvidia.com/gpu]",
            id="half a device",
        ),
        pytest.param(
            pod("a", nodeName="n", schedulingGates=[{"name": "x.y/z"}]), "spec.nodeName", id="gated and placed"
        ),
    ],
)
async def test_an_invalid_pod_names_the_field(rig: Rig, body: dict[str, Any], field: str) -> None:
    """Claim: 422 Invalid with the field among the causes."""
    answer = await rig.call("POST", rig.pods, body)
    assert refusal(answer) == (422, "Invalid", "Pod")
    assert field in causes(answer)


async def test_a_body_of_the_wrong_kind_or_place_is_a_bad_request(rig: Rig) -> None:
    """Claim: 400 for torn JSON, another kind, another namespace."""
    elsewhere = pod("a")
    elsewhere["metadata"]["namespace"] = "other"
    for body in (b"{torn", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}, elsewhere):
        assert refusal(await rig.call("POST", rig.pods, body))[:2] == (400, "BadRequest")


# --- binding ------------------------------------------------------------------------------------------------


async def test_binding_writes_node_annotations_labels_and_condition_in_one_step(rig: Rig) -> None:
    """Claim: one MODIFIED event shows all four; the answer is a bare Success."""
    made = await rig.create_pod("a", annotations={"kept": "1", "over": "old"}, labels={"kept": "1"})
    async with rig.watch(resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        meta = {"annotations": {"over": "new", "gpubus.dev/cards": "0,1"}, "labels": {"gpubus.dev/pool": "p"}}
        answer = await rig.bind("a", uid=made["metadata"]["uid"], **meta)
        event = await watch.until("MODIFIED", "a")
    assert answer.status == 201
    assert answer.body == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert event.object["spec"]["nodeName"] == rig.backend.node
    assert event.object["metadata"]["annotations"] == {"kept": "1", "over": "new", "gpubus.dev/cards": "0,1"}
    assert event.object["metadata"]["labels"].items() >= {"kept": "1", "gpubus.dev/pool": "p"}.items()
    assert condition(event.object, "PodScheduled")["status"] == "True"
    assert event.object["metadata"]["generation"] == 1


@pytest.mark.parametrize("node", ["", "elsewhere"])
async def test_a_bound_pod_cannot_be_bound_again(rig: Rig, node: str) -> None:
    """Claim: 409 of pods/binding names the node it has, whether the second binding agrees or not."""
    await rig.create_pod("a")
    await rig.bind("a")
    answer = await rig.bind("a", node or None)
    assert refusal(answer) == (409, "Conflict", "pods/binding")
    assert f'is already assigned to node "{rig.backend.node}"' in answer.body["message"]


async def test_a_terminating_pod_cannot_be_bound(rig: Rig) -> None:
    """Claim: 409 of pods/binding, told by its message."""
    await rig.create_pod("a", finalizers=["gpubus.dev/test"])
    await rig.delete_pod("a")
    answer = await rig.bind("a")
    assert refusal(answer) == (409, "Conflict", "pods/binding")
    assert "is being deleted, cannot be assigned to a host" in answer.body["message"]
    await rig.patch_pod("a", {"metadata": {"finalizers": None}})


async def test_a_gated_pod_cannot_be_bound(rig: Rig) -> None:
    """Claim: 409 of pods/binding until the gates are gone."""
    await rig.create_pod("a", schedulingGates=[{"name": "gpubus.dev/wait"}])
    answer = await rig.bind("a")
    assert refusal(answer) == (409, "Conflict", "pods/binding")
    assert "has non-empty .spec.schedulingGates" in answer.body["message"]


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
async def test_a_binding_for_another_incarnation_is_a_conflict_of_the_pod(rig: Rig, precondition: str) -> None:
    """Claim: a wrong uid or a stale version is 409 of `pods` (not of `pods/binding`), and binds nothing."""
    await rig.create_pod("a")
    answer = await rig.bind("a", **{precondition: "1"})
    assert refusal(answer) == (409, "Conflict", "pods")
    assert "Precondition failed" in answer.body["message"]
    assert "nodeName" not in (await rig.get_pod("a"))["spec"]


async def test_a_binding_of_nothing_is_not_found(rig: Rig) -> None:
    """Claim: 404 of the pod, or of the namespace."""
    assert refusal(await rig.bind("none")) == (404, "NotFound", "pods")
    path = "/api/v1/namespaces/none/pods/a/binding"
    assert refusal(await rig.call("POST", path, binding("a", "n"))) == (404, "NotFound", "namespaces")


@pytest.mark.parametrize(
    ("node", "message"), [("", "target.name: Required value"), ("A B", "target.name: Invalid value")]
)
async def test_an_illegal_target_is_a_500_without_a_reason(rig: Rig, node: str, message: str) -> None:
    """Claim: it looks like a server error and is not one: retrying never helps."""
    await rig.create_pod("a")
    answer = await rig.bind("a", node)
    assert refusal(answer) == (500, "", "")
    assert answer.body["message"].startswith(message)


async def test_a_binding_under_another_name_is_a_bad_request(rig: Rig) -> None:
    """Claim: 400 when URL and body name different pods."""
    await rig.create_pod("a")
    answer = await rig.call("POST", f"{rig.pods}/a/binding", binding("b", rig.backend.node))
    assert refusal(answer)[:2] == (400, "BadRequest")


async def test_a_missing_node_is_not_checked(rig: Rig) -> None:
    """Claim: 201, and the pod stays Pending with that node."""
    await rig.create_pod("a")
    assert (await rig.bind("a", "nowhere")).status == 201
    found = await rig.get_pod("a")
    assert (found["spec"]["nodeName"], found["status"]["phase"]) == ("nowhere", "Pending")
    await rig.delete_pod("a", gracePeriodSeconds=0)


async def test_cordon_and_other_schedulers_are_not_checked(rig: Rig) -> None:
    """Claim: a pod of another scheduler bound to a cordoned node runs."""
    node = f"/api/v1/nodes/{rig.backend.node}"
    await rig.create_pod("a", schedulerName="somebody-else")
    await rig.call("PATCH", node, {"spec": {"unschedulable": True}}, content_type=MERGE)
    try:
        assert (await rig.bind("a")).status == 201
        await rig.wait_phase("a", "Running")
    finally:
        await rig.call("PATCH", node, {"spec": {"unschedulable": None}}, content_type=MERGE)


async def test_more_than_the_node_has_is_bound_and_then_failed_by_the_kubelet(rig: Rig) -> None:
    """Claim: 201, then phase Failed with reason OutOf<resource>."""
    await rig.create_pod("a", limits={"nvidia.com/gpu": "9"})
    assert (await rig.bind("a")).status == 201
    failed = await rig.wait_phase("a", "Failed")
    assert failed["status"]["reason"] == "OutOfnvidia.com/gpu"
    assert "requested: 9, used: 0, capacity: 8" in failed["status"]["message"]


async def test_illegal_metadata_passes_the_binding_and_poisons_the_pod(rig: Rig) -> None:
    """Claim: the binding accepts an illegal annotation key; every later update is 422 and the pod never runs."""
    await rig.create_pod("a")
    assert (await rig.bind("a", annotations={"Bad Key!!": "x"})).status == 201
    answer = await rig.patch_pod("a", {"metadata": {"annotations": {"fine": "1"}}})
    assert refusal(answer) == (422, "Invalid", "Pod")
    await asyncio.sleep(0.2)
    assert await rig.phase("a") == "Pending"
    assert (await rig.delete_pod("a", gracePeriodSeconds=0)).status == 200


async def test_one_of_ten_racing_bindings_wins(rig: Rig) -> None:
    """Claim: one 201, nine 409."""
    made = await rig.create_pod("a")
    uid = made["metadata"]["uid"]
    answers = await asyncio.gather(*(rig.bind("a", f"node-{i}", uid=uid) for i in range(10)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 9
    winner = next(i for i, answer in enumerate(answers) if answer.status == 201)
    assert (await rig.get_pod("a"))["spec"]["nodeName"] == f"node-{winner}"
    await rig.delete_pod("a", gracePeriodSeconds=0)


async def test_creation_with_a_node_needs_no_binding(rig: Rig) -> None:
    """Claim: spec.nodeName at creation passes every scheduler by."""
    await rig.create_pod("a", nodeName=rig.backend.node)
    await rig.wait_phase("a", "Running")


# --- life ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [{"command": ["sleep", "1"]}, {"annotations": {"gpubus.dev/simulated-run-s": "1"}}],
    ids=["command", "annotation"],
)
async def test_a_bound_pod_runs_and_ends_when_its_time_is_up(rig: Rig, how: dict[str, Any]) -> None:
    """Claim: Pending, Running, Succeeded; readiness and container state follow, times are in order."""
    made = await rig.create_pod("a", **how)
    async with rig.watch(resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        await rig.bind("a", uid=made["metadata"]["uid"])
        phases: list[str] = []
        while phases[-1:] != ["Succeeded"]:
            event = await watch.next()
            assert event is not None
            status = event.object["status"]
            phases += [status["phase"]] if status["phase"] not in phases else []
            if status["phase"] == "Running" and condition(event.object, "Ready").get("status") == "True":
                assert "running" in status["containerStatuses"][0]["state"]
    assert phases == ["Pending", "Running", "Succeeded"]
    end = status["containerStatuses"][0]["state"]["terminated"]
    assert end["exitCode"] == 0
    assert end["startedAt"] <= end["finishedAt"]
    assert condition(event.object, "Ready")["status"] == "False"
    assert status["startTime"]


async def test_a_running_pod_is_stopped_by_its_kubelet(rig: Rig) -> None:
    """Claim: the deletion of a running pod is first announced, then completed: MODIFIED with a deletion timestamp, DELETED."""
    await rig.create_pod("a")
    await rig.bind("a")
    await rig.wait_phase("a", "Running")
    async with rig.watch(resourceVersion=await rig.version()) as watch:
        answer = await rig.delete_pod("a")
        first = await watch.until("MODIFIED", "a")
        last = await watch.until("DELETED", "a")
    assert answer.status == 200
    assert answer.body["kind"] == "Pod"
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert first.object["metadata"]["deletionTimestamp"] == answer.body["metadata"]["deletionTimestamp"]
    assert first.object["status"]["phase"] == "Running"
    assert last.version > first.version
    assert (await rig.call("GET", f"{rig.pods}/a")).status == 404


async def test_eight_small_pods_share_a_node(rig: Rig) -> None:
    """Claim: a node takes pods up to what it has."""
    names = [f"p{i}" for i in range(8)]
    for name in names:
        await rig.create_pod(name, limits={"cpu": "500m", "nvidia.com/gpu": "1"})
        await rig.bind(name)
    for name in names:
        await rig.wait_phase(name, "Running")
    await rig.create_pod("last", limits={"nvidia.com/gpu": "1"})
    await rig.bind("last")
    failed = await rig.wait_phase("last", "Failed")
    assert failed["status"]["reason"] == "OutOfnvidia.com/gpu"
    for name in names:
        await rig.delete_pod(name, gracePeriodSeconds=0)


@pytest.mark.slow
async def test_a_lost_node_keeps_its_pods_running(rig: Rig) -> None:
    """Claim: Ready turns Unknown and the node is tainted, the pods stay Running but not Ready; only force removes them."""
    name = unique("lost")
    await rig.backend.start_node(name)
    try:
        await rig.create_pod("a")
        await rig.bind("a", name)
        await rig.wait_phase("a", "Running")
        await rig.backend.kill_node(name)

        async def lost() -> bool:
            ready = condition(await rig.get_pod("a"), "Ready")["status"]
            return condition(await rig.node(name), "Ready")["status"] == "Unknown" and ready == "False"

        await wait_until(lost, what="the node is Unknown", timeout_s=40.0)
        tainted = {t["effect"] for t in (await rig.node(name))["spec"]["taints"] if "unreachable" in t["key"]}
        assert "NoSchedule" in tainted
        assert await rig.phase("a") == "Running"
        await rig.delete_pod("a")
        assert (await rig.get_pod("a"))["metadata"]["deletionTimestamp"]
        assert (await rig.delete_pod("a", gracePeriodSeconds=0)).status == 200
        await rig.wait_gone("a")
    finally:
        await rig.backend.stop_node(name)


# --- deletion -----------------------------------------------------------------------------------------------


async def test_an_unbound_pod_is_gone_at_once(rig: Rig) -> None:
    """Claim: whatever its grace time, there is nothing to stop; the answer is the pod, the event has a new version."""
    made = await rig.create_pod("a", terminationGracePeriodSeconds=600)
    async with rig.watch(resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        answer = await rig.delete_pod("a")
        event = await watch.next()
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert event is not None
    assert (event.kind, event.name) == ("DELETED", "a")
    assert event.version > int(made["metadata"]["resourceVersion"])
    assert refusal(await rig.delete_pod("a")) == (404, "NotFound", "pods")


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
async def test_deletion_of_another_incarnation_is_a_conflict(rig: Rig, precondition: str) -> None:
    """Claim: 409 and nothing is deleted; with the right one it is."""
    made = await rig.create_pod("a")
    assert refusal(await rig.delete_pod("a", preconditions={precondition: "1"}))[:2] == (409, "Conflict")
    right = made["metadata"][precondition]
    assert (await rig.delete_pod("a", preconditions={precondition: right})).status == 200


async def test_a_finalizer_holds_an_object_until_it_is_dropped(rig: Rig) -> None:
    """Claim: deletion marks, the last finalizer's removal deletes."""
    await rig.create_pod("a", finalizers=["gpubus.dev/test"])
    answer = await rig.delete_pod("a")
    assert answer.body["metadata"]["deletionTimestamp"]
    assert (await rig.get_pod("a"))["metadata"]["finalizers"] == ["gpubus.dev/test"]
    await rig.patch_pod("a", {"metadata": {"finalizers": None}})
    await rig.wait_gone("a")


async def test_a_terminating_pod_can_be_forced(rig: Rig) -> None:
    """Claim: grace 0 after a long grace is seen as a shortened MODIFIED and then DELETED; a longer one changes nothing."""
    await rig.create_pod("a")
    await rig.bind("a", "nowhere")
    first = await rig.delete_pod("a", gracePeriodSeconds=300)
    again = await rig.delete_pod("a", gracePeriodSeconds=600)
    assert again.body["metadata"]["deletionTimestamp"] == first.body["metadata"]["deletionTimestamp"]
    async with rig.watch(resourceVersion=again.body["metadata"]["resourceVersion"]) as watch:
        await rig.delete_pod("a", gracePeriodSeconds=0)
        events = [await watch.next(), await watch.next()]
    assert [event.kind for event in events if event] == ["MODIFIED", "DELETED"]


async def test_eviction_deletes_with_a_precondition(rig: Rig) -> None:
    """Claim: 409 for another uid, 404 for nothing, 201 Success otherwise."""
    made = await rig.create_pod("a")

    async def evict(name: str, uid: str) -> Any:
        options = {"preconditions": {"uid": uid}}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
        return await rig.call("POST", f"{rig.pods}/{name}/eviction", body)

    assert refusal(await evict("a", "1"))[:2] == (409, "Conflict")
    assert refusal(await evict("none", "1")) == (404, "NotFound", "pods")
    answer = await evict("a", made["metadata"]["uid"])
    assert (answer.status, answer.body["status"]) == (201, "Success")
    await rig.wait_gone("a")


# --- patches ------------------------------------------------------------------------------------------------


async def test_a_merge_patch_sets_and_removes_annotations(rig: Rig) -> None:
    """Claim: null removes, others stay; the version moves; spec changes but a few are refused."""
    made = await rig.create_pod("a", annotations={"a": "1", "b": "2"})
    answer = await rig.patch_pod("a", {"metadata": {"annotations": {"a": None, "c": "3"}}})
    assert answer.body["metadata"]["annotations"] == {"b": "2", "c": "3"}
    assert int(answer.body["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    refused = await rig.patch_pod("a", {"spec": {"nodeName": "n"}})
    assert refusal(refused) == (422, "Invalid", "Pod")
    assert causes(refused) == {"spec": "FieldValueForbidden"}


async def test_a_patch_that_changes_nothing_writes_nothing(rig: Rig) -> None:
    """Claim: same version, no event: the next event is the next real change."""
    made = await rig.create_pod("a", annotations={"a": "1"})
    async with rig.watch(resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        answer = await rig.patch_pod("a", {"metadata": {"annotations": {"a": "1"}}})
        assert answer.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        await rig.patch_pod("a", {"metadata": {"annotations": {"a": "2"}}})
        event = await watch.next()
    assert event is not None
    assert event.object["metadata"]["annotations"] == {"a": "2"}


async def test_guards_inside_a_patch(rig: Rig) -> None:
    """Claim: a stale resourceVersion is 409, another uid is 422; the right ones pass."""
    made = await rig.create_pod("a")
    stale = await rig.patch_pod("a", {"metadata": {"resourceVersion": "1", "annotations": {"x": "1"}}})
    assert refusal(stale) == (409, "Conflict", "pods")
    other = await rig.patch_pod("a", {"metadata": {"uid": "1", "annotations": {"x": "1"}}})
    assert refusal(other) == (422, "Invalid", "Pod")
    assert causes(other) == {"metadata.uid": "FieldValueInvalid"}
    guards = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    right = await rig.patch_pod("a", {"metadata": {**guards, "annotations": {"x": "1"}}})
    assert right.status == 200


async def test_a_strategic_patch_merges_conditions_by_type(rig: Rig) -> None:
    """Claim: through status, one condition changes and the others stay; the spec cannot be touched that way."""
    await rig.create_pod("a")
    reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no card is free"}
    await rig.patch_pod("a", {"status": {"conditions": [reason]}}, STRATEGIC, "/status")
    own = {"type": "gpubus.dev/Placed", "status": "True"}
    sent = {"status": {"conditions": [own]}, "spec": {"nodeName": "n"}}
    answer = await rig.patch_pod("a", sent, STRATEGIC, "/status")
    assert answer.status == 200
    assert condition(answer.body, "PodScheduled")["reason"] == "Unschedulable"
    assert condition(answer.body, "gpubus.dev/Placed")["status"] == "True"
    assert "nodeName" not in answer.body["spec"]


async def test_status_does_not_change_through_the_pod(rig: Rig) -> None:
    """Claim: the main resource ignores status."""
    await rig.create_pod("a")
    answer = await rig.patch_pod("a", {"status": {"phase": "Running"}})
    assert (answer.status, answer.body["status"]["phase"]) == (200, "Pending")


async def test_gates_fall_by_json_patch(rig: Rig) -> None:
    """Claim: a failed `test` is 422 and changes nothing; removal lets the pod be bound; a gate never comes back."""
    await rig.create_pod("a", schedulingGates=[{"name": "gpubus.dev/wait"}])
    assert condition(await rig.get_pod("a"), "PodScheduled")["reason"] == "SchedulingGated"
    at = "/spec/schedulingGates/0"
    wrong = [{"op": "test", "path": f"{at}/name", "value": "other"}, {"op": "remove", "path": at}]
    refused = await rig.patch_pod("a", wrong, JSON_PATCH)
    assert (refused.status, refused.body["details"]) == (422, {})
    right = [{"op": "test", "path": f"{at}/name", "value": "gpubus.dev/wait"}, {"op": "remove", "path": at}]
    opened = await rig.patch_pod("a", right, JSON_PATCH)
    assert opened.status == 200
    assert not opened.body["spec"].get("schedulingGates")
    assert opened.body["metadata"]["generation"] == 2
    again = await rig.patch_pod("a", {"spec": {"schedulingGates": [{"name": "gpubus.dev/wait"}]}})
    assert refusal(again)[:2] == (422, "Invalid")
    assert (await rig.bind("a", "nowhere")).status == 201
    await rig.delete_pod("a", gracePeriodSeconds=0)


async def test_patches_that_find_nothing_or_speak_nonsense(rig: Rig) -> None:
    """Claim: 404 for a missing pod, 415 for a content type that is no patch."""
    assert refusal(await rig.patch_pod("none", {"metadata": {}})) == (404, "NotFound", "pods")
    await rig.create_pod("a")
    assert refusal(await rig.patch_pod("a", {}, "application/json"))[:2] == (415, "UnsupportedMediaType")


# --- lists --------------------------------------------------------------------------------------------------


async def names(rig: Rig, **query: Any) -> list[str]:
    answer = await rig.call("GET", rig.pods, query=query)
    assert answer.status == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


async def test_lists_are_sorted_and_selected(rig: Rig) -> None:
    """Claim: by name; label and field selectors of every form the server knows."""
    await rig.create_pod("b", labels={"app": "x", "tier": "1"})
    await rig.create_pod("a", labels={"app": "y"})
    await rig.create_pod("c")
    await rig.bind("c", "nowhere")
    assert await names(rig) == ["a", "b", "c"]
    assert await names(rig, labelSelector="app=x") == ["b"]
    assert await names(rig, labelSelector="app!=x") == ["a", "c"]
    assert await names(rig, labelSelector="app in (x,y),tier") == ["b"]
    assert await names(rig, labelSelector="app notin (x)") == ["a", "c"]
    assert await names(rig, labelSelector="!app") == ["c"]
    assert await names(rig, fieldSelector="spec.nodeName=nowhere") == ["c"]
    assert await names(rig, fieldSelector="spec.nodeName=") == ["a", "b"]
    assert await names(rig, fieldSelector="metadata.name=a,status.phase!=Running") == ["a"]
    await rig.delete_pod("c", gracePeriodSeconds=0)


async def test_a_list_carries_a_version_and_bare_items(rig: Rig) -> None:
    """Claim: kind PodList; items have neither kind nor apiVersion; its version is at least that of every item."""
    made = await rig.create_pod("a")
    answer = await rig.call("GET", rig.pods)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("PodList", "v1")
    assert not {"kind", "apiVersion"} & set(answer.body["items"][0])
    assert int(answer.body["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


async def test_pages_show_one_moment(rig: Rig) -> None:
    """Claim: all pages carry the version of the first, and what is written between them does not show."""
    for name in ("a", "b", "c", "d", "e"):
        await rig.create_pod(name)
    first = (await rig.call("GET", rig.pods, query={"limit": 2})).body
    assert first["metadata"]["remainingItemCount"] == 3
    await rig.create_pod("cc")
    second = (await rig.call("GET", rig.pods, query={"limit": 2, "continue": first["metadata"]["continue"]})).body
    third = (await rig.call("GET", rig.pods, query={"limit": 2, "continue": second["metadata"]["continue"]})).body
    assert [i["metadata"]["name"] for page in (first, second, third) for i in page["items"]] == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert "continue" not in third["metadata"]


@pytest.mark.parametrize(
    ("query", "code", "reason"),
    [
        ({"continue": "zzz", "limit": 1}, 400, "BadRequest"),
        ({"fieldSelector": "spec.foo=1"}, 400, "BadRequest"),
        ({"labelSelector": "a=b=c"}, 400, "BadRequest"),
        ({"resourceVersion": "99999999"}, 504, "Timeout"),
        ({"sendInitialEvents": "true"}, 422, "Invalid"),
    ],
)
async def test_refused_lists(rig: Rig, query: dict[str, Any], code: int, reason: str) -> None:
    """Claim: bad parameters are 400, a version of the future is 504, watch parameters on a list 422."""
    assert refusal(await rig.call("GET", rig.pods, query=query))[:2] == (code, reason)


async def test_a_list_over_all_namespaces(rig: Rig) -> None:
    """Claim: /api/v1/pods holds this namespace's pods, too."""
    await rig.create_pod("a")
    answer = await rig.call("GET", "/api/v1/pods")
    assert (rig.namespace, "a") in {(i["metadata"]["namespace"], i["metadata"]["name"]) for i in answer.body["items"]}


# --- watches ------------------------------------------------------------------------------------------------


async def test_a_watch_tells_everything_after_its_version_in_order(rig: Rig) -> None:
    """Claim: ADDED, MODIFIED, DELETED of what came after the list; versions strictly increase; nothing of before."""
    await rig.create_pod("before")
    version = await rig.version()
    await rig.create_pod("a")
    await rig.patch_pod("a", {"metadata": {"annotations": {"x": "1"}}})
    await rig.delete_pod("a")
    async with rig.watch(resourceVersion=version) as watch:
        events = [await watch.next() for _ in range(3)]
    assert [(event.kind, event.name) for event in events if event] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    versions = [event.version for event in events if event]
    assert versions == sorted(set(versions))
    assert versions[0] > version


async def test_a_watch_without_a_version_begins_with_what_is_there(rig: Rig) -> None:
    """Claim: ADDED for each present object, then live."""
    await rig.create_pod("a")
    async with rig.watch() as watch:
        assert (await watch.until("ADDED", "a")).object["kind"] == "Pod"
        await rig.create_pod("b")
        await watch.until("ADDED", "b")


async def test_initial_events_end_with_a_marked_bookmark(rig: Rig) -> None:
    """Claim: streaming list: all objects, then a BOOKMARK that says so and carries the version to go on from."""
    await rig.create_pod("a")
    await rig.create_pod("b")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with rig.watch(**query) as watch:
        events = [await watch.next() for _ in range(3)]
    assert [event.kind for event in events if event] == ["ADDED", "ADDED", "BOOKMARK"]
    mark = events[-1]
    assert mark is not None
    assert mark.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark.version >= max(event.version for event in events[:2] if event)


async def test_initial_events_need_a_version_match(rig: Rig) -> None:
    """Claim: 422 of ListOptions without resourceVersionMatch."""
    async with rig.watch(sendInitialEvents="true") as watch:
        assert watch.status == 422


async def test_a_watch_ends_cleanly_after_its_time_with_a_bookmark_before(rig: Rig) -> None:
    """Claim: EOF after timeoutSeconds; about two seconds earlier a BOOKMARK with a version to resume from."""
    began = asyncio.get_running_loop().time()
    version = await rig.version()
    await rig.create_pod("a")
    async with rig.watch(resourceVersion=version, timeoutSeconds=3, allowWatchBookmarks="true") as watch:
        events = await watch.rest()
    assert 2.5 < asyncio.get_running_loop().time() - began < 8.0
    assert [event.kind for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1].version >= events[0].version
    assert "name" not in events[1].object["metadata"]


async def test_a_selector_makes_objects_appear_and_disappear(rig: Rig) -> None:
    """Claim: coming to match is ADDED, ceasing to match is DELETED under the version of that change."""
    made = await rig.create_pod("a")
    version = made["metadata"]["resourceVersion"]
    async with rig.watch(resourceVersion=version, labelSelector="on=1") as watch:
        await rig.patch_pod("a", {"metadata": {"labels": {"on": "1"}}})
        await rig.patch_pod("a", {"metadata": {"annotations": {"x": "1"}}})
        off = await rig.patch_pod("a", {"metadata": {"labels": {"on": None}}})
        await rig.patch_pod("a", {"metadata": {"annotations": {"x": "2"}}})
        await rig.create_pod("b", labels={"on": "1"})
        events = [await watch.next() for _ in range(4)]
    seen = [(event.kind, event.name) for event in events if event]
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    gone = events[2]
    assert gone is not None
    assert str(gone.version) == off.body["metadata"]["resourceVersion"]
    assert gone.object["metadata"]["labels"] == {"on": "1"}


async def test_a_field_selector_follows_a_node(rig: Rig) -> None:
    """Claim: a watch of one node's pods sees a pod when it is bound there."""
    node = unique("nowhere")
    made = await rig.create_pod("a")
    version = made["metadata"]["resourceVersion"]
    async with rig.watch(resourceVersion=version, fieldSelector=f"spec.nodeName={node}") as watch:
        await rig.bind("a", node)
        await watch.until("ADDED", "a")
    await rig.delete_pod("a", gracePeriodSeconds=0)


async def test_a_version_of_the_future_is_silence(rig: Rig) -> None:
    """Claim: 200 and nothing at all, even when things happen: a client must notice by itself."""
    async with rig.watch(resourceVersion=await rig.version() + 1000, timeoutSeconds=1) as watch:
        await rig.create_pod("a")
        assert watch.status == 200
        assert await watch.rest() == []


async def test_a_restart_breaks_watches_and_loses_their_history_but_no_object(rig: Rig) -> None:
    """Claim: the connection ends, an old version is answered by 200 and an ERROR 410, a list heals it."""
    await rig.create_pod("a")
    old = await rig.version()
    await rig.create_pod("b")
    async with rig.watch(resourceVersion=await rig.version()) as watch:
        await rig.backend.restart()
        assert await watch.rest() == []
    await rig.create_pod("c")
    async with rig.watch(resourceVersion=old) as watch:
        assert watch.status == 200
        event = await watch.next()
        assert await watch.next() is None
    assert event is not None
    assert event.kind == "ERROR"
    assert (event.object["code"], event.object["reason"]) == (410, "Expired")
    assert event.object["message"].startswith(f"too old resource version: {old} (")
    assert await names(rig) == ["a", "b", "c"]
    async with rig.watch(resourceVersion=await rig.version()) as watch:
        await rig.create_pod("d")
        await watch.until("ADDED", "d")


async def test_no_event_is_lost_or_doubled_over_many_writers(rig: Rig) -> None:
    """Claim: every acknowledged creation is seen exactly once, in the order of versions."""
    version = await rig.version()
    wanted = {f"p{i}" for i in range(40)}
    async with rig.watch(resourceVersion=version) as watch:
        async with asyncio.TaskGroup() as group:
            for name in wanted:
                group.create_task(rig.create_pod(name), name=name)
        events = [await watch.next() for _ in range(40)]
    seen = [event for event in events if event]
    assert {event.name for event in seen} == wanted
    assert [event.version for event in seen] == sorted({event.version for event in seen})


# --- nodes and namespaces -----------------------------------------------------------------------------------


async def test_the_kubelets_node_has_what_a_scheduler_needs(rig: Rig) -> None:
    """Claim: Ready, allocatable as strings, no taints, a uid."""
    node = await rig.node(rig.backend.node)
    assert condition(node, "Ready")["status"] == "True"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert not [t for t in node["spec"].get("taints") or [] if t["effect"] != "PreferNoSchedule"]
    assert node["metadata"]["uid"]


async def test_a_node_without_a_kubelet_is_tainted_and_can_be_patched_and_deleted(rig: Rig) -> None:
    """Claim: not-ready taint from the first moment; labels by merge patch; deletion answers a Status."""
    name = unique("bare")
    made = await rig.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": {"cpu": "1"}}})
    assert made.status == 201
    assert {t["key"] for t in made.body["spec"]["taints"]} == {"node.kubernetes.io/not-ready"}
    assert made.body["status"]["allocatable"] == {"cpu": "1"}
    path = f"/api/v1/nodes/{name}"
    patched = await rig.call("PATCH", path, {"metadata": {"labels": {"x": "1"}}}, content_type=MERGE)
    assert patched.body["metadata"]["labels"] == {"x": "1"}
    status = {"status": {"capacity": {"nvidia.com/gpu": "4"}, "allocatable": {"nvidia.com/gpu": "4"}}}
    sized = await rig.call("PATCH", f"{path}/status", status, content_type=STRATEGIC)
    assert sized.body["status"]["allocatable"] == {"cpu": "1", "nvidia.com/gpu": "4"}
    gone = await rig.call("DELETE", path)
    assert (gone.status, gone.body["status"], gone.body["details"]["name"]) == (200, "Success", name)
    assert (await rig.call("GET", path)).status == 404


async def test_a_cordon_brings_its_taint(rig: Rig) -> None:
    """Claim: spec.unschedulable is followed by the taint, and its removal by the taint's."""
    path = f"/api/v1/nodes/{rig.backend.node}"

    async def cordoned() -> bool:
        taints = (await rig.node(rig.backend.node))["spec"].get("taints") or []
        return "node.kubernetes.io/unschedulable" in {t["key"] for t in taints}

    async def free() -> bool:
        return not await cordoned()

    await rig.call("PATCH", path, {"spec": {"unschedulable": True}}, content_type=MERGE)
    await wait_until(cordoned, what="the taint is there")
    await rig.call("PATCH", path, {"spec": {"unschedulable": None}}, content_type=MERGE)
    await wait_until(free, what="the taint is gone")


async def test_our_taint_drives_an_intolerant_pod_away(rig: Rig) -> None:
    """Claim: NoExecute on a live node deletes the pods that do not tolerate it, and leaves the others."""
    path = f"/api/v1/nodes/{rig.backend.node}"
    await rig.create_pod("goes", terminationGracePeriodSeconds=0)
    await rig.create_pod("stays", tolerations=[{"key": "gpubus.dev/drain", "operator": "Exists"}])
    for name in ("goes", "stays"):
        await rig.bind(name)
        await rig.wait_phase(name, "Running")
    taint = [{"key": "gpubus.dev/drain", "effect": "NoExecute"}]
    await rig.call("PATCH", path, {"spec": {"taints": taint}}, content_type=MERGE)
    try:
        await rig.wait_gone("goes")
        assert await rig.phase("stays") == "Running"
    finally:
        await rig.call("PATCH", path, {"spec": {"taints": None}}, content_type=MERGE)


async def test_namespaces(rig: Rig) -> None:
    """Claim: `default` is there; a new one is Active and labelled with its name; a second creation is 409."""
    listed = (await rig.call("GET", "/api/v1/namespaces")).body["items"]
    assert {"default", rig.namespace} <= {item["metadata"]["name"] for item in listed}
    found = (await rig.call("GET", f"/api/v1/namespaces/{rig.namespace}")).body
    assert found["status"]["phase"] == "Active"
    assert found["metadata"]["labels"]["kubernetes.io/metadata.name"] == rig.namespace
    again = await rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": rig.namespace}})
    assert refusal(again) == (409, "AlreadyExists", "namespaces")


# --- events and leases --------------------------------------------------------------------------------------


def event_about(rig: Rig, name: str, **changes: Any) -> dict[str, Any]:
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": rig.namespace, "name": "a", "uid": "some-uid"}
    body = {
        "metadata": {"name": name},
        "eventTime": MICRO,
        "reportingController": "gpubus.dev/reconciler",
        "reportingInstance": "reconciler-0",
        "action": "Placing",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "no card is free",
        "regarding": regarding,
        **changes,
    }
    return {key: value for key, value in body.items() if value is not None}


async def test_an_event_is_counted_not_repeated(rig: Rig) -> None:
    """Claim: a fixed name makes the second creation a 409, whose cure is a patch of `series`; nothing else may change."""
    assert (await rig.call("POST", rig.events, event_about(rig, "e"))).status == 201
    again = await rig.call("POST", rig.events, event_about(rig, "e"))
    assert refusal(again) == (409, "AlreadyExists", "events")
    series = {"series": {"count": 2, "lastObservedTime": MICRO}}
    counted = await rig.call("PATCH", f"{rig.events}/e", series, content_type=MERGE)
    assert (counted.status, counted.body["series"]) == (200, series["series"])
    refused = await rig.call("PATCH", f"{rig.events}/e", {"note": "other"}, content_type=MERGE)
    assert refusal(refused)[:2] == (422, "Invalid")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"eventTime": None}, 422, id="no time"),
        pytest.param({"eventTime": "2026-11-30T14:25:12Z"}, 400, id="time without decimals"),
        pytest.param({"reportingController": None}, 422, id="no controller"),
        pytest.param({"reportingInstance": None}, 422, id="no instance"),
        pytest.param({"action": None}, 422, id="no action"),
        pytest.param({"reason": None}, 422, id="no reason"),
        pytest.param({"type": "Sad"}, 422, id="unknown type"),
        pytest.param({"note": "x" * 1025}, 422, id="long note"),
    ],
)
async def test_a_malformed_event_is_refused(rig: Rig, changes: dict[str, Any], code: int) -> None:
    """Claim: 422 for what is missing or too long, 400 for a time in the wrong form."""
    assert refusal(await rig.call("POST", rig.events, event_about(rig, "e", **changes)))[0] == code


def lease(name: str, holder: str, **metadata: Any) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": MICRO}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


async def test_a_lease_is_replaced_only_by_its_version(rig: Rig) -> None:
    """Claim: a second creation is 409; PUT with the version of the last write passes, a stale one is 409, none 422."""
    made = (await rig.call("POST", rig.leases, lease("l", "a"))).body
    assert refusal(await rig.call("POST", rig.leases, lease("l", "b"))) == (409, "AlreadyExists", "leases")
    version = made["metadata"]["resourceVersion"]
    renewed = await rig.call("PUT", f"{rig.leases}/l", lease("l", "b", resourceVersion=version))
    assert (renewed.status, renewed.body["spec"]["holderIdentity"]) == (200, "b")
    stale = await rig.call("PUT", f"{rig.leases}/l", lease("l", "c", resourceVersion=version))
    assert refusal(stale) == (409, "Conflict", "leases")
    assert refusal(await rig.call("PUT", f"{rig.leases}/l", lease("l", "c")))[:2] == (422, "Invalid")
    assert (await rig.call("GET", f"{rig.leases}/l")).body["spec"]["holderIdentity"] == "b"


async def test_one_of_eight_racing_take_overs_wins(rig: Rig) -> None:
    """Claim: one 200, seven 409."""
    made = (await rig.call("POST", rig.leases, lease("l", "a"))).body
    version = made["metadata"]["resourceVersion"]
    puts = (rig.call("PUT", f"{rig.leases}/l", lease("l", f"c{i}", resourceVersion=version)) for i in range(8))
    answers = await asyncio.gather(*puts)
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7


async def test_lease_times_have_six_decimals(rig: Rig) -> None:
    """Claim: 400 without them."""
    body = lease("l", "a")
    body["spec"]["renewTime"] = "2026-11-30T14:25:12Z"
    assert refusal(await rig.call("POST", rig.leases, body))[:2] == (400, "BadRequest")
