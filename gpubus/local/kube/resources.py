"""What the embedded API serves, as a table, and the reading of request paths against it.

`/api/v1/namespaces/{ns}/pods/{name}/binding` becomes `Target(PODS, ns, name, "binding")`.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "EVENTS",
    "LEASES",
    "LIMIT_RANGES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "RESOURCES",
    "RESOURCE_QUOTAS",
    "Resource",
    "Target",
    "parse_path",
]


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of object: where it is served and what it is called."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    subresources: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: `v1`, `coordination.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """The path of its group: `/api/v1`, `/apis/coordination.k8s.io/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


PODS = Resource(plural="pods", kind="Pod", subresources=frozenset({"binding", "status", "eviction", "resize"}))
NODES = Resource(plural="nodes", kind="Node", namespaced=False, subresources=frozenset({"status"}))
NAMESPACES = Resource(plural="namespaces", kind="Namespace", namespaced=False)
EVENTS = Resource(plural="events", kind="Event", group="events.k8s.io")
LEASES = Resource(plural="leases", kind="Lease", group="coordination.k8s.io")
RESOURCE_QUOTAS = Resource(plural="resourcequotas", kind="ResourceQuota")
LIMIT_RANGES = Resource(plural="limitranges", kind="LimitRange")

RESOURCES = (PODS, NODES, NAMESPACES, EVENTS, LEASES, RESOURCE_QUOTAS, LIMIT_RANGES)

_BY_ROOT = {(resource.root, resource.plural): resource for resource in RESOURCES}


class Target(msgspec.Struct, frozen=True):
    """What a path points at. `namespace` is empty for cluster-wide objects and for lists over all namespaces."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target | None:
    """The target of a request path; None when nothing of ours is served there."""
    parts = path.strip("/").split("/")
    size = 2 if parts[0] == "api" else 3
    if parts[0] not in {"api", "apis"} or len(parts) <= size or "" in parts:
        return None
    root, rest = "/" + "/".join(parts[:size]), parts[size:]
    match rest:
        case ["namespaces", namespace, plural, *more] if plural != "status":
            return _target(root, [plural, *more], namespace=namespace)
        case _:
            return _target(root, rest, namespace="")


def _target(root: str, rest: list[str], *, namespace: str) -> Target | None:
    resource = _BY_ROOT.get((root, rest[0]))
    name, subresource, *more = *rest[1:], "", ""
    if resource is None or any(more):
        return None
    if subresource and subresource not in resource.subresources:
        return None
    if bool(namespace) != resource.namespaced and (name or namespace):
        return None  # a namespaced object without its namespace, or the other way round
    return Target(resource, namespace, name, subresource)
