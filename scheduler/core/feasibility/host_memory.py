"""Host memory that Kubernetes would still admit on the node; GPU memory is a matter of cards."""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.outcomes import Reason
from scheduler.core.request import Shape


def host_memory(shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node with less free host memory than the pod asks for."""
    free = max(0, node.free_memory_mib)
    if node.facts is None or not shape.host_memory_mib or shape.host_memory_mib <= node.free_memory_mib:
        return None
    return Reason(
        code="node-memory",
        text=f"{node.name}: needs {shape.host_memory_mib} MiB of host memory, {free} MiB free",
        needed=shape.host_memory_mib,
        free=free,
        unit="MiB of host memory",
        node=node.name,
    )
