"""What admission says of constraints: conditions that cannot hold, selections of nobody, fields that clash.

In: a request whose types are right (operators, weights, numbers of terms are bounds of the types). Out: refusals with
field, value and bound. Pure. What Kubernetes would refuse is refused, so that no constraint is silently no constraint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from contracts.constraints import Expression, NodeTerm, PodExpression, PodSelector
from contracts.outcomes import Refusal
from contracts.requests import PodRequest

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def refuse(field: str, value: str, bound: str, text: str) -> Refusal:
    """A refusal of one field."""
    return Refusal(field=field, value=value[:80], bound=bound, text=f"{field}: {value[:80]!r} {text}; allowed: {bound}")


def constraints(request: PodRequest) -> Iterator[Refusal]:
    """Everything that is wrong with the constraints of a request."""
    yield from _cards(request)
    yield from _gang(request)
    yield from _nodes(request)
    yield from _spread(request)
    for field, affinity in (("pod_affinity", request.pod_affinity), ("pod_anti_affinity", request.pod_anti_affinity)):
        for index, term in enumerate(affinity.required):
            yield from _selector(f"{field}.required[{index}].selector", term.selector, request)
        for index, preferred in enumerate(affinity.preferred):
            yield from _selector(f"{field}.preferred[{index}].term.selector", preferred.term.selector, request)


def _cards(request: PodRequest) -> Iterator[Refusal]:
    gpu = request.gpu
    if gpu.memory_mib is not None and gpu.memory_milli is not None:
        bound = "one of gpu.memory_mib and gpu.memory_milli"
        yield refuse("gpu.memory_milli", str(gpu.memory_milli), bound, "is given beside gpu.memory_mib")
    if not gpu.cards and (gpu.memory_milli is not None or gpu.min_card_memory_mib):
        bound = "at least 1 with gpu.memory_milli or gpu.min_card_memory_mib"
        yield refuse("gpu.cards", "0", bound, "asks for no card")
    if gpu.nvlink != "any" and gpu.cards < 2:  # noqa: PLR2004 - one card is linked to nobody
        yield refuse("gpu.nvlink", gpu.nvlink, "any, with fewer than 2 cards", "links several cards")


def _gang(request: PodRequest) -> Iterator[Refusal]:
    gang = request.gang
    if gang is None or (gang.within == "domain") == (gang.topology_key is not None):
        return
    if gang.topology_key is None:
        yield refuse("gang.topology_key", "(absent)", "a label of nodes, with gang.within domain", "names no domain")
    else:
        yield refuse("gang.topology_key", gang.topology_key, "only with gang.within domain", "is not looked at")


def _nodes(request: PodRequest) -> Iterator[Refusal]:
    affinity = request.node_affinity
    for index, term in enumerate(affinity.required):
        yield from _term(f"node_affinity.required[{index}]", term)
    for index, preferred in enumerate(affinity.preferred):
        yield from _term(f"node_affinity.preferred[{index}].term", preferred.term)


def _term(field: str, term: NodeTerm) -> Iterator[Refusal]:
    if not term.match_expressions and not term.match_fields:
        yield refuse(field, "{}", "at least one of match_expressions and match_fields", "matches no node")
    yield from _expressions(f"{field}.match_expressions", term.match_expressions)
    for index, named in enumerate(term.match_fields):
        if not named.values:
            yield refuse(f"{field}.match_fields[{index}].values", "(none)", "at least 1 node", "name no node")


def _expressions(field: str, expressions: Iterable[Expression | PodExpression]) -> Iterator[Refusal]:
    for index, expression in enumerate(expressions):
        bound = _bound(expression.operator)
        if not _legal(expression.operator, expression.values):
            values = ", ".join(expression.values) or "(none)"
            yield refuse(f"{field}[{index}].values", values, bound, f"do not go with {expression.operator}")


def _legal(operator: str, values: tuple[str, ...]) -> bool:
    if operator in ("In", "NotIn"):
        return len(values) > 0
    if operator in ("Exists", "DoesNotExist"):
        return not values
    return len(values) == 1 and _INTEGER.fullmatch(values[0]) is not None


def _bound(operator: str) -> str:
    if operator in ("In", "NotIn"):
        return f"at least 1 value with {operator}"
    if operator in ("Exists", "DoesNotExist"):
        return f"no value with {operator}"
    return f"1 integer with {operator}"


def _spread(request: PodRequest) -> Iterator[Refusal]:
    seen: set[tuple[str, str]] = set()
    for index, spread in enumerate(request.topology_spread):
        field = f"topology_spread[{index}]"
        yield from _selector(f"{field}.selector", spread.selector, request)
        key = (spread.topology_key, spread.when_unsatisfiable)
        if key in seen:
            bound = "each topology_key once for each when_unsatisfiable"
            yield refuse(f"{field}.topology_key", spread.topology_key, bound, "is there twice")
        seen.add(key)


def _selector(field: str, selector: PodSelector | None, request: PodRequest) -> Iterator[Refusal]:
    if selector is None:
        if not request.pod.labels:
            bound = "a selector, or labels of the pod that stand for one"
            yield refuse(field, "(absent)", bound, "selects by the labels of the pod, which has none")
        return
    if not selector.match_labels and not selector.match_expressions:
        yield refuse(field, "{}", "at least one of match_labels and match_expressions", "selects nobody")
    yield from _expressions(f"{field}.match_expressions", selector.match_expressions)
