"""The node is Ready and open for pods."""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.outcomes import Reason
from scheduler.core.request import Shape


def ready(_shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node whose Ready condition is not true."""
    if node.facts is None or node.facts.ready:
        return None
    return Reason(code="node-not-ready", text=f"{node.name}: not Ready in Kubernetes", node=node.name)


def schedulable(_shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node that an operator has cordoned."""
    if node.facts is None or not node.facts.unschedulable:
        return None
    return Reason(code="node-unschedulable", text=f"{node.name}: cordoned (unschedulable)", node=node.name)
