"""A placeholder as a pod, for a create. Pure.

It names its node itself: no scheduler is asked, so none preempts anybody for it, and a node that has no card left
makes it fail within milliseconds. It tolerates every taint, because a taint that evicts it frees a card under its
tenants, and it stands above every tenant in priority: the default class is the only one that a kubelet short of memory
never evicts. It runs under the pod security standard `restricted`.
"""

from __future__ import annotations

import hashlib

import msgspec

from reconciler.placeholders.values import LABEL, Rules
from reconciler.podspec import SECURITY

USER = 65_535
"""Of the pause image."""
GRACE_S = 5
"""A pause program ends at once. Never 0: a forced deletion gives the card away while the process lives."""


def pod_name(node: str, slot: int) -> str:
    """`gpubus-card-<12 hex digits of the node's digest>-<slot>`: whoever makes it twice finds it there."""
    return f"gpubus-card-{hashlib.sha256(node.encode()).hexdigest()[:12]}-{slot}"


def manifest(node: str, slot: int, rules: Rules) -> bytes:
    """The pod, as JSON."""
    resources = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi", rules.resource: "1"}}
    container = {"name": "card", "image": rules.image, "resources": resources}
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod_name(node, slot),
                "namespace": rules.namespace,
                "labels": {LABEL: str(slot), "app.kubernetes.io/part-of": "gpubus"},
                "annotations": {
                    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                    "karpenter.sh/do-not-disrupt": "true",
                },
            },
            "spec": {
                "nodeName": node,
                "priorityClassName": rules.priority_class,
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": GRACE_S,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "tolerations": [{"operator": "Exists"}],
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{**container, "securityContext": {**SECURITY, "runAsUser": USER}}],
                **({"runtimeClassName": rules.runtime_class} if rules.runtime_class else {}),
            },
        },
        order="deterministic",
    )


def patch(uid: str, annotations: dict[str, str | None]) -> bytes:
    """A merge patch of this life of a pod's annotations; None takes one away."""
    return msgspec.json.encode({"metadata": {"uid": uid, "annotations": annotations}})


def deletion(uid: str, version: str) -> bytes:
    """Of this life and this version: whoever has changed it since, as to keep it, is not overtaken."""
    return msgspec.json.encode({"preconditions": {"uid": uid, "resourceVersion": version}})
