"""Nodes and pods as an API server keeps them, as many as wanted and within seconds: written into its etcd in batches.

In: names, requests of a ledger. Out: objects with the size that real ones have (images of a node, managed fields,
conditions), under the keys where the API server looks; it reads JSON as well as its own binary form. An API server that
runs meanwhile sees them come like any others.
"""

from __future__ import annotations

import base64
import itertools
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from bus.ledger.state import RequestState
from reconciler import podspec
from reconciler.podspec import PodRules
from tests.servers.http import call

PER_WRITE = 64
"""Objects in a transaction of etcd, which takes 128 operations and 1.5 MiB."""
RULES = PodRules(run_as_user=65_532)
_NOW = "2025-11-30T12:00:00Z"
_IMAGES = 25
"""Of a node's images the kubelet tells 50; 25 have been seen more often."""

Stored = tuple[str, dict[str, Any]]
"""Key in etcd, object."""


def node(name: str) -> Stored:
    """A node of eight cards that is Ready, 5 KiB."""
    size = {"cpu": "128", "memory": "1031508Ki", "pods": "110", "ephemeral-storage": "1843269236Ki"}
    conditions = [
        _condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        _condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        _condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        _condition("Ready", "True", "KubeletReady"),
    ]
    labels = {
        "gpubus.dev/cards": "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "bare.8xa100",
        "topology.kubernetes.io/zone": f"zone-{ord(name[-1]) % 3}",
    }
    images = [
        {"names": [f"registry.example/team/image-{n}@sha256:{n:064x}"], "sizeBytes": 10**8} for n in range(_IMAGES)
    ]
    status = {"allocatable": size, "capacity": size, "conditions": conditions, "images": images}
    metadata = {**_metadata(name, labels, "kubelet"), "managedFields": _managed("kubelet", 14)}
    spec = {"podCIDR": "10.0.0.0/24", "providerID": f"metal:///{name}"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}
    return f"/registry/minions/{name}", body


def pod_of(request: RequestState, epoch: str) -> Stored:
    """The pod of a placed request, bound and running, 5 KiB."""
    made = msgspec.json.decode(podspec.manifest(request, epoch=epoch, rules=RULES))
    made["metadata"]["annotations"] |= podspec.assignment(request, epoch=epoch)
    made["spec"]["nodeName"] = request.placement.node if request.placement else ""
    return _running(made)


def stranger(number: int, on: str, namespace: str) -> Stored:
    """A daemon's pod, which counts as foreign use."""
    container = {"name": "agent", "image": "registry.example/agent:1", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"name": f"agent-{number:05d}", "namespace": namespace, "labels": {"app": "agent"}}
    spec = {"containers": [container], "nodeName": on, "schedulerName": "default-scheduler"}
    return _running({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


async def write(etcd: str, objects: Iterable[Stored]) -> None:
    """Put them there, `PER_WRITE` in a transaction. Raises RuntimeError when etcd does not take one."""
    iterator = iter(objects)
    while batch := list(itertools.islice(iterator, PER_WRITE)):
        puts = [{"requestPut": {"key": _text(key.encode()), "value": _text(_json(body))}} for key, body in batch]
        answer = await call("POST", f"{etcd}/v3/kv/txn", body={"compare": [], "success": puts})
        if answer.status != 200:
            raise RuntimeError(f"etcd: {answer.status} {answer.body}")


def _running(made: dict[str, Any]) -> Stored:
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    labels = made["metadata"].get("labels", {})
    made["metadata"] |= _metadata(name, labels, namespace) | {"managedFields": _managed("gpubus", 10)}
    made["spec"] |= {"dnsPolicy": "ClusterFirst", "serviceAccountName": "default"}
    [container] = made["spec"]["containers"]
    state = {"running": {"startedAt": _NOW}}
    done = {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"{container['image']}@sha256:{0:064x}",
        "containerID": f"containerd://{uuid.uuid5(uuid.NAMESPACE_OID, name).hex * 2}",
        "ready": True,
        "restartCount": 0,
        "started": True,
        "state": state,
    }
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    made["status"] = {
        "phase": "Running",
        "conditions": [_condition(kind, "True", "") for kind in kinds],
        "containerStatuses": [done],
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "startTime": _NOW,
        "qosClass": "Burstable",
    }
    return f"/registry/pods/{namespace}/{name}", made


def _metadata(name: str, labels: dict[str, str], of: str) -> dict[str, Any]:
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{of}/{name}"))
    return {"name": name, "uid": uid, "creationTimestamp": _NOW, "labels": labels}


def _condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    said = {"reason": reason, "message": f"{reason} on this node"} if reason else {}
    return {"type": kind, "status": status, "lastTransitionTime": _NOW, **said}


def _managed(manager: str, fields: int) -> list[dict[str, Any]]:
    """As long as those of an object with so many fields; nobody reads them."""
    owned: dict[str, object] = {
        f"f:field-{number}": {".": {}, "f:status": {}, "f:type": {}} for number in range(fields)
    }
    one = {"apiVersion": "v1", "fieldsType": "FieldsV1", "operation": "Update", "time": _NOW}
    return [
        {**one, "manager": manager, "fieldsV1": {"f:metadata": owned}},
        {**one, "manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": owned}},
    ]


def changed_nodes(names: Iterable[str], second: int) -> Iterator[Stored]:
    """The same nodes after another report of their kubelets: a heartbeat time, and nothing that matters."""
    for name in names:
        key, body = node(name)
        for condition in body["status"]["conditions"]:
            condition["lastHeartbeatTime"] = f"2025-11-30T13:{second // 60:02d}:{second % 60:02d}Z"
        yield key, body


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _json(body: object) -> bytes:
    return msgspec.json.encode(body)
