"""The node exists in Kubernetes: without its facts nothing is known of its CPU, memory and taints."""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.outcomes import Reason
from scheduler.core.request import Shape


def known(_shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node that Kubernetes has not told of yet, or has deleted."""
    if node.facts is None:
        return Reason(code="node-unknown", text=f"{node.name}: Kubernetes has not reported it yet", node=node.name)
    if node.facts.gone:
        return Reason(code="node-gone", text=f"{node.name}: deleted from Kubernetes", node=node.name)
    return None
