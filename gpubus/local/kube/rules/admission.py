"""What the admission policy of an installation puts into a pod that names our scheduler; the chart has the real one.

A simulated machine starts no process and reads no variable. It is here because the reconciler binds a pod of somebody
else only when its containers read their cards from the assignment, with `gpubus local` as with a real cluster.
"""

from __future__ import annotations

from typing import Any

__all__ = ["injected"]

_CARDS = "metadata.annotations['gpubus.dev/cards']"
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def injected(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with both variables as the last of their names in every container; others' pods are left alone."""
    if spec.get("schedulerName") != "gpubus":
        return spec
    lists = {key: [_container(c) for c in spec[key]] for key in ("containers", "initContainers") if spec.get(key)}
    return {**spec, **lists}


def _container(container: dict[str, Any]) -> dict[str, Any]:
    env = list(container.get("env") or [])
    last = {entry.get("name"): entry for entry in env}
    missing = [name for name in _VARIABLES if _source(last.get(name, {})) != _CARDS]
    added = [{"name": n, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": _CARDS}}} for n in missing]
    return {**container, "env": [*env, *added]} if added else container


def _source(entry: dict[str, Any]) -> str:
    field = (entry.get("valueFrom") or {}).get("fieldRef") or {}
    return str(field.get("fieldPath", ""))
