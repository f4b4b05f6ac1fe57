"""pods/binding: the one-way door between a pod and a node.

Preconditions first, then the pod's own state, then one write of node, annotations, labels and
`PodScheduled` together. Neither the node nor the metadata that is merged in is checked: the real server
does not either, so a pod bound with an illegal annotation key can never be updated again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubus.local.kube.meta import subdomain_cause, with_metadata
from gpubus.local.kube.resources import PODS
from gpubus.local.kube.rules.pods import set_condition
from gpubus.local.kube.status import StatusError, bad_request, conflict

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["bind", "check_binding", "check_preconditions"]


def check_binding(name: str, binding: Mapping[str, Any]) -> None:
    """What is wrong with the Binding object itself; 400, or 500 as the real server answers for its target."""
    if (binding.get("metadata") or {}).get("name", name) != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if target.get("kind", "") not in {"Node", ""}:
        shown = target["kind"]
        raise StatusError(500, "", f'target.kind: Unsupported value: "{shown}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        raise StatusError(500, "", "target.name: Required value")
    if cause := subdomain_cause("target.name", target["name"]):
        raise StatusError(500, "", f"{cause['field']}: {cause['message']}")


def check_preconditions(pod: dict[str, Any], binding: Mapping[str, Any]) -> None:
    """Uid and resourceVersion of the Binding must be those of the pod, where given; 409 otherwise."""
    meta, sent = pod["metadata"], binding.get("metadata") or {}
    for label, field in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
        wanted, found = sent.get(field), meta[field]
        if wanted and wanted != found:
            why = f"{label} in precondition: {wanted}, {label} in object meta: {found}"
            key = f"/registry/pods/{meta['namespace']}/{meta['name']}"
            text = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
            raise conflict(PODS, meta["name"], f"{text}Precondition failed: {why}")


def bind(pod: dict[str, Any], binding: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The bound pod; 409 when it is bound already, being deleted, or gated."""
    meta, sent = pod["metadata"], binding.get("metadata") or {}
    if refusal := _refusal(pod):
        raise conflict(PODS, meta["name"], f"pod {meta['name']} {refusal}", subresource="binding")
    merged: dict[str, Any] = {}
    for field in ("labels", "annotations"):
        if given := sent.get(field):
            merged[field] = {**(meta.get(field) or {}), **given}
    bound = {**pod, "spec": {**pod["spec"], "nodeName": binding["target"]["name"]}}
    return with_metadata(set_condition(bound, "PodScheduled", "True", now), **merged)


def _refusal(pod: dict[str, Any]) -> str | None:
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return "has non-empty .spec.schedulingGates"
    return None
