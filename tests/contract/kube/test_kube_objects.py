"""Creating, patching and deleting pods, and what the server says about itself.

Each claim holds on the embedded API and on a real API server with a hollow kubelet.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kube.rig import JSON_PATCH, STRATEGIC, Rig, causes, condition, pod, refusal

# --- the server ------------------------------------------------------------------------------------------


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


# --- creation --------------------------------------------------------------------------------------------


async def test_a_new_pod_is_pending_with_the_servers_fields(rig: Rig) -> None:
    """Claim: uid, version, creation time, defaults and phase are the server's, whatever a client sends."""
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


# --- patches ---------------------------------------------------------------------------------------------


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


# --- deletion --------------------------------------------------------------------------------------------


async def test_an_unbound_pod_is_gone_at_once(rig: Rig) -> None:
    """Claim: whatever its grace time, there is nothing to stop; marked and deleted in one call, under two versions."""
    made = await rig.create_pod("a", terminationGracePeriodSeconds=600)
    async with rig.watch(resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        answer = await rig.delete_pod("a")
        events = [await watch.next(), await watch.next()]
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    marked, gone = (event for event in events if event)
    assert (marked.kind, gone.kind) == ("MODIFIED", "DELETED")
    assert gone.version > marked.version > int(made["metadata"]["resourceVersion"])
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
    """Claim: grace 0 after a long one is a shortened MODIFIED, then DELETED; a longer one changes nothing."""
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
