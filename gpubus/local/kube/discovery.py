"""What the API tells about itself: version, groups and resources, so that ordinary clients find their way."""

from __future__ import annotations

from typing import Any

from gpubus.local.kube.resources import RESOURCES, Resource

__all__ = ["describe"]

_VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2+gpubus.local",
    "platform": "linux/amd64",
}
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def describe(path: str) -> dict[str, Any] | None:
    """The answer to a discovery path; None when this is not one."""
    roots = {resource.root for resource in RESOURCES}
    if path == "/version":
        return _VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = sorted({(r.group, r.version) for r in RESOURCES if r.group})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*g) for g in groups]}
    return _resources(path) if path in roots else None


def _group(name: str, version: str) -> dict[str, Any]:
    served = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _resources(root: str) -> dict[str, Any]:
    found = [r for r in RESOURCES if r.root == root]
    listed = [entry for r in found for entry in _entries(r)]
    body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": found[0].api_version}
    return {**body, "resources": listed}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    common = {"singularName": resource.kind.lower(), "namespaced": resource.namespaced, "kind": resource.kind}
    main = {"name": resource.plural, **common, "verbs": _VERBS}
    subs = [
        {"name": f"{resource.plural}/{sub}", **common, "verbs": ["create", "patch"]}
        for sub in sorted(resource.subresources)
    ]
    return [main, *subs]
