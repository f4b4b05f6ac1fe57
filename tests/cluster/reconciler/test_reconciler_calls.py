"""Every row of what a binding can meet, every refusal of a create, lists and watches: on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.requests import PodRequest
from reconciler import kube, marks, podspec
from reconciler.calls import NODES, PODS, Kube
from reconciler.errors import Conflict, NotFound, OutcomeUnknown, Refused
from reconciler.informer import Informer
from reconciler.objects import Node, Pod
from reconciler.plan import pod_of
from reconciler.terms import constraint_fields
from tests.builders.pods import binding_of
from tests.cluster.reconciler.hand import EPOCH, Hand
from tests.servers.control_plane import ControlPlane
from tests.servers.process import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


# --- what a binding can meet -----------------------------------------------------------------------------------------


async def test_a_binding_writes_node_and_cards_in_one_event(hand: Hand, control_plane: ControlPlane) -> None:
    """No watcher, the kubelet included, ever sees the node without the cards."""
    held = hand.held("one-breath")
    pod = await hand.create(held)
    events: list[Pod] = []
    watched = asyncio.Event()

    async def watch() -> None:
        async for event in hand.kube.watch(PODS, version=int(pod.metadata.resource_version), timeout_s=20):
            if event.object.metadata.uid == pod.metadata.uid:
                events.append(event.object)
                if event.object.spec.node_name:
                    watched.set()
                    return

    async with asyncio.TaskGroup() as group:
        group.create_task(watch(), name="watch")
        await hand.bind(held, pod.metadata.uid)
        async with asyncio.timeout(15):
            await watched.wait()

    assert [bool(seen.spec.node_name) for seen in events] == [False] * (len(events) - 1) + [True]
    annotations = events[-1].metadata.annotations or {}
    assert annotations[marks.CARDS] == f"{hand.node}-gpu0"
    assert marks.bound_by_us(annotations, hand.node)


async def test_a_second_binding_is_a_conflict_that_says_so(hand: Hand) -> None:
    """Also to the same node: reading back tells whether it was ours."""
    held = hand.held("twice")
    pod = await hand.create(held)
    await hand.bind(held, pod.metadata.uid)

    with pytest.raises(Conflict) as caught:
        await hand.bind(held, pod.metadata.uid)

    assert caught.value.subtype == "bound"
    found = await hand.get(held)
    assert found is not None
    assert marks.bound_by_us(found.metadata.annotations or {}, found.spec.node_name)


async def test_of_racing_bindings_one_wins(hand: Hand) -> None:
    """Ten at once: one is accepted, nine are told that it is bound."""
    held = hand.held("race")
    pod = await hand.create(held)

    results = await asyncio.gather(*(hand.bind(held, pod.metadata.uid) for _ in range(10)), return_exceptions=True)

    assert sum(result is None for result in results) == 1
    assert {r.subtype for r in results if isinstance(r, Conflict)} == {"bound"}


async def test_a_binding_of_another_life_is_refused(hand: Hand) -> None:
    """The uid is a precondition: a pod that was deleted and made again is not bound by the old decision."""
    held = hand.held("life")
    first = await hand.create(held)
    await hand.kube.delete(hand.namespace, pod_of(held), first.metadata.uid, 1)
    second = await hand.create(held)

    with pytest.raises(Conflict) as caught:
        await hand.bind(held, first.metadata.uid)

    assert caught.value.subtype == "uid"
    found = await hand.get(held)
    assert found is not None
    assert (found.metadata.uid, found.spec.node_name) == (second.metadata.uid, "")


async def test_a_terminating_pod_is_not_bound(hand: Hand) -> None:
    """Held by a finalizer, it is there and may not be bound."""
    held = hand.held("going")
    pod = await hand.create(held)
    finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
    await hand.api("PATCH", f"{{ns}}/pods/{pod_of(held)}", finalizers, content_type="application/merge-patch+json")
    await hand.kube.delete(hand.namespace, pod_of(held), pod.metadata.uid, 1)
    try:
        with pytest.raises(Conflict) as caught:
            await hand.bind(held, pod.metadata.uid)
        assert caught.value.subtype == "terminating"
    finally:
        release = {"metadata": {"finalizers": None}}
        await hand.api("PATCH", f"{{ns}}/pods/{pod_of(held)}", release, content_type="application/merge-patch+json")


async def test_a_gated_pod_is_not_bound_until_the_gate_is_lifted(hand: Hand) -> None:
    """The conflict has a name, and our patch lifts the gate at its place only."""
    held = hand.held("gated")
    pod = await hand.create(held, schedulingGates=[{"name": "example.com/x"}, {"name": marks.GATE}])

    with pytest.raises(Conflict) as caught:
        await hand.bind(held, pod.metadata.uid)
    assert caught.value.subtype == "gated"

    with pytest.raises(Refused):
        await hand.kube.ungate(hand.namespace, pod_of(held), 0)
    left = await hand.kube.ungate(hand.namespace, pod_of(held), 1)
    assert [gate.name for gate in left.spec.scheduling_gates or ()] == ["example.com/x"]


async def test_what_is_not_there_is_named(hand: Hand) -> None:
    """A missing pod and a missing namespace are told apart, for bindings and for creates."""
    held = hand.held("nobody")
    with pytest.raises(NotFound) as pod:
        await hand.bind(held, "0000")
    assert pod.value.kind == "pods"

    with pytest.raises(NotFound) as namespace:
        await hand.kube.create("no-such-namespace", podspec.manifest(_elsewhere(held), epoch=EPOCH))
    assert namespace.value.kind == "namespaces"
    assert await hand.kube.get("no-such-namespace", "x") is None


def _elsewhere(held: Any) -> Any:
    return msgspec.structs.replace(held, accepted=msgspec.structs.replace(held.accepted, namespace="no-such-namespace"))


async def test_a_binding_to_a_node_that_is_not_there_is_accepted_and_ends_as_gone(hand: Hand) -> None:
    """Nothing checks it: that is why the ledger's nodes come from the API server, and pod GC removes the pod."""
    held = hand.held("ghost", on="no-such-node")
    pod = await hand.create(held)
    await hand.bind(held, pod.metadata.uid)
    found = await hand.get(held)

    assert found is not None
    assert (found.spec.node_name, found.status.phase) == ("no-such-node", "Pending")
    await hand.kube.delete(hand.namespace, pod_of(held), pod.metadata.uid, 1)


async def test_a_cordoned_node_takes_a_binding(hand: Hand) -> None:
    """The decision was made before; the API server does not make it again."""
    path = f"/api/v1/nodes/{hand.node}"
    merge = "application/merge-patch+json"
    await hand.api("PATCH", path, {"spec": {"unschedulable": True}}, content_type=merge)
    try:
        held = hand.held("cordoned")
        pod = await hand.create(held)
        await hand.bind(held, pod.metadata.uid)
        await _wait_phase(hand, held, "Running")
    finally:
        await hand.api("PATCH", path, {"spec": {"unschedulable": None}}, content_type=merge)


async def _wait_phase(hand: Hand, held: Any, phase: str) -> None:
    async def reached() -> bool:
        found = await hand.get(held)
        return found is not None and found.status.phase == phase

    await wait_until(reached, what=f"{pod_of(held)} is {phase}", timeout_s=30.0)


async def test_an_illegal_node_name_is_refused_for_good(hand: Hand) -> None:
    """A 500 without a reason, which no time mends."""
    held = hand.held("empty")
    pod = await hand.create(held)
    body = msgspec.json.decode(binding_of(held, pod.metadata.uid, epoch=EPOCH))
    body["target"]["name"] = ""

    with pytest.raises(Refused) as caught:
        await hand.kube.bind(hand.namespace, pod_of(held), msgspec.json.encode(body))

    assert caught.value.code == "invalid"


async def test_a_name_that_differs_from_the_url_is_our_mistake(hand: Hand) -> None:
    """400: never worth another try."""
    one, two = hand.held("one"), hand.held("two")
    pod = await hand.create(one)

    with pytest.raises(Refused) as caught:
        await hand.kube.bind(hand.namespace, pod_of(one), binding_of(two, pod.metadata.uid, epoch=EPOCH))

    assert caught.value.code == "bad-request"


async def test_a_name_that_is_taken_is_a_conflict(hand: Hand) -> None:
    """Whose it is must be read."""
    held = hand.held("taken")
    await hand.create(held)

    with pytest.raises(Conflict) as caught:
        await hand.create(held)

    assert caught.value.subtype == "exists"


async def test_annotations_are_written_into_the_life_that_was_meant(hand: Hand) -> None:
    """The uid in the patch cannot change: another life refuses it."""
    held = hand.held("marked")
    pod = await hand.create(held)

    written = await hand.kube.annotate(hand.namespace, pod_of(held), pod.metadata.uid, {marks.SHARES: "x=1:1"})
    assert (written.metadata.annotations or {})[marks.SHARES] == "x=1:1"
    with pytest.raises((Refused, Conflict)):
        await hand.kube.annotate(hand.namespace, pod_of(held), "another-life", {marks.SHARES: "y=1:1"})


async def test_deleting_another_life_is_a_conflict_and_deleting_nothing_is_done(hand: Hand) -> None:
    """A late deletion never hits the pod that came after."""
    held = hand.held("deleted")
    pod = await hand.create(held)
    with pytest.raises(Conflict):
        await hand.kube.delete(hand.namespace, pod_of(held), "another-life", 1)

    await hand.kube.delete(hand.namespace, pod_of(held), pod.metadata.uid, 1)
    await hand.kube.delete(hand.namespace, pod_of(held), pod.metadata.uid, 1)
    assert await hand.get(held) is None


async def test_a_field_that_does_not_exist_is_refused(hand: Hand) -> None:
    """A misspelt field would be dropped in silence otherwise."""
    with pytest.raises(Refused) as caught:
        await hand.create(hand.held("strict"), restartPolicies="Never")

    assert caught.value.code == "bad-request"
    assert "restartPolicies" in str(caught.value)


async def test_the_constraints_of_a_request_are_fields_that_the_api_server_knows(hand: Hand) -> None:
    """Every word of them, read strictly, and read back as it was asked for."""
    spread = {"topology_key": "zone", "max_skew": 2, "when_unsatisfiable": "ScheduleAnyway"}
    zone = {"match_expressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    this = {"match_fields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}
    near = {"topology_key": "zone", "selector": {"match_expressions": [{"key": "app", "operator": "Exists"}]}}
    asked = msgspec.convert(
        {
            "name": "choosy",
            "pod": {"image": "i", "labels": {"app": "web"}},
            "node_affinity": {"required": [zone, this], "preferred": [{"weight": 7, "term": zone}]},
            "pod_affinity": {"required": [near], "preferred": [{"weight": 3, "term": near}]},
            "pod_anti_affinity": {"required": [{"topology_key": "kubernetes.io/hostname"}]},
            "topology_spread": [spread],
        },
        PodRequest,
    )
    fields = constraint_fields(asked)
    pod = await hand.create(hand.held("choosy"), **fields)

    found = (await hand.api("GET", f"{{ns}}/pods/{pod.metadata.name}"))["spec"]
    assert {name: found[name] for name in fields} == fields


# --- what admission refuses ------------------------------------------------------------------------------------------


async def refused(hand: Hand, name: str) -> str:
    """The code that a create is refused with, once admission has learnt of the new object."""
    for attempt in range(200):
        try:
            await hand.create(hand.held(f"{name}-{attempt}"))
        except Refused as error:
            return error.code
        await asyncio.sleep(0.05)
    raise AssertionError("every create was accepted")


async def test_a_quota_is_recognised(hand: Hand) -> None:
    """By what the API server has said for years."""
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    await hand.api("POST", "{ns}/resourcequotas", quota)

    assert await refused(hand, "quota") == "quota"


async def test_a_limit_range_is_recognised(hand: Hand) -> None:
    """Permanent: only the user can ask for less."""
    limits = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"memory": "8Mi"}}]}}
    await hand.api("POST", "{ns}/limitranges", limits)

    assert await refused(hand, "limits") == "limit-range"


async def test_the_pod_security_standard_restricted_admits_our_pods_and_only_such(hand: Hand) -> None:
    """The second wall: our pods pass it, a root pod does not."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await hand.api("PATCH", "{ns}", label, content_type="application/merge-patch+json")
    held = hand.held("restricted")
    await hand.create(held)

    body = msgspec.json.decode(podspec.manifest(hand.held("root"), epoch=EPOCH))
    body["spec"]["securityContext"] = body["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(Refused) as caught:
        await hand.kube.create(hand.namespace, msgspec.json.encode(body))
    assert caught.value.code == "pod-security"


async def test_a_priority_class_that_is_not_there_is_recognised(hand: Hand) -> None:
    """Not ours to create."""
    with pytest.raises(Refused) as caught:
        await hand.create(hand.held("priority"), priorityClassName="no-such-class")

    assert caught.value.code == "priority-class"


async def test_a_namespace_that_ends_is_recognised(hand: Hand) -> None:
    """It has a machine-readable cause; a finalizer holds it for the test."""
    held = hand.held("holder")
    await hand.create(held)
    merge = "application/merge-patch+json"
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await hand.api("PATCH", f"{{ns}}/pods/{pod_of(held)}", hold, content_type=merge)
    await hand.api("DELETE", "{ns}")
    try:
        assert await refused(hand, "late") == "namespace-terminating"
    finally:
        await hand.api("PATCH", f"{{ns}}/pods/{pod_of(held)}", {"metadata": {"finalizers": None}}, content_type=merge)


async def test_a_policy_is_recognised(hand: Hand, control_plane: ControlPlane) -> None:
    """Whatever status its author chose."""
    name = f"no-{secrets.token_hex(3)}"
    expression = f"object.metadata.namespace != '{hand.namespace}'"
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "validations": [{"expression": expression, "message": "not here"}],
        },
    }
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    group = "/apis/admissionregistration.k8s.io/v1"
    kinds = (("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding))
    for kind, body in kinds:
        await hand.api("POST", f"{group}/{kind}", body)
    try:
        assert await refused(hand, "policy") == "policy"
    finally:
        for kind, _ in kinds:
            await hand.api("DELETE", f"{group}/{kind}/{name}")


async def test_without_rights_everything_is_an_alarm_and_no_rejection(
    hand: Hand, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A tenant's token may do nothing here: 403 of RBAC, told apart from every rule about the pod."""
    path = control_plane.write_kubeconfig(tmp_path / "tenant", control_plane.tenant_token)
    async with kube.connect(kubeconfig=str(path)) as transport:
        with pytest.raises(Refused) as caught:
            await Kube(transport).create(hand.namespace, podspec.manifest(hand.held("rights"), epoch=EPOCH))

    assert caught.value.code == "rbac"


# --- list and watch --------------------------------------------------------------------------------------------------


async def test_pages_of_a_list_carry_one_version_and_everything(hand: Hand) -> None:
    """Seven pods in pages of three."""
    names = {pod_of(held) for held in [hand.held(f"page-{i}") for i in range(7)] if await hand.create(held)}
    versions, found, after = set(), set(), ""
    while True:
        page = await hand.kube.page(PODS, limit=3, after=after)
        versions.add(page.version)
        found |= {pod.metadata.name for pod in page.items if pod.metadata.namespace == hand.namespace}
        after = page.more
        if not after:
            break

    assert found == names
    assert len(versions) == 1


async def test_a_watch_without_a_gap_over_a_killed_api_server(hand: Hand, control_plane: ControlPlane) -> None:
    """Pods are made before, during and after kill -9 and restart: the store ends up with exactly what is there."""
    informer: Informer[Pod] = Informer(hand.kube, PODS, lambda _: None, rng=random.Random(2))
    task = asyncio.create_task(informer.run(), name="informer")
    made: set[str] = set()

    async def make(count: int) -> None:
        for _ in range(count):
            held = hand.held(f"gap-{len(made)}")
            with contextlib.suppress(OutcomeUnknown, Conflict):
                await hand.create(held)
            made.add(f"{hand.namespace}/{pod_of(held)}")

    try:
        await make(5)
        await control_plane.restart_apiserver()
        await make(5)

        async def same() -> bool:
            page = await hand.kube.page(PODS, limit=500)
            there = {f"{p.metadata.namespace}/{p.metadata.name}": p.metadata.uid for p in page.items}
            known = {key: pod.metadata.uid for key, pod in informer.store.objects.items()}
            return known == there and made <= known.keys()

        await wait_until(same, what="the store has what is there", timeout_s=60.0, every_s=0.2)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_nodes_are_read_with_what_a_decision_needs(hand: Hand) -> None:
    """Allocatable, conditions and labels of a real kubelet."""
    found: list[Node] = []

    async def ready() -> bool:
        """The servers of the session may have been away a moment ago: a kubelet says so later that it is back."""
        page = await hand.kube.page(NODES, limit=500)
        found[:] = [item for item in page.items if item.metadata.name == hand.node]
        return {c.type: c.status for c in found[0].status.conditions or ()}["Ready"] == "True"

    await wait_until(ready, what="the node is read as ready")
    assert (found[0].status.allocatable or {})["cpu"] == "8"
