"""Namespaces: active from the first moment, and labelled with their own name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubus.local.kube.meta import with_metadata
from gpubus.local.kube.rules.base import Rules, checked

if TYPE_CHECKING:
    from gpubus.local.kube.rules.base import Write

__all__ = ["NamespaceRules"]


class NamespaceRules(Rules):
    """Defaults of a namespace."""

    def create(self, write: Write) -> dict[str, Any]:
        """Active, with the label that selectors of policies use."""
        obj = checked(write)
        meta = obj["metadata"]
        labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
        body = {**obj, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        return with_metadata(body, labels=labels)
