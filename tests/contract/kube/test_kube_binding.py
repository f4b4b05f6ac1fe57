"""Binding pods to nodes: every answer of the door, and the life behind it.

Each claim holds on the embedded API and on a real API server with a hollow kubelet.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.kube.rig import MERGE, Rig, binding, condition, refusal, unique
from tests.servers.process import wait_until

# --- binding ---------------------------------------------------------------------------------------------


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


# --- life ------------------------------------------------------------------------------------------------


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
    """Claim: the deletion of a running pod is first announced (MODIFIED), then completed (DELETED)."""
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
    """Claim: Ready turns Unknown, the node is tainted, pods stay Running but not Ready; only force removes them."""
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
