"""The node carries every label that the request selects by."""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.inventory import NodeFacts
from contracts.outcomes import Reason
from scheduler.core.request import Shape


def selected(shape: Shape, facts: NodeFacts) -> bool:
    """All labels are there with the values asked for."""
    labels = facts.labels
    return all(labels.get(key) == value for key, value in shape.node_selector)


def selector(shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node that lacks a selected label; the first one in key order is named."""
    labels = node.facts.labels if node.facts else {}
    for key, value in shape.node_selector:
        if labels.get(key) != value:
            found = f"is {labels[key]!r}" if key in labels else "is absent"
            text = f"{node.name}: label {key}={value} is asked for, it {found}"
            return Reason(code="node-selector", text=text, node=node.name)
    return None
