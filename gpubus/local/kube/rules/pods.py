"""Pods: defaults, what may change, how they are deleted.

Binding is in `binding.py`. What is not emulated: volumes, probes, security contexts, service accounts and
images are stored as they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpubus.local.kube.meta import check_metadata, timestamp
from gpubus.local.kube.quantity import is_whole, milli
from gpubus.local.kube.rules.admission import injected
from gpubus.local.kube.rules.base import Rules, checked
from gpubus.local.kube.rules.resizing import qos_class, resized
from gpubus.local.kube.status import Cause, forbidden_field, invalid_value, refuse, required

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubus.local.kube.rules.base import Write

__all__ = ["PodRules", "grace_s", "is_finished", "set_condition"]

_TOLERATED_S = 300
_ENDED = frozenset({"Succeeded", "Failed"})

_SPEC_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CONTAINER_DEFAULTS: dict[str, Any] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
}
_GATED = {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


class PodRules(Rules):
    """Defaults, validation and the split between spec and status."""

    def create(self, write: Write) -> dict[str, Any]:
        """A pending pod with the server's defaults filled in."""
        obj, spec = write.obj, _default_spec(injected(write.obj.get("spec") or {}))
        status: dict[str, Any] = {"phase": "Pending", "qosClass": qos_class(spec["containers"])}
        pod = {**obj, "metadata": {**obj["metadata"], "generation": 1}, "spec": spec, "status": status}
        refuse(write.resource, write.name, [*check_metadata(pod), *_spec_causes(spec)])
        if spec.get("schedulingGates"):
            return set_condition(pod, "PodScheduled", "False", write.now, **_GATED)
        return pod

    def update(self, write: Write) -> dict[str, Any]:
        """Through `status`: status and metadata; through the pod: metadata and the little of a spec that may change."""
        old = write.before
        if write.subresource == "status":
            return checked(replace(write, obj={**write.obj, "spec": old["spec"]}))
        pod = {**write.obj, "status": old["status"]}
        if write.subresource == "resize":
            return resized(pod, old, write)
        refuse(write.resource, write.name, [*check_metadata(pod), *_change_causes(pod["spec"], old["spec"])])
        if pod["spec"] == old["spec"]:
            return pod
        return {**pod, "metadata": {**pod["metadata"], "generation": old["metadata"].get("generation", 0) + 1}}


def grace_s(pod: dict[str, Any], asked: int | None) -> int:
    """Seconds from the deletion request to the end.

    A pod without a node, or one that has ended, needs none: there is nothing to stop.
    """
    if not pod["spec"].get("nodeName") or is_finished(pod):
        return 0
    return int(pod["spec"]["terminationGracePeriodSeconds"]) if asked is None else max(asked, 0)


def is_finished(pod: dict[str, Any]) -> bool:
    """Whether its containers have ended for good."""
    return pod["status"].get("phase") in _ENDED


def set_condition(pod: dict[str, Any], kind: str, value: str, now: float, **more: str) -> dict[str, Any]:
    """The pod with one status condition set; the transition time moves only when the value changes."""
    conditions = pod["status"].get("conditions") or []
    old = next((c for c in conditions if c["type"] == kind), None)
    moved = old is None or old["status"] != value or not old.get("lastTransitionTime")
    at = timestamp(now) if moved or old is None else old["lastTransitionTime"]
    new = {"type": kind, "status": value, "lastProbeTime": None, "lastTransitionTime": at, **more}
    kept = [new if c["type"] == kind else c for c in conditions]
    return {**pod, "status": {**pod["status"], "conditions": kept if old else [*kept, new]}}


def _default_spec(spec: dict[str, Any]) -> dict[str, Any]:
    containers = [_default_container(c) for c in spec.get("containers") or []]
    return {**_SPEC_DEFAULTS, **spec, "containers": containers, "tolerations": _tolerations(spec)}


def _default_container(container: dict[str, Any]) -> dict[str, Any]:
    """A limit without a request is also the request."""
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        resources = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}
    return {**_CONTAINER_DEFAULTS, **container, "resources": resources}


def _tolerations(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Every pod tolerates a lost node for five minutes unless it says otherwise."""
    given = list(spec.get("tolerations") or [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        named = [t for t in given if t.get("key") in {key, None, ""} and t.get("effect") in {"NoExecute", None, ""}]
        if not named:
            lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_S}
            given.append({"key": key, **lost})
    return given


def _spec_causes(spec: dict[str, Any]) -> Iterator[Cause]:
    if not spec["containers"]:
        yield required("spec.containers")
    for index, container in enumerate(spec["containers"]):
        yield from _container_causes(f"spec.containers[{index}]", container)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def _container_causes(field: str, container: dict[str, Any]) -> Iterator[Cause]:
    for name in ("name", "image"):
        if not container.get(name):
            yield required(f"{field}.{name}")
    resources = container["resources"]
    for side in ("limits", "requests"):
        for kind, quantity in (resources.get(side) or {}).items():
            yield from _quantity_causes(f"{field}.resources.{side}[{kind}]", kind, quantity)
    yield from _overcommit_causes(f"{field}.resources", resources)


def _quantity_causes(field: str, kind: str, quantity: object) -> Iterator[Cause]:
    try:
        whole = is_whole(quantity)
    except ValueError:
        yield invalid_value(field, quantity, "quantities must match the regular expression of resource quantities")
        return
    if "/" in kind and not whole:
        yield invalid_value(field, quantity, "must be an integer")


def _overcommit_causes(field: str, resources: dict[str, Any]) -> Iterator[Cause]:
    """Extended resources (a name with a domain) cannot be overcommitted: request and limit are the same."""
    limits = resources.get("limits") or {}
    for kind, quantity in (resources.get("requests") or {}).items():
        if "/" not in kind:
            continue
        if kind not in limits:
            yield required(f"{field}.limits", "Limit must be set for non overcommitable resources")
        elif milli(limits[kind]) != milli(quantity):
            yield invalid_value(f"{field}.requests", quantity, f"must be equal to {kind} limit of {limits[kind]}")


def _change_causes(after: dict[str, Any], before: dict[str, Any]) -> Iterator[Cause]:
    gates, had = after.get("schedulingGates") or [], before.get("schedulingGates") or []
    if any(gate not in had for gate in gates):
        yield forbidden_field("spec.schedulingGates", "only deletion is allowed, but found new scheduling gate")
    tolerations, had = after.get("tolerations") or [], before.get("tolerations") or []
    if any(toleration not in tolerations for toleration in had):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    if _frozen(after, gated=bool(gates)) != _frozen(before, gated=bool(gates)):
        yield forbidden_field("spec", _IMMUTABLE)


def _frozen(spec: dict[str, Any], *, gated: bool) -> dict[str, Any]:
    """The part of a spec that no update may change; a gated pod's node selector may still be narrowed."""
    free = {"schedulingGates", "tolerations", "activeDeadlineSeconds"} | ({"nodeSelector"} if gated else set())
    rest = {key: value for key, value in spec.items() if key not in free}
    return {**rest, "containers": [{**c, "image": ""} for c in spec["containers"]]}
