"""CPU that Kubernetes would still admit on the node: allocatable minus foreign pods minus ours."""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.outcomes import Reason
from scheduler.core.request import Shape


def cpu(shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node with less free CPU than the pod asks for."""
    free = max(0, node.free_cpu_milli)
    if node.facts is None or not shape.cpu_milli or shape.cpu_milli <= node.free_cpu_milli:
        return None
    return Reason(
        code="node-cpu",
        text=f"{node.name}: needs {shape.cpu_milli} milli-cores, {free} free",
        needed=shape.cpu_milli,
        free=free,
        unit="milli-cores",
        node=node.name,
    )
