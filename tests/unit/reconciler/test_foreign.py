"""A pod of anybody as a request: what is read, what is refused, and when a pod may be bound at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.constraints import Expression, NodeTerm, PodExpression, PodSelector, PodTerm
from contracts.isolation import Assigned, pod_changes
from contracts.messages import encode
from contracts.requests import ExternalPod, PodRequest
from reconciler import podspec
from reconciler.foreign import (
    ForeignPod,
    Refused,
    mismatch,
    request_name,
    translate,
    uninjected,
    wants_us,
)
from scheduler.admission import Admitted, admit

CARD = "metadata.annotations['gpubus.dev/cards']"
INJECTED = [{"name": n, "valueFrom": {"fieldRef": {"fieldPath": CARD}}} for n in podspec.CARD_VARIABLES]


def pod(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> ForeignPod:
    """One container of 250m and 100Mi, with cards injected; `spec` overrides."""
    container = {"name": "c", "env": INJECTED, "resources": {"requests": {"cpu": "250m", "memory": "100Mi"}}}
    raw = {
        "metadata": {
            "name": "web-0",
            "namespace": "ns",
            "uid": "u-1",
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {"schedulerName": "gpubus", "containers": [container], **spec},
    }
    return msgspec.convert(raw, ForeignPod)


def read(*args: Any, **spec: Any) -> PodRequest:
    found = translate(pod(*args, **spec))
    assert isinstance(found, PodRequest), found
    return found


def test_it_asks_for_what_the_kubelet_counts() -> None:
    """The largest moment of the init sequence, and the overhead of the runtime class."""
    found = read(
        {"gpubus.dev/share-milli": "500", "gpubus.dev/priority-class": "high"},
        {"app": "web", "gpubus.dev/memory-mib": "1000"},
        initContainers=[{"name": "i", "resources": {"requests": {"cpu": "1"}}}],
        overhead={"memory": "20Mi"},
    )

    assert (found.pod.cpu_milli, found.pod.memory_mib) == (1000, 120)
    assert (found.gpu.cards, found.gpu.share_milli, found.gpu.memory_mib) == (1, 500, 1000)
    assert (found.priority_class, found.pod.labels) == ("high", {"app": "web"})
    assert found.external == ExternalPod(name="web-0", uid="u-1")


def test_a_pod_that_names_no_card_gets_none() -> None:
    assert read().gpu.cards == 0


def test_what_is_read_passes_admission() -> None:
    """Also with labels and tolerations that a request of a user may not have: the pod has them already."""
    found = read(
        {"gpu-fraction": "0.5"},
        {"app.kubernetes.io/name": "web"},
        tolerations=[{"operator": "Exists", "tolerationSeconds": 300}],
    )
    verdict = admit(encode(found))

    assert isinstance(verdict, Admitted), verdict


def test_constraints_are_read_in_our_spelling() -> None:
    """Kubernetes' own words: nothing of them is lost."""
    required, preferred = (f"{k}DuringSchedulingIgnoredDuringExecution" for k in ("required", "preferred"))
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    near = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    found = read(
        affinity={
            "nodeAffinity": {
                required: {"nodeSelectorTerms": [term]},
                preferred: [{"weight": 7, "preference": term}],
            },
            "podAntiAffinity": {required: [near], preferred: [{"weight": 3, "podAffinityTerm": near}]},
        },
        topologySpreadConstraints=[{"topologyKey": "zone", "maxSkew": 2, "labelSelector": near["labelSelector"]}],
        nodeSelector={"disk": "fast"},
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    )

    ours = NodeTerm(match_expressions=(Expression(key="zone", operator="In", values=("a",)),))
    theirs = PodTerm(topology_key="zone", selector=PodSelector(match_labels={"app": "db"}))
    assert found.node_affinity.required == (ours,)
    assert [(p.weight, p.term) for p in found.node_affinity.preferred] == [(7, ours)]
    assert found.pod_anti_affinity.required == (theirs,)
    assert [(p.weight, p.term) for p in found.pod_anti_affinity.preferred] == [(3, theirs)]
    assert [(s.max_skew, s.selector) for s in found.topology_spread] == [(2, theirs.selector)]
    assert (found.node_selector, found.tolerations[0].key) == ({"disk": "fast"}, "gpu")


HALF = {"gpubus.dev/share-milli": "500"}
NEAR = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("annotations", "spec", "says"),
    [
        ({"gpubus.dev/share-mili": "5"}, {}, "did you mean gpubus.dev/share-milli?"),
        ({**HALF, "gpu-fraction": "0.3"}, {}, "gpubus.dev says 500, KAI says 300"),
        (HALF, {"resourceClaims": [{"name": "c"}]}, "claims of devices"),
        (HALF, {"containers": [{"name": "c", "resources": {"limits": {"rdma/hca": 1}}}]}, "rdma/hca is not counted"),
        (
            HALF,
            {"affinity": {"podAffinity": {REQUIRED: [{**NEAR, "namespaces": ["x", "ns"]}]}}},
            "namespaces are not looked at: x",
        ),
        (HALF, {"affinity": {"podAffinity": {REQUIRED: [{**NEAR, "namespaceSelector": {}}]}}}, "namespaceSelector"),
        (HALF, {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, "labelSelector is missing"),
        (HALF, {"topologySpreadConstraints": [{**NEAR, "minDomains": 3}]}, "minDomains 3 is not understood, 1 is"),
        (HALF, {"topologySpreadConstraints": [{**NEAR, "nodeAffinityPolicy": "Ignore"}]}, "nodeAffinityPolicy Ignore"),
        (HALF, {"topologySpreadConstraints": [{**NEAR, "nodeTaintsPolicy": "Honor"}]}, "nodeTaintsPolicy Honor"),
        ({"gpubus.dev/card-count": "65"}, {}, "<= 64"),
    ],
)
def test_what_cannot_be_honoured_is_refused(annotations: dict[str, str], spec: dict[str, Any], says: str) -> None:
    """Never passed by: placed without it, the pod would fail far from here."""
    found = translate(pod(annotations, **spec))

    assert isinstance(found, Refused)
    assert says in found.text


def test_label_keys_become_a_condition_on_the_pods_own_value() -> None:
    """As the API server merges them; merged already they are not there twice, and a label it lacks says nothing."""
    own = {"pod-template-hash": "7f9", "app": "web"}
    keys = {"matchLabelKeys": ["pod-template-hash", "absent"]}
    merged = {"key": "pod-template-hash", "operator": "In", "values": ["7f9"]}
    spread = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, **keys}
    again = {**spread, "labelSelector": {**spread["labelSelector"], "matchExpressions": [merged]}}  # type: ignore[dict-item]  # a selector is a dict
    away = {**NEAR, "mismatchLabelKeys": ["app"]}

    first, second = (read(HALF, own, topologySpreadConstraints=[one]).topology_spread for one in (spread, again))
    [term] = read(HALF, own, affinity={"podAntiAffinity": {REQUIRED: [away]}}).pod_anti_affinity.required
    assert first == second
    assert first[0].selector == PodSelector(
        match_labels={"app": "web"},
        match_expressions=(PodExpression(key="pod-template-hash", operator="In", values=("7f9",)),),
    )
    assert term.selector is not None
    assert term.selector.match_expressions == (PodExpression(key="app", operator="NotIn", values=("web",)),)


def test_the_own_namespace_may_be_named() -> None:
    [term] = read(HALF, affinity={"podAffinity": {REQUIRED: [{**NEAR, "namespaces": ["ns"]}]}}).pod_affinity.required

    assert term.topology_key == "zone"


def test_one_life_of_a_pod_is_one_request() -> None:
    """However often it is read; another life, or another pod, is another one."""
    other = msgspec.structs.replace
    first = pod()
    again = other(first, metadata=other(first.metadata, uid="u-2"))
    longest = other(first, metadata=other(first.metadata, name="x" * 250 + ".y"))

    assert request_name(first) == request_name(pod(HALF))
    assert len({request_name(first), request_name(again)}) == 2
    assert len(request_name(longest)) == 50
    assert isinstance(translate(longest), PodRequest)


def test_who_waits_for_us() -> None:
    """Named our scheduler, is not bound, not going, not ended, and carries nothing of ours."""
    change = msgspec.structs.replace
    base = pod()

    assert wants_us(base)
    assert not wants_us(pod(nodeName="n"))
    assert not wants_us(pod(schedulerName="default-scheduler"))
    assert not wants_us(pod({"gpubus.dev/uid": "x"}))
    assert not wants_us(change(base, metadata=change(base.metadata, deletion_timestamp="now")))
    assert not wants_us(change(base, status=change(base.status, phase="Failed")))


def test_only_what_was_placed_is_bound() -> None:
    """A request that somebody made up, or a pod that was changed since, binds nothing; the fields are named."""
    request = read(HALF)

    assert mismatch(pod(HALF), request) == ""
    assert mismatch(pod({"gpubus.dev/share-milli": "600"}), request) == "the pod asks for another gpu than its request"
    assert "gpubus.dev/x" in mismatch(pod({"gpubus.dev/x": "1"}), request)


@pytest.mark.parametrize(
    ("env", "lacks"),
    [
        (INJECTED, ""),
        ([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, *INJECTED], ""),
        ([*INJECTED, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], "NVIDIA_VISIBLE_DEVICES"),
        ([], "CUDA_VISIBLE_DEVICES"),
        (INJECTED[:1], "NVIDIA_VISIBLE_DEVICES"),
    ],
)
def test_a_container_that_would_see_all_cards_is_not_bound(env: list[dict[str, Any]], lacks: str) -> None:
    """The last of equal names counts; without any, the image's own `all` would."""
    found = uninjected(pod(containers=[{"name": "c", "env": env}]), podspec.CARD_SOURCES)

    assert (lacks in found) if lacks else found == ""


def test_an_init_container_counts_too() -> None:
    assert "container i" in uninjected(pod(initContainers=[{"name": "i"}]), podspec.CARD_SOURCES)


def test_an_isolations_variables_and_folders_must_be_there() -> None:
    """Cards that a token server or MPS shares are for pods that were prepared for it."""
    changes = pod_changes("hami-core", Assigned(pod="ns/p", slices=()))
    mounts = [(mount.host_path, mount.path) for mount in changes.mounts]
    fixed = [{"name": e.name, "value": e.value} for e in changes.env]
    volumes = [{"name": "v", "hostPath": {"path": mounts[0][0]}}]
    whole = {"name": "c", "env": [*fixed, *INJECTED], "volumeMounts": [{"name": "v", "mountPath": mounts[0][1]}]}
    wanted = podspec.sources(changes)

    assert uninjected(pod(containers=[whole], volumes=volumes), wanted, mounts) == ""
    assert "is not mounted" in uninjected(pod(containers=[whole]), wanted, mounts)
    assert "is not set" in uninjected(pod(volumes=volumes), wanted, mounts)
