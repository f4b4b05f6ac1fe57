"""A node as the scheduler needs to know it: what Kubernetes would still admit there, and who else is there. Pure.

What flows in: a Node, the pods that are bound to it, and which of them the ledger counts. What flows out: NodeFacts.
Everything else that runs on the node is foreign, our own leftovers included: what the ledger does not count must be
counted here, or it would be sold twice. Capacity rounds down, use rounds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from contracts.inventory import NodeFacts, Taint
from contracts.units import MAX_MEMORY_MIB, NodeName
from reconciler import marks
from reconciler.objects import Container, Node, Pod, Quantities
from reconciler.quantity import MIB, MILLI, ONE, BadQuantity, ceil_in, floor_in, parse

MAX_CPU_MILLI = 10_000_000
DEFAULT_PODS = 110
"""What a kubelet admits when it does not say."""

Counted = Callable[[str, str], bool]
"""(request uid, node) -> the ledger counts this request on this node."""


def node_facts(node: Node, pods: Iterable[Pod], counted: Counted) -> NodeFacts:
    """The facts of one node, from the pods bound to it."""
    name = node.metadata.name
    foreign = [pod for pod in pods if holds(pod) and not counted(_uid(pod), name)]
    allocatable = node.status.allocatable or {}
    return NodeFacts(
        node=NodeName(name),
        uid=node.metadata.uid,
        ready=any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ()),
        unschedulable=node.spec.unschedulable,
        labels=dict(sorted((node.metadata.labels or {}).items())),
        taints=tuple(Taint(key=t.key, value=t.value, effect=t.effect) for t in node.spec.taints or ()),
        allocatable_cpu_milli=min(MAX_CPU_MILLI, floor_in(amount(allocatable, "cpu"), MILLI)),
        allocatable_memory_mib=min(MAX_MEMORY_MIB, floor_in(amount(allocatable, "memory"), MIB)),
        allocatable_pods=floor_in(amount(allocatable, "pods"), ONE) if "pods" in allocatable else DEFAULT_PODS,
        foreign_cpu_milli=min(MAX_CPU_MILLI, sum(ceil_in(pod_request(pod, "cpu"), MILLI) for pod in foreign)),
        foreign_memory_mib=min(MAX_MEMORY_MIB, sum(ceil_in(pod_request(pod, "memory"), MIB) for pod in foreign)),
        foreign_pods=len(foreign),
    )


def gone(node: str, uid: str) -> NodeFacts:
    """The Node object was deleted."""
    return NodeFacts(node=NodeName(node), uid=uid, gone=True, ready=False)


def holds(pod: Pod) -> bool:
    """The kubelet counts it: bound, and not ended."""
    return pod.spec.node_name != "" and pod.status.phase not in ("Succeeded", "Failed")


def _uid(pod: Pod) -> str:
    return (pod.metadata.annotations or {}).get(marks.UID, "")


# --- what a pod asks for ---------------------------------------------------------------------------------------------


def pod_request(pod: Pod, resource: str) -> int:
    """What the kubelet's admission counts for a pod, in billionths.

    The containers together with the sidecars, or the largest moment of the init sequence, whichever is more; the pod's
    own request where it states one; and the overhead of its runtime class.
    """
    own = (pod.spec.resources.requests if pod.spec.resources else None) or {}
    asked = amount(own, resource) if resource in own else _containers_request(pod, resource)
    return asked + amount(pod.spec.overhead or {}, resource)


def _containers_request(pod: Pod, resource: str) -> int:
    running = sum(_container_request(pod, c, resource) for c in pod.spec.containers or ())
    sidecars = peak = 0
    for container in pod.spec.init_containers or ():
        asked = _container_request(pod, container, resource)
        if container.restart_policy == "Always":
            sidecars += asked
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + asked)
    return max(running + sidecars, peak)


def _container_request(pod: Pod, container: Container, resource: str) -> int:
    """The spec's, or what the kubelet still keeps while a smaller one is being applied."""
    asked = amount((container.resources.requests if container.resources else None) or {}, resource)
    kept = (
        amount(status.allocated_resources, resource)
        for status in pod.status.container_statuses or ()
        if status.allocated_resources and status.name == container.name
    )
    return max(asked, *kept, 0)


def amount(quantities: Quantities, resource: str) -> int:
    """A stranger's unreadable quantity counts as nothing: the API server would not have admitted it."""
    try:
        return parse(quantities.get(resource, 0))
    except BadQuantity:
        return 0
