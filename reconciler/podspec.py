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
from contracts.messages import encode
from contracts.requests import PodRequest, PodTemplate, Toleration
from reconciler import marks
from reconciler.objects import Pod
from reconciler.plan import pod_of

SCHEDULER = "gpubus"
CONTAINER = "main"
CARD_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""The runtime reads the second one; CUDA itself reads the first, which an image may have set to an index."""
SIMULATED = f"{marks.DOMAIN}simulated-"
"""Annotations that tell a simulated kubelet how long to run a pod: the only ones in our domain that users may set."""
_OURS = re.compile(r"(.*\.)?gpubus\.dev/")
RESERVED_PREFIXES = ("NVIDIA_", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_", "CUDA_DEVICE_ORDER", "LD_", "GPUBUS_")

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


DEFAULT_RULES = PodRules()


def manifest(request: RequestState, *, epoch: str, rules: PodRules = DEFAULT_RULES) -> bytes:
    """The pod, as JSON for a create.

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
    _check_size(request, own)
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod_of(request),
                "namespace": request.accepted.namespace,
                "labels": {**asked.pod.labels, marks.MANAGED: "true", marks.REQUEST: asked.name},
                "annotations": {**asked.pod.annotations, **own},
            },
            "spec": _spec(asked, rules),
        },
        order="deterministic",
    )


def assignment(request: RequestState, *, epoch: str) -> dict[str, str]:
    """What the binding writes into the pod.

    Raises:
        NotRenderable: there is no placement.
    """
    placement = request.placement
    if placement is None:
        raise NotRenderable(f"{request.uid} has no placement to bind to")
    return marks.binding_marks(
        request.uid, placement.slices, node=placement.node, epoch=epoch, sequence=request.decided_at
    )


def binding(request: RequestState, assigned: dict[str, str], *, pod_uid: str) -> bytes:
    """The binding, as JSON: node and cards in one write, for this life of the pod only."""
    marks.checked(assigned)
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod_of(request), "uid": pod_uid, "annotations": assigned},
            "target": {"kind": "Node", "name": request.placement.node if request.placement else ""},
        },
        order="deterministic",
    )


def as_bound(pod: Pod, request: RequestState, assigned: dict[str, str]) -> Pod:
    """The pod as an accepted binding left it; the API server does not send it back."""
    metadata = replace(pod.metadata, annotations={**(pod.metadata.annotations or {}), **assigned})
    node = request.placement.node if request.placement else ""
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=node))


# --- the parts of a pod ----------------------------------------------------------------------------------------------


def _spec(asked: PodRequest, rules: PodRules) -> dict[str, Any]:
    security = SECURITY if rules.run_as_user is None else {**SECURITY, "runAsUser": rules.run_as_user}
    return {
        "schedulerName": SCHEDULER,
        "restartPolicy": asked.pod.restart_policy,
        "terminationGracePeriodSeconds": max(1, asked.pod.grace_s),  # 0 would make each delete a forced one
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{**_container(asked.pod), "securityContext": security}],
        **({"nodeSelector": asked.node_selector} if asked.node_selector else {}),
        **({"tolerations": [_toleration(t) for t in asked.tolerations]} if asked.tolerations else {}),
    }


def _container(template: PodTemplate) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": template.image,
        **({"command": template.command} if template.command else {}),
        **({"args": template.args} if template.args else {}),
        **({"workingDir": template.working_dir} if template.working_dir else {}),
        "env": [*({"name": e.name, "value": e.value} for e in template.env), *map(_card_variable, CARD_VARIABLES)],
        "resources": _resources(template),
    }


def _card_variable(name: str) -> dict[str, Any]:
    """Resolved at each container start; absent or empty means no card, also where the image says `all`."""
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{marks.CARDS}']"}
    return {"name": name, "valueFrom": {"fieldRef": field}}


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


def _check_size(request: RequestState, own: dict[str, str]) -> None:
    """Of the pod as it will be once bound: too late is when the binding has been accepted."""
    slices = request.placement.slices if request.placement else ()
    later = {marks.SHARES: marks.shares_text(slices), marks.CARDS: marks.cards_text(slices), marks.NONCE: "0" * 16}
    try:
        marks.checked(request.request.pod.annotations, own, later)
    except marks.BadMark as error:
        raise NotRenderable(str(error)) from error
