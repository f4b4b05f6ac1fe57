"""What the server does to each kind of object before it stores it.

A `Rules` has two hooks, both pure: `create` fills defaults and validates, `update` keeps what may not
change and validates. `grace_s` tells how long an object that is deleted still has. The table below says
which rules are whose.
"""

from __future__ import annotations

from typing import Any

from gpubus.local.kube.resources import EVENTS, LEASES, NAMESPACES, NODES, PODS, Resource
from gpubus.local.kube.rules.base import Rules, Write
from gpubus.local.kube.rules.events import EventRules
from gpubus.local.kube.rules.leases import LeaseRules
from gpubus.local.kube.rules.namespaces import NamespaceRules
from gpubus.local.kube.rules.nodes import NodeRules
from gpubus.local.kube.rules.pods import PodRules
from gpubus.local.kube.rules.pods import grace_s as pod_grace_s

__all__ = ["Rules", "Write", "grace_s", "rules_for"]

_RULES: dict[Resource, Rules] = {
    PODS: PodRules(),
    NODES: NodeRules(),
    NAMESPACES: NamespaceRules(),
    EVENTS: EventRules(),
    LEASES: LeaseRules(),
}


def rules_for(resource: Resource) -> Rules:
    """The rules of a resource; plain storage for those without any of their own."""
    return _RULES.get(resource) or Rules()


def grace_s(resource: Resource, obj: dict[str, Any], asked: int | None) -> int:
    """Seconds between the deletion request and the end; only pods take any."""
    return pod_grace_s(obj, asked) if resource == PODS else 0
