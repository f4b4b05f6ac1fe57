"""The `resize` subresource of pods: CPU and memory of containers change in place, and nothing else.

What else is sent along is dropped, annotations too. What is not emulated: the node's size (a real API server refuses
more than is allocatable), and conditions of a kubelet that defers or refuses; the change stands at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubus.local.kube.status import Cause, forbidden_field, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubus.local.kube.rules.base import Write

__all__ = ["qos_class", "resized"]

_MUTABLE = frozenset({"cpu", "memory"})


def resized(sent: dict[str, Any], old: dict[str, Any], write: Write) -> dict[str, Any]:
    """The pod with the resources that were sent; StatusError 422 for what cannot be changed so."""
    asked = {c["name"]: c.get("resources") or {} for c in sent["spec"].get("containers") or []}
    containers = [{**c, "resources": asked.get(c["name"], {})} for c in old["spec"]["containers"]]
    refuse(write.resource, write.name, _causes(containers, old["spec"]["containers"]))
    if containers == old["spec"]["containers"]:
        return old
    generation = old["metadata"].get("generation", 0) + 1
    return {
        **old,
        "metadata": {**old["metadata"], "generation": generation},
        "spec": {**old["spec"], "containers": containers},
    }


def qos_class(containers: list[dict[str, Any]]) -> str:
    """The pod's class of service, by what its containers ask for."""
    resources = [c["resources"] for c in containers]
    named = [
        r.get(side, {}).get(kind) for r in resources for side in ("requests", "limits") for kind in ("cpu", "memory")
    ]
    if not any(named):
        return "BestEffort"
    equal = all(r.get("requests") == r.get("limits") for r in resources)
    return "Guaranteed" if all(named) and equal else "Burstable"


def _causes(after: list[dict[str, Any]], before: list[dict[str, Any]]) -> Iterator[Cause]:
    if any(_fixed(new) != _fixed(old) for new, old in zip(after, before, strict=True)):
        yield forbidden_field("spec", "only cpu and memory resources are mutable")
    for index, (new, old) in enumerate(zip(after, before, strict=True)):
        for side in ("limits", "requests"):
            if _lost(new, old, side):
                yield forbidden_field(
                    f"spec.containers[{index}].resources.{side}", f"resource {side} cannot be removed"
                )
    if qos_class(after) != qos_class(before):
        yield forbidden_field("spec", "Pod QOS Class may not change as a result of resizing")


def _fixed(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    resources = container["resources"]
    return {
        side: {kind: amount for kind, amount in (resources.get(side) or {}).items() if kind not in _MUTABLE}
        for side in ("limits", "requests")
    }


def _lost(new: dict[str, Any], old: dict[str, Any], side: str) -> bool:
    return bool((old["resources"].get(side) or {}).keys() - (new["resources"].get(side) or {}).keys())
