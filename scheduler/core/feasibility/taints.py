"""Taints and tolerations, as Kubernetes defines them.

NoSchedule and NoExecute keep a pod away unless tolerated; PreferNoSchedule never does. A toleration matches a taint
when its effect is the taint's (or absent), and its key is the taint's with operator Exists or an equal value. A
toleration without a key matches every taint, with operator Exists only.
"""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.inventory import NodeFacts, Taint
from contracts.outcomes import Reason
from contracts.requests import Toleration
from scheduler.core.request import Shape

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def matches(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.effect is not None and toleration.effect != taint.effect:
        return False
    if toleration.key is None:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def untolerated(shape: Shape, facts: NodeFacts) -> Taint | None:
    """The first taint that keeps the shape away, in the order of the node."""
    for taint in facts.taints:
        if taint.effect in _KEEPS_AWAY and not any(matches(toleration, taint) for toleration in shape.tolerations):
            return taint
    return None


def tolerated(shape: Shape, facts: NodeFacts) -> bool:
    """No taint keeps it away."""
    return untolerated(shape, facts) is None


def taints(shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node with a taint that the request does not tolerate."""
    taint = untolerated(shape, node.facts) if node.facts else None
    if taint is None:
        return None
    value = f"={taint.value}" if taint.value else ""
    text = f"{node.name}: taint {taint.key}{value}:{taint.effect} is not tolerated"
    return Reason(code="taint", text=text, node=node.name)
