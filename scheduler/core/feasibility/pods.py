"""Pods that the kubelet would still admit: a node can be full of small pods with all its cards free."""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.outcomes import Reason
from scheduler.core.request import Shape


def pods(_shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node without a free pod slot."""
    if node.facts is None or node.free_pods >= 1:
        return None
    return Reason(
        code="node-pods",
        text=f"{node.name}: needs 1 pod slot, 0 free of {node.facts.allocatable_pods}",
        needed=1,
        free=0,
        unit="pods",
        node=node.name,
    )
