"""In-place resize: what may change through `pods/resize`, on the embedded API and on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kube.rig import MERGE, STRATEGIC, Rig


def resources(name: str = "c", **sides: dict[str, str]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "resources": sides}]}}


async def sized(rig: Rig) -> dict[str, Any]:
    """A burstable pod: more memory at most than it asks for."""
    container = {
        "name": "c",
        "image": "busybox",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
    }
    return await rig.create_pod("a", annotations={"kept": "1"}, containers=[container])


async def test_cpu_changes_in_place_and_nothing_else(rig: Rig) -> None:
    """Claim: the request is the new one, everything else stays; annotations that come along are dropped."""
    made = await sized(rig)
    patch = resources(requests={"cpu": "25m"}) | {"metadata": {"annotations": {"new": "1"}}}
    answer = await rig.patch_pod("a", patch, STRATEGIC, "/resize")
    assert answer.status == 200
    assert answer.body["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "25m", "memory": "16Mi"},
        "limits": {"memory": "32Mi"},
    }
    found = await rig.get_pod("a")
    assert found["metadata"]["annotations"] == {"kept": "1"}
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert found["metadata"]["generation"] == made["metadata"]["generation"] + 1


async def test_the_version_is_the_precondition(rig: Rig) -> None:
    """Claim: a stale one is a conflict and changes nothing; the present one is taken."""
    made = await sized(rig)
    await rig.patch_pod("a", {"metadata": {"annotations": {"moved": "1"}}})
    patch = resources(requests={"cpu": "25m"}) | {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    stale = await rig.patch_pod("a", patch, STRATEGIC, "/resize")
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")
    assert (await rig.get_pod("a"))["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "10m"


@pytest.mark.parametrize(
    ("patch", "kind", "text"),
    [
        (resources(requests={"cpu": "25m"}), MERGE, "cannot be removed"),
        (resources(requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "1"}), STRATEGIC, "only cpu and memory"),
        (
            resources(requests={"memory": "32Mi"}, limits={"cpu": "10m"}),
            STRATEGIC,
            "Pod QOS Class may not change as a result of resizing",
        ),
    ],
)
async def test_what_cannot_be_resized_is_refused(rig: Rig, patch: dict[str, Any], kind: str, text: str) -> None:
    """Claim: 422 with the reason; a merge patch would replace the container and take its limits away."""
    await sized(rig)
    answer = await rig.patch_pod("a", patch, kind, "/resize")
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert text in answer.body["message"]


async def test_resources_do_not_change_through_the_pod_itself(rig: Rig) -> None:
    """Claim: 422; only the subresource may."""
    await sized(rig)
    answer = await rig.patch_pod("a", resources(requests={"cpu": "25m"}), STRATEGIC)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
