"""A simulated machine as the API shows it: the Node object, its readiness and its taints. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpubus.local.kube.meta import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Machine", "cordoned", "executing_taints", "lost", "node_object", "ready", "tolerated_s"]

_UNREACHABLE = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

# Clients with generated models insist on every field.
_NODE_INFO = {
    "machineID": "",
    "systemUUID": "",
    "bootID": "",
    "kernelVersion": "simulated",
    "osImage": "simulated",
    "containerRuntimeVersion": "simulated://1",
    "kubeletVersion": "v1.37.2",
    "kubeProxyVersion": "",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated node has. `extended` are extended resources, e.g. {"nvidia.com/gpu": 8}."""

    name: str
    cpu_milli: int = 32_000
    memory_mib: int = 262_144
    max_pods: int = 110
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    extended: Mapping[str, int] = {}


def node_object(machine: Machine, now: float) -> dict[str, Any]:
    """The Node of a machine whose kubelet has just registered and is ready."""
    size = {
        "cpu": f"{machine.cpu_milli}m",
        "memory": f"{machine.memory_mib}Mi",
        "pods": str(machine.max_pods),
        **{name: str(count) for name, count in machine.extended.items()},
    }
    labels = {"kubernetes.io/hostname": machine.name, "kubernetes.io/os": "linux", **machine.labels}
    node: dict[str, Any] = {
        "metadata": {"name": machine.name, "labels": labels},
        "spec": {"taints": [dict(t) for t in machine.taints]} if machine.taints else {},
        "status": {
            "capacity": size,
            "allocatable": dict(size),
            "addresses": [{"type": "Hostname", "address": machine.name}],
            "nodeInfo": _NODE_INFO,
        },
    }
    return ready(node, now)


def ready(node: dict[str, Any], now: float) -> dict[str, Any]:
    """The node with a kubelet that reports: Ready=True, no `unreachable` taint."""
    told = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return _without_taint(_with_ready(node, "True", now, told), _UNREACHABLE)


def lost(node: dict[str, Any], now: float) -> dict[str, Any]:
    """The node after its kubelet has been silent for the grace time: Ready=Unknown and two taints."""
    told = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    node = _without_taint(_with_ready(node, "Unknown", now, told), _UNREACHABLE)
    for effect in ("NoSchedule", "NoExecute"):
        node = _with_taint(node, {"key": _UNREACHABLE, "effect": effect, "timeAdded": timestamp(now)})
    return node


def cordoned(node: dict[str, Any], now: float) -> dict[str, Any]:
    """The node with the taint that belongs to `spec.unschedulable`, or without it."""
    has = any(t["key"] == _UNSCHEDULABLE for t in node["spec"].get("taints") or [])
    wants = bool(node["spec"].get("unschedulable"))
    if has == wants:
        return node
    taint = {"key": _UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": timestamp(now)}
    return _with_taint(node, taint) if wants else _without_taint(node, _UNSCHEDULABLE)


def executing_taints(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The taints that drive pods away."""
    return [t for t in node["spec"].get("taints") or [] if t.get("effect") == "NoExecute"]


def tolerated_s(pod: dict[str, Any], taints: list[dict[str, Any]]) -> float | None:
    """How long a pod may stay under these taints: 0 when one is not tolerated, None for ever."""
    limits = [_tolerated_s(pod["spec"].get("tolerations") or [], taint) for taint in taints]
    finite = [limit for limit in limits if limit is not None]
    return min(finite) if finite else None


def _tolerated_s(tolerations: list[dict[str, Any]], taint: dict[str, Any]) -> float | None:
    matching = [t for t in tolerations if _tolerates(t, taint)]
    if not matching:
        return 0.0
    limits = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
    return float(min(limits)) if limits else None


def _tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    if toleration.get("key") not in {None, "", taint["key"]}:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _with_ready(node: dict[str, Any], value: str, now: float, told: dict[str, str]) -> dict[str, Any]:
    times = {"lastHeartbeatTime": timestamp(now), "lastTransitionTime": timestamp(now)}
    condition = {"type": "Ready", "status": value, **times, **told}
    others = [c for c in node["status"].get("conditions") or [] if c["type"] != "Ready"]
    return {**node, "status": {**node["status"], "conditions": [*others, condition]}}


def _with_taint(node: dict[str, Any], taint: dict[str, Any]) -> dict[str, Any]:
    taints = [*(node["spec"].get("taints") or []), taint]
    return {**node, "spec": {**node["spec"], "taints": taints}}


def _without_taint(node: dict[str, Any], key: str) -> dict[str, Any]:
    spec = {k: v for k, v in node["spec"].items() if k != "taints"}
    taints = [t for t in node["spec"].get("taints") or [] if t["key"] != key]
    return {**node, "spec": {**spec, "taints": taints} if taints else spec}
