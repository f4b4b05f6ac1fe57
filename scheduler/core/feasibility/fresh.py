"""The monitor of the node is heard: a silent node takes nothing new, and frees nothing either."""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.outcomes import Reason
from scheduler.core.request import Shape


def fresh(_shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node without a current heartbeat."""
    if node.fresh:
        return None
    why = f" ({node.reason})" if node.reason else ""
    return Reason(code="stale", text=f"{node.name}: its monitor is not heard{why}", node=node.name)
