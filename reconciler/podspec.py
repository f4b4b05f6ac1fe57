"""A placed request as a pod, and as the binding that gives it its node and cards.

What flows in: the request's state in the ledger, the ledger's epoch. What flows out: JSON for the API server.
Nothing reaches Kubernetes that is not named here: the template is a small form, and the pod is rendered under the
pod security standard `restricted`, without a service account token. Which cards a container sees comes from the
annotation that the binding writes, through the downward API, as the last entries of its environment, because the last
of equal names wins over the image, over envFrom and over what the user wrote.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.isolation import Entry, HostPaths, Mount, PodChanges
from contracts.messages import encode
from contracts.requests import PodRequest, PodTemplate, Toleration
from reconciler import marks, onbus
from reconciler.objects import CONTAINER, Pod
from reconciler.onbus import Login
from reconciler.plan import pod_of
from reconciler.terms import constraint_fields

SCHEDULER = "gpubus"
CARD_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""The runtime reads the second one; CUDA itself reads the first, which an image may have set to an index."""
CARD_SOURCES = dict.fromkeys(CARD_VARIABLES, f"metadata.annotations['{marks.CARDS}']")
"""Where each is read from: the annotation that the binding writes."""
SIMULATED = f"{marks.DOMAIN}simulated-"
"""Annotations that tell a simulated kubelet how long to run a pod: the only ones in our domain that users may set."""
_OURS = re.compile(r"(.*\.)?gpubus\.dev/")
RESERVED_PREFIXES = ("NVIDIA_", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_", "CUDA_DEVICE_", "LD_", "POD_MANAGER_", "GPUBUS_")

SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class NotRenderable(ValueError):  # noqa: N818 - named by what is the case
    """The request asks for something that no pod of ours may have; admission should have refused it."""


class PodRules(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation chooses for all pods."""

    run_as_user: int | None = None
    """Numeric user of every container; None leaves it to the image, which then must not be root."""
    paths: HostPaths = HostPaths()
    """Where the parts of the isolation backends lie on every node."""
    bus_login: bool = False
    """Replicas of functions and trainers of jobs get a token for the bus; see `reconciler.onbus`."""
    bus_ca: str = ""
    """Config map in their namespace with the certificate of the bus; empty = none."""


DEFAULT_RULES = PodRules()
NO_CHANGES = PodChanges()


def manifest(
    request: RequestState, *, epoch: str, rules: PodRules = DEFAULT_RULES, changes: PodChanges = NO_CHANGES
) -> bytes:
    """The pod, as JSON for a create. `changes` is what the isolation of its cards sets in it.

    Raises:
        NotRenderable: a reserved name, or annotations beyond what Kubernetes takes.
    """
    asked = request.request
    _check_names(asked.pod)
    own = marks.request_marks(
        request.uid,
        encode(asked),
        epoch=epoch,
        sequence=request.decided_at,
        traceparent=request.accepted.trace,
    )
    _check_size(request, own, changes)
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod_of(request),
                "namespace": request.accepted.namespace,
                "labels": {**asked.pod.labels, **labels_of(request)},
                "annotations": {**asked.pod.annotations, **own},
            },
            "spec": _spec(asked, rules, changes, request.accepted.namespace),
        },
        order="deterministic",
    )


def assignment(request: RequestState, *, epoch: str, changes: PodChanges = NO_CHANGES) -> dict[str, str]:
    """What the binding writes into the pod.

    Raises:
        NotRenderable: there is no placement.
    """
    placement = request.placement
    if placement is None:
        raise NotRenderable(f"{request.uid} has no placement to bind to")
    own = marks.binding_marks(
        request.uid, placement.slices, node=placement.node, epoch=epoch, sequence=request.decided_at
    )
    return own | marks.isolation_marks(changes.marks) | (_foreign(request, epoch) if request.request.external else {})


def _foreign(request: RequestState, epoch: str) -> dict[str, str]:
    """What a pod of ours is created with: a pod of somebody else gets it when it is bound."""
    asked, trace = encode(request.request), request.accepted.trace
    made = marks.request_marks(request.uid, asked, epoch=epoch, sequence=request.decided_at, traceparent=trace)
    return made | {marks.FOREIGN: "true"}


def sources(changes: PodChanges) -> dict[str, str]:
    """Where each variable of the platform is read from in a pod: a field, or `=<value>`."""
    from_fields = {
        entry.name: f"metadata.annotations['{marks.ISOLATION}{entry.name}']" if entry.marked else entry.field
        for entry in changes.env
    }
    return {entry.name: from_fields[entry.name] or f"={entry.value}" for entry in changes.env} | CARD_SOURCES


def labels_of(request: RequestState) -> dict[str, str]:
    """The labels by which a pod is found to be ours."""
    return {marks.MANAGED: "true", marks.REQUEST: request.request.name}


def binding(request: RequestState, assigned: dict[str, str], *, pod_uid: str) -> bytes:
    """The binding, as JSON: node and cards in one write, for this life of the pod only."""
    marks.checked(assigned)
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod_of(request), "uid": pod_uid, "annotations": assigned, **_labels(request)},
            "target": {"kind": "Node", "name": request.placement.node if request.placement else ""},
        },
        order="deterministic",
    )


def _labels(request: RequestState) -> dict[str, dict[str, str]]:
    return {"labels": labels_of(request)} if request.request.external else {}


def as_bound(pod: Pod, request: RequestState, assigned: dict[str, str]) -> Pod:
    """The pod as an accepted binding left it; the API server does not send it back."""
    metadata = replace(pod.metadata, annotations={**(pod.metadata.annotations or {}), **assigned})
    node = request.placement.node if request.placement else ""
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=node))


# --- the parts of a pod ----------------------------------------------------------------------------------------------


def _spec(asked: PodRequest, rules: PodRules, changes: PodChanges, namespace: str) -> dict[str, Any]:
    login = onbus.login_of(asked, namespace) if rules.bus_login else None
    volumes = [*map(_volume, changes.mounts), *([onbus.volume(rules.bus_ca)] if login else [])]
    security = SECURITY if rules.run_as_user is None else {**SECURITY, "runAsUser": rules.run_as_user}
    return {
        "schedulerName": SCHEDULER,
        "restartPolicy": asked.pod.restart_policy,
        "terminationGracePeriodSeconds": max(1, asked.pod.grace_s),  # 0 would make each delete a forced one
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        **({"serviceAccountName": login.account} if login else {}),
        "containers": [{**_container(asked.pod, changes, login, rules.bus_ca), "securityContext": security}],
        **({"volumes": volumes} if volumes else {}),
        **({"nodeSelector": asked.node_selector} if asked.node_selector else {}),
        **({"tolerations": [_toleration(t) for t in asked.tolerations]} if asked.tolerations else {}),
        **constraint_fields(asked),
    }


def _container(template: PodTemplate, changes: PodChanges, login: Login | None, ca: str) -> dict[str, Any]:
    env = [{"name": e.name, "value": e.value} for e in template.env] + (onbus.env_of(login, ca) if login else [])
    mounts = [*map(_volume_mount, changes.mounts), *([onbus.mount()] if login else [])]
    return {
        "name": CONTAINER,
        "image": template.image,
        **({"command": template.command} if template.command else {}),
        **({"args": template.args} if template.args else {}),
        **({"workingDir": template.working_dir} if template.working_dir else {}),
        "env": [*env, *map(_entry, changes.env), *map(_card_variable, CARD_VARIABLES)],
        "resources": _resources(template),
        **({"volumeMounts": mounts} if mounts else {}),
    }


def _card_variable(name: str) -> dict[str, Any]:
    """Resolved at each container start; absent or empty means no card, also where the image says `all`."""
    return _from_field(name, f"metadata.annotations['{marks.CARDS}']")


def _entry(entry: Entry) -> dict[str, Any]:
    """A variable of an isolation backend."""
    if entry.marked:
        return _from_field(entry.name, f"metadata.annotations['{marks.ISOLATION}{entry.name}']")
    return _from_field(entry.name, entry.field) if entry.field else {"name": entry.name, "value": entry.value}


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _volume(mount: Mount) -> dict[str, Any]:
    """A folder of the node. It must be there: one that the kubelet made would be empty, and hold nobody."""
    return {"name": mount.name, "hostPath": {"path": mount.host_path, "type": "Directory"}}


def _volume_mount(mount: Mount) -> dict[str, Any]:
    return {"name": mount.name, "mountPath": mount.path, "readOnly": mount.read_only}


def _resources(template: PodTemplate) -> dict[str, Any]:
    """Memory is guaranteed and bounded by the same number; CPU is guaranteed only, idle cores are free to use."""
    memory = {"memory": f"{template.memory_mib}Mi"} if template.memory_mib else {}
    cpu = {"cpu": f"{template.cpu_milli}m"} if template.cpu_milli else {}
    return {"requests": {**cpu, **memory}, "limits": memory}


def _toleration(toleration: Toleration) -> dict[str, str]:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value or None,
        "effect": toleration.effect,
    }
    return {name: text for name, text in fields.items() if text is not None}


# --- what is refused -------------------------------------------------------------------------------------------------


def _check_names(template: PodTemplate) -> None:
    for variable in template.env:
        if variable.name.upper().startswith(RESERVED_PREFIXES):
            raise NotRenderable(f"environment variable {variable.name} is set by the platform")
    for kind, names in (("label", template.labels), ("annotation", template.annotations)):
        taken = sorted(name for name in names if _OURS.match(name) and not name.startswith(SIMULATED))
        if taken:
            raise NotRenderable(f"{kind} {taken[0]} is in a domain of ours")


def _check_size(request: RequestState, own: dict[str, str], changes: PodChanges) -> None:
    """Of the pod as it will be once bound: too late is when the binding has been accepted."""
    slices = request.placement.slices if request.placement else ()
    later = {marks.SHARES: marks.shares_text(slices), marks.CARDS: marks.cards_text(slices), marks.NONCE: "0" * 16}
    later |= marks.isolation_marks(changes.marks)
    try:
        marks.checked(request.request.pod.annotations, own, later)
    except marks.BadMark as error:
        raise NotRenderable(str(error)) from error
