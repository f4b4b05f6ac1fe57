"""Required node affinity: one term must hold whole, on the labels and the name of the node, as in Kubernetes."""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.inventory import NodeFacts
from contracts.outcomes import Reason
from scheduler.core.labels import Match, Selection, holds, selects
from scheduler.core.request import Shape


def affine_to(terms: tuple[Selection, ...], facts: NodeFacts) -> bool:
    """One of the terms holds, or there are none."""
    return not terms or any(selects(term, facts.labels, facts.node) for term in terms)


def node_affinity(shape: Shape, node: NodeState) -> Reason | None:
    """Refuses a node where no term holds; told is the first unmet condition of the term that lacks fewest."""
    facts = node.facts
    if facts is None or affine_to(shape.node_terms, facts):
        return None
    unmet = min((_unmet(term, facts) for term in shape.node_terms), key=len)
    more = f" (and {len(unmet) - 1} more of this term)" if len(unmet) > 1 else ""
    others = f"; none of {len(shape.node_terms)} terms holds" if len(shape.node_terms) > 1 else ""
    text = f"{node.name}: node affinity asks for {unmet[0]}, it {_found(unmet[0], facts)}{more}{others}"
    return Reason(code="node-affinity", text=text[:1024], node=node.name)


def _unmet(term: Selection, facts: NodeFacts) -> list[Match]:
    return [condition for condition in term if not holds(condition, facts.labels, facts.node)]


def _found(condition: Match, facts: NodeFacts) -> str:
    if condition.field:
        return f"is {facts.node!r}"
    value = facts.labels.get(condition.key)
    return "is absent" if value is None else f"is {value!r}"
