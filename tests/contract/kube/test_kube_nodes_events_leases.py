"""Nodes, namespaces, events and leases.

Each claim holds on the embedded API and on a real API server with a hollow kubelet.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.kube.rig import MERGE, STRATEGIC, Rig, condition, refusal, unique
from tests.servers.process import wait_until

MICRO = "2026-11-30T14:25:12.899271Z"


# --- nodes and namespaces --------------------------------------------------------------------------------


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


# --- events and leases -----------------------------------------------------------------------------------


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
    """Claim: a fixed name makes the second creation a 409, cured by a patch of `series`; nothing else may change."""
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
