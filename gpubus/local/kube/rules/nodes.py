"""Nodes: a new one is not ready until its kubelet says so; status is a subresource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpubus.local.kube.rules.base import Rules, checked

if TYPE_CHECKING:
    from gpubus.local.kube.rules.base import Write

__all__ = ["NodeRules"]

_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NodeRules(Rules):
    """Defaults of a node, and the split between spec and status."""

    def create(self, write: Write) -> dict[str, Any]:
        """Tainted unless it comes Ready; allocatable is the capacity unless it is given."""
        obj = checked(write)
        spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
        if not _is_ready(status):
            spec["taints"] = [*(spec.get("taints") or []), _NOT_READY]
        status.setdefault("allocatable", dict(status.get("capacity") or {}))
        return {**obj, "spec": spec, "status": status}

    def update(self, write: Write) -> dict[str, Any]:
        """Through `status` only the status changes, through the node itself everything else."""
        kept = "spec" if write.subresource == "status" else "status"
        return checked(replace(write, obj={**write.obj, kept: write.before.get(kept, {})}))


def _is_ready(status: dict[str, Any]) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or [])
