"""Pods and what is seen of them, for tests of the reconciler: drawn from a request, as Kubernetes would have them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from bus.ledger.state import RequestState
from reconciler import podspec
from reconciler.objects import (
    Container,
    ContainerState,
    ContainerStatus,
    Metadata,
    Node,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
    Terminated,
    Waiting,
)
from reconciler.plan import pod_of
from reconciler.seen import Seen, look
from tests.builders.ledger import Cluster, cluster, node, request

POD_UID = "11111111-2222-3333-4444-555555555555"


def one_placed(**fields: Any) -> tuple[Cluster, RequestState]:
    """A ledger with one request on one of two nodes with two cards each."""
    world = cluster(node("n1").gpus(2), node("n2").gpus(2))
    asked = request(fields.pop("name", "train")).share(500).gpu_memory(1000)
    return world, world.hold(asked, fields.pop("on", "n1"), *fields.pop("cards", (0,)))


def created(held: RequestState, *, epoch: str, version: int = 10, uid: str = POD_UID) -> Pod:
    """The pod as a create brings it back."""
    pod = msgspec.json.decode(podspec.manifest(held, epoch=epoch), type=Pod)
    return replace(pod, metadata=replace(pod.metadata, uid=uid, resource_version=str(version)))


def bound(held: RequestState, *, epoch: str, version: int = 11, phase: str = "Pending", uid: str = POD_UID) -> Pod:
    """The pod after our binding."""
    pod = podspec.as_bound(
        created(held, epoch=epoch, version=version, uid=uid), held, podspec.assignment(held, epoch=epoch)
    )
    return replace(pod, status=PodStatus(phase=phase))


def binding_of(held: RequestState, pod_uid: str, *, epoch: str) -> bytes:
    """The binding of a placed request."""
    return podspec.binding(held, podspec.assignment(held, epoch=epoch), pod_uid=pod_uid)


def with_status(pod: Pod, phase: str, **fields: Any) -> Pod:
    """The same pod, further on."""
    return replace(pod, status=PodStatus(phase=phase, **fields))


def terminating(pod: Pod) -> Pod:
    """The same pod while it is being deleted."""
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-11-30T12:00:00Z"))


def foreign(held: RequestState, *, on: str = "") -> Pod:
    """A stranger's pod with the name of ours."""
    metadata = Metadata(name=pod_of(held), namespace="default", uid="f0e16000", resource_version="5")
    return Pod(metadata=metadata, spec=PodSpec(node_name=on), status=PodStatus(phase="Pending"))


def seen(held: RequestState, epoch: str, **fields: Any) -> Seen:
    """Our bound pod as seen, with fields changed."""
    return replace(look(bound(held, epoch=epoch)), **fields)


def stranger(
    name: str, *, on: str = "n1", phase: str = "Running", version: int = 1, uid: str = "", **asked: str
) -> Pod:
    """A pod of somebody else that asks for something."""
    return Pod(
        metadata=Metadata(name=name, namespace="other", uid=uid or f"uid-{name}", resource_version=str(version)),
        spec=PodSpec(node_name=on, containers=(container(**asked),)),
        status=PodStatus(phase=phase),
    )


def container(name: str = "c", **asked: str) -> Container:
    """A container that asks for `cpu="1"`, `memory="1Gi"`."""
    return Container(name=name, resources=Resources(requests=dict(asked)))


def waiting(reason: str) -> ContainerStatus:
    """A container that does not run yet."""
    return ContainerStatus(name="main", state=ContainerState(waiting=Waiting(reason=reason)))


def terminated(code: int, reason: str = "") -> ContainerStatus:
    """A container that ended."""
    return ContainerStatus(name="main", state=ContainerState(terminated=Terminated(exit_code=code, reason=reason)))


def kube_node(name: str, *, version: int = 1, **parts: Any) -> Node:
    """A node object, from JSON-shaped parts."""
    raw = {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, **parts}
    return msgspec.convert(raw, Node)
