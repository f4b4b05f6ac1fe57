"""The admission policies as a tenant meets them, on a real API server: each refusal, and each thing that must pass.

`alice` may do everything with pods of her namespace that roles can give; what she is refused, the policies refuse.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from contracts.decisions import CardSlice
from contracts.isolation import Assigned, pod_changes
from contracts.units import CardUuid
from reconciler import podspec
from reconciler.annotations import ASKING
from reconciler.foreign import ForeignPod, uninjected
from tests.servers import chart
from tests.servers.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

CARDS = "metadata.annotations['gpubus.dev/cards']"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


class Tenant:
    """A namespace with the policies in force, and who acts in it."""

    def __init__(self, plane: ControlPlane, namespace: str, ours: str) -> None:
        self.plane, self.namespace, self.ours = plane, namespace, ours
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    async def call(self, method: str, path: str, body: Any, *, us: bool = False, **more: Any) -> tuple[int, Any]:
        token = self.ours if us else self.plane.tenant_token
        answer = await self.plane.api(method, path, body, token=token, **more)
        return answer.status, answer.body

    async def create(self, *, us: bool = False, **parts: Any) -> tuple[int, Any]:
        return await self.call("POST", self.pods, pod(**parts), us=us)

    async def made(self, **parts: Any) -> str:
        status, body = await self.create(**parts)
        assert status == 201, body
        return str(body["metadata"]["name"])


def pod(*, env: Any = (), scheduler: str = "gpubus", annotations: Any = None, labels: Any = None, **spec: Any) -> Any:
    container = {"name": "c", "image": "busybox", "env": list(env)}
    metadata = {"name": f"p-{secrets.token_hex(4)}", "annotations": annotations or {}, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"schedulerName": scheduler, "containers": [container], **spec}}


def value(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "value": text}


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tenant(control_plane: ControlPlane) -> Tenant:
    system, namespace = await control_plane.namespace("system"), await chart.tenants_namespace(control_plane)
    await chart.install(control_plane, system, "ServiceAccount", only="gpubus-reconciler")
    await chart.install(control_plane, system, *chart.POLICIES)
    subject = {"kind": "ServiceAccount", "name": "gpubus-reconciler", "namespace": system}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/tenant"
    added = [{"op": "add", "path": "/subjects/-", "value": subject}]
    await control_plane.api("PATCH", path, added, content_type="application/json-patch+json")
    await chart.in_force(control_plane, namespace)
    return Tenant(control_plane, namespace, await control_plane.service_account_token(system, "gpubus-reconciler"))


# --- what is put in --------------------------------------------------------------------------------------------------


def last_of(container: dict[str, Any]) -> dict[str, str]:
    """What each variable is read from, the last of equal names."""
    found = {}
    for entry in container["env"]:
        found[entry["name"]] = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", entry.get("value", ""))
    return found


async def test_cards_are_read_from_the_assignment_in_every_container(tenant: Tenant) -> None:
    """Containers and init containers, with and without variables of their own; once, though it may run twice."""
    init = [{"name": "i", "image": "busybox", "env": [value("A", "1")]}]
    status, body = await tenant.create(initContainers=init)

    assert status == 201
    both = {"NVIDIA_VISIBLE_DEVICES": CARDS, "CUDA_VISIBLE_DEVICES": CARDS}
    assert last_of(body["spec"]["containers"][0]) == both
    assert last_of(body["spec"]["initContainers"][0]) == {"A": "1", **both}
    assert [len(c["env"]) for c in (*body["spec"]["containers"], *body["spec"]["initContainers"])] == [2, 3]


async def test_a_pod_that_reads_them_already_is_left_alone(tenant: Tenant) -> None:
    own = [field("CUDA_VISIBLE_DEVICES", CARDS), value("X", "y"), field("NVIDIA_VISIBLE_DEVICES", CARDS)]
    status, body = await tenant.create(env=own)

    assert status == 201
    assert [entry["name"] for entry in body["spec"]["containers"][0]["env"]] == [entry["name"] for entry in own]


async def test_an_ephemeral_container_sees_the_same_cards(tenant: Tenant) -> None:
    """Without it `kubectl debug` would see what the image says: all. A second one does not rewrite the first."""
    name = await tenant.made()
    for index in range(2):
        ephemeral = {"spec": {"ephemeralContainers": [{"name": f"debug-{index}", "image": "busybox"}]}}
        path = f"{tenant.pods}/{name}/ephemeralcontainers"
        status, body = await tenant.call("PATCH", path, ephemeral, content_type=STRATEGIC)
        assert status == 200, body
    found = body["spec"]["ephemeralContainers"]
    assert len(found) == 2
    assert all(last_of(one)["NVIDIA_VISIBLE_DEVICES"] == CARDS for one in found)


async def test_an_ephemeral_container_from_before_the_policies_is_left_as_it_was(tenant: Tenant) -> None:
    """Changing it would be refused, and with it every later one."""
    plane, namespace = tenant.plane, await tenant.plane.namespace("early")
    path = f"/api/v1/namespaces/{namespace}"
    made = await plane.api("POST", f"{path}/pods", pod())
    debug = f"{path}/pods/{made.body['metadata']['name']}/ephemeralcontainers"
    first, second = ({"spec": {"ephemeralContainers": [{"name": name, "image": "busybox"}]}} for name in "ab")
    await plane.api("PATCH", debug, first, content_type=STRATEGIC)
    await plane.api("PATCH", path, {"metadata": {"labels": chart.SELECTED}}, content_type=MERGE)
    await chart.in_force(plane, namespace, token=plane.admin_token)
    added = await plane.api("PATCH", debug, second, content_type=STRATEGIC)

    assert added.status == 200, added.body
    found = {c["name"]: c.get("env", []) for c in added.body["spec"]["ephemeralContainers"]}
    assert (found["a"], len(found["b"])) == ([], 2)


async def test_pods_of_other_schedulers_are_not_touched(tenant: Tenant) -> None:
    status, body = await tenant.create(scheduler="default-scheduler")

    assert status == 201
    assert not body["spec"]["containers"][0].get("env")


# --- what is refused at creation -------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("its cards", {"annotations": {"gpubus.dev/cards": "GPU-1"}}, "gpubus.dev/cards is written by the reconciler"),
    ("its shares", {"annotations": {"gpubus.dev/shares": "GPU-1=1:1"}}, "gpubus.dev/shares is written"),
    ("its nonce", {"annotations": {"gpubus.dev/nonce": "0"}}, "gpubus.dev/nonce is written"),
    ("an isolation's limit", {"annotations": {"gpubus.dev/env.CUDA_DEVICE_SM_LIMIT_0": "100"}}, "is written by the"),
    ("our label", {"labels": {"gpubus.dev/managed": "true"}}, "gpubus.dev/managed is written"),
    ("all cards", {"env": [value("NVIDIA_VISIBLE_DEVICES", "all")]}, "are set by the platform"),
    ("another card", {"env": [value("CUDA_VISIBLE_DEVICES", "7")]}, "are set by the platform"),
    ("cards by another field", {"env": [field("NVIDIA_VISIBLE_DEVICES", "metadata.name")]}, "are set by the"),
    ("a library before all", {"env": [value("LD_PRELOAD", "/x.so")]}, "are set by the platform"),
    ("its own MPS daemon", {"env": [value("CUDA_MPS_PIPE_DIRECTORY", "/tmp/x")]}, "are set by the platform"),
    ("another limit", {"env": [value("CUDA_DEVICE_MEMORY_LIMIT_0", "80g")]}, "are set by the platform"),
    ("another manager", {"env": [value("POD_MANAGER_PORT", "50051")]}, "are set by the platform"),
    (
        "all cards in an init container",
        {"initContainers": [{"name": "i", "image": "x", "env": [value("NVIDIA_VISIBLE_DEVICES", "all")]}]},
        "are set by the platform",
    ),
    (
        "all cards, from another scheduler",
        {"scheduler": "default-scheduler", "env": [value("NVIDIA_VISIBLE_DEVICES", "all")]},
        "are set by the platform",
    ),
    ("its node", {"nodeName": "gpu-1"}, "passes by every scheduler"),
    ("its node, with another scheduler", {"nodeName": "n", "scheduler": "default-scheduler"}, "passes by every"),
]


@pytest.mark.parametrize(("what", "parts", "says"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_a_tenant_cannot_choose(tenant: Tenant, what: str, parts: dict[str, Any], says: str) -> None:
    status, body = await tenant.create(**parts)

    assert status == 403, what
    assert says in body["message"]


PERMITTED: list[tuple[str, dict[str, Any]]] = [
    ("ask for a share", {"annotations": {"gpubus.dev/share-milli": "500", "gpubus.dev/memory-mib": "1000"}}),
    ("ask by labels", {"labels": {"gpubus.dev/share-milli": "500"}}),
    ("have annotations of others", {"annotations": {"example.com/x": "y", "gpu-fraction": "0.5"}}),
    ("have variables", {"env": [value("BATCH", "8"), value("CUDA_LAUNCH_BLOCKING", "1")]}),
    ("say that it needs no card", {"env": [value("NVIDIA_VISIBLE_DEVICES", "void")]}),
    ("use another scheduler", {"scheduler": "default-scheduler", "env": [value("LD_PRELOAD", "/x.so")]}),
    ("read its own name", {"env": [field("NAME", "metadata.name")]}),
]


@pytest.mark.parametrize(("what", "parts"), PERMITTED, ids=[row[0] for row in PERMITTED])
async def test_a_tenant_may(tenant: Tenant, what: str, parts: dict[str, Any]) -> None:
    status, body = await tenant.create(**parts)

    assert status == 201, (what, body)


# --- what is refused later -------------------------------------------------------------------------------------------


async def test_the_assignment_cannot_be_changed_through_any_door(tenant: Tenant) -> None:
    """The pod itself, its status, its resources: the annotation is read at each start of a container."""
    name = await tenant.made(annotations={"gpubus.dev/share-milli": "500"})
    forged = {"metadata": {"annotations": {"gpubus.dev/cards": "GPU-2"}}}
    removed = {"metadata": {"annotations": {"gpubus.dev/share-milli": None}}}
    labelled = {"metadata": {"labels": {"gpubus.dev/managed": "true"}}}
    for body, door in ((forged, ""), (forged, "/status"), (removed, ""), (labelled, "")):
        status, answer = await tenant.call("PATCH", f"{tenant.pods}/{name}{door}", body, content_type=MERGE)
        assert status == 403, (door, body)
        assert "do not change" in answer["message"]


async def test_other_annotations_and_the_status_can(tenant: Tenant) -> None:
    name = await tenant.made()
    status, _ = await tenant.call(
        "PATCH", f"{tenant.pods}/{name}", {"metadata": {"annotations": {"x": "y"}}}, content_type=MERGE
    )
    ready = {"status": {"conditions": [{"type": "example.com/ready", "status": "True"}]}}
    told, _ = await tenant.call("PATCH", f"{tenant.pods}/{name}/status", ready, content_type=STRATEGIC)

    assert (status, told) == (200, 200)


async def test_an_ephemeral_container_cannot_see_all_cards(tenant: Tenant) -> None:
    name = await tenant.made()
    env = [value("NVIDIA_VISIBLE_DEVICES", "all")]
    ephemeral = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox", "env": env}]}}
    path = f"{tenant.pods}/{name}/ephemeralcontainers"
    status, body = await tenant.call("PATCH", path, ephemeral, content_type=STRATEGIC)

    assert status == 403
    assert "are set by the platform" in body["message"]


async def test_only_the_reconciler_binds_with_cards(tenant: Tenant) -> None:
    """A binding is not checked by the API server at all, and what it carries is merged into the pod."""
    name = await tenant.made()
    binding = {
        "metadata": {"name": name, "annotations": {"gpubus.dev/cards": "GPU-1"}},
        "target": {"kind": "Node", "name": "n"},
    }
    status, body = await tenant.call("POST", f"{tenant.pods}/{name}/binding", binding)
    assert status == 403
    assert "given out by the reconciler only" in body["message"]

    status, _ = await tenant.call("POST", f"{tenant.pods}/{name}/binding", binding, us=True)
    assert status == 201
    _, bound = await tenant.call("GET", f"{tenant.pods}/{name}", None)
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]["gpubus.dev/cards"]) == ("n", "GPU-1")


async def test_the_reconciler_makes_and_marks_its_own_pods(tenant: Tenant) -> None:
    """With a library before all, as isolation needs it; annotations too, later on."""
    parts = {"labels": {"gpubus.dev/managed": "true"}, "annotations": {"gpubus.dev/uid": "u"}}
    status, body = await tenant.create(us=True, env=[value("LD_PRELOAD", "/usr/local/vgpu/libvgpu.so")], **parts)
    assert status == 201, body
    again = {"metadata": {"annotations": {"gpubus.dev/shares": "x=1:1"}}}
    status, _ = await tenant.call(
        "PATCH", f"{tenant.pods}/{body['metadata']['name']}", again, us=True, content_type=MERGE
    )
    assert status == 200


async def test_but_not_what_a_sharepods_template_smuggles(tenant: Tenant) -> None:
    """A pod that it makes for somebody else is judged like anybody's."""
    status, body = await tenant.create(us=True, env=[value("NVIDIA_VISIBLE_DEVICES", "all")])

    assert status == 403
    assert "are set by the platform" in body["message"]


@pytest.mark.parametrize("mode", ["mps", "hami-core"])
async def test_with_an_isolation_its_variables_and_folders_are_there(control_plane: ControlPlane, mode: Any) -> None:
    """Exactly what the reconciler looks for before it binds a pod to such a card; and what a tenant may not change."""
    system = await control_plane.namespace("system")
    namespace = await chart.tenants_namespace(control_plane, variant=mode)
    flags = ("--set", f"policies.isolation={mode}")
    await chart.install(control_plane, system, *chart.POLICIES, variant=mode, flags=flags)
    await chart.in_force(control_plane, namespace)
    path, token = f"/api/v1/namespaces/{namespace}/pods", control_plane.tenant_token
    init = [{"name": "i", "image": "busybox"}]
    answer = await control_plane.api("POST", path, pod(env=[value("A", "b")], initContainers=init), token=token)
    assert answer.status == 201, answer.body

    made = msgspec.convert(answer.body, ForeignPod)
    slices = tuple(CardSlice(card=CardUuid(f"GPU-{i}"), share_milli=500, memory_mib=1000) for i in range(2))
    changes = pod_changes(mode, Assigned(pod="ns/p", slices=slices))
    mounts = [(mount.host_path, mount.path) for mount in changes.mounts]
    assert uninjected(made, podspec.sources(changes), mounts) == ""
    refused = await control_plane.api("POST", path, pod(env=[value("LD_PRELOAD", "/x.so")]), token=token)
    assert refused.status == 403


def test_the_policy_knows_the_keys_that_the_reconciler_reads() -> None:
    guard = next(
        d
        for d in chart.rendered("x")
        if d["kind"] == "ValidatingAdmissionPolicy" and d["metadata"]["name"] == "gpubus-guard"
    )
    asking = next(v["expression"] for v in guard["spec"]["variables"] if v["name"] == "asking")

    assert {part.strip(" []'") for part in asking.split(",")} == {*ASKING, "gpubus.dev/simulated-run-s"}
