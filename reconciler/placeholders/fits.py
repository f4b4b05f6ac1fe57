"""Whether a waiting request would go onto a card that we have not got, judged by what is known of the node. Pure.

The scheduler decides where a request goes; here is only guessed where a card would help it, by the same rules in short:
taints, selector and required affinity of the node, its room, the card's model, size, share and memory. What is not
looked at (neighbours, spread, links between cards) makes a guess too hopeful, never too strict: then a card is
acquired, nobody comes, it is given back, and the next try waits longer.
"""

from __future__ import annotations

from collections.abc import Mapping

from bus.ledger.state import CardState
from contracts.constraints import Expression, FieldExpression, NodeTerm
from contracts.inventory import NodeFacts, Taint
from contracts.requests import GpuAsk, PodRequest, Toleration
from contracts.units import WHOLE_CARD


def welcome(request: PodRequest, facts: NodeFacts) -> bool:
    """The node is open, tolerated, selected."""
    if not facts.ready or facts.unschedulable or facts.gone:
        return False
    if any(not _tolerated(request.tolerations, taint) for taint in facts.taints):
        return False
    if any(facts.labels.get(key) != value for key, value in request.node_selector.items()):
        return False
    terms = request.node_affinity.required
    return not terms or any(_term(term, facts) for term in terms)


def _tolerated(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return taint.effect not in ("NoSchedule", "NoExecute") or any(_covers(each, taint) for each in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect is not None and toleration.effect != taint.effect:
        return False
    if toleration.key is None:
        return toleration.operator == "Exists"
    return toleration.key == taint.key and (toleration.operator == "Exists" or toleration.value == taint.value)


def _term(term: NodeTerm, facts: NodeFacts) -> bool:
    named: Mapping[str, str] = {"metadata.name": facts.node}
    return all(_holds(one, facts.labels) for one in term.match_expressions) and all(
        _holds(one, named) for one in term.match_fields
    )


def _holds(condition: Expression | FieldExpression, labels: Mapping[str, str]) -> bool:
    """`Gt` and `Lt` are taken to hold where the label is there: too hopeful at most."""
    value = labels.get(condition.key)
    match condition.operator:
        case "In":
            return value in condition.values
        case "NotIn":
            return value not in condition.values
        case "DoesNotExist":
            return value is None
        case _:
            return value is not None


def memory_on(capacity_mib: int, gpu: GpuAsk) -> int:
    """MiB that it takes on a card with so much sellable memory."""
    if gpu.memory_mib is not None:
        return gpu.memory_mib
    milli = gpu.share_milli if gpu.memory_milli is None else gpu.memory_milli
    return max(1, capacity_mib * milli // WHOLE_CARD)


def kind_fits(gpu: GpuAsk, card: CardState) -> bool:
    """Model and size of the card."""
    total = card.card.memory_total_mib
    if gpu.models and card.card.model not in gpu.models:
        return False
    return not gpu.min_card_memory_mib or (total is not None and total >= gpu.min_card_memory_mib)
