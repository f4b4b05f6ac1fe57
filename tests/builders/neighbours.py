"""Who may be neighbours, worked out the plain way: every node, every resident, every term, from the state alone.

In: a state, a request, a policy. Out: the node that must be chosen, its score, and how many fit. Nothing is kept, no
index is used, and nothing of `scheduler.core.domains`, `surroundings`, `applied`, `labels` or `terms` is imported: the
semantics are written down here once more, from the Kubernetes API reference. For tests to hold the real one against.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bus.ledger.state import LedgerState, NodeState, RequestState
from contracts.constraints import Expression, NodeTerm, PodExpression, PodSelector, PodTerm
from contracts.inventory import Taint
from contracts.requests import PodRequest, Toleration
from scheduler.core.mix import NOTHING_KNOWN
from scheduler.core.policies import Policy, evaluate
from scheduler.core.request import shape_of
from scheduler.core.view import view_of

Labels = Mapping[str, str]
POINT = 2**32


def expressed(expression: Expression | PodExpression, labels: Labels) -> bool:
    """One expression on some labels."""
    there, values = expression.key in labels, expression.values
    value = labels.get(expression.key, "")
    match expression.operator:
        case "In":
            return there and value in values
        case "NotIn":
            return not there or value not in values
        case "Exists":
            return there
        case "DoesNotExist":
            return not there
        case "Gt":
            return there and value.isdigit() and int(value) > int(values[0])
        case "Lt":
            return there and value.isdigit() and int(value) < int(values[0])


def term_holds(term: NodeTerm, node: NodeState) -> bool:
    """One node term."""
    assert node.facts is not None
    names = all((node.name in f.values) == (f.operator == "In") for f in term.match_fields)
    return names and all(expressed(e, node.facts.labels) for e in term.match_expressions)


def chosen_by(selector: PodSelector | None, own: Labels, labels: Labels) -> bool:
    """Whether a selector takes somebody with these labels."""
    if selector is None:
        return all(labels.get(key) == value for key, value in own.items())
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(expressed(e, labels) for e in selector.match_expressions)


class Neighbours:
    """One state and one newcomer."""

    def __init__(self, state: LedgerState, newcomer: RequestState) -> None:
        self.state = state
        self.namespace = newcomer.accepted.namespace
        self.asked: PodRequest = newcomer.request
        self.nodes = [n for n in state.nodes.values() if n.facts is not None and not n.facts.gone]

    def domain(self, node: NodeState, key: str) -> str | None:
        assert node.facts is not None
        return node.facts.labels.get(key, node.name if key == "kubernetes.io/hostname" else None)

    def residents(self, node: NodeState) -> list[RequestState]:
        return [self.state.requests[uid] for uid in node.residents]

    def count(self, selectors: Iterable[PodSelector | None], where: Iterable[NodeState]) -> int:
        wanted = list(selectors)
        return sum(
            resident.accepted.namespace == self.namespace
            and all(chosen_by(s, self.asked.pod.labels, resident.request.pod.labels) for s in wanted)
            for node in where
            for resident in self.residents(node)
        )

    def around(self, node: NodeState, key: str) -> list[NodeState]:
        """All nodes of its domain."""
        return [other for other in self.nodes if self.domain(other, key) == self.domain(node, key)]

    def counts(self, node: NodeState) -> bool:
        """Spreading looks at nodes that selector and affinity allow and that have every key."""
        assert node.facts is not None
        asked, labels = self.asked, node.facts.labels
        return (
            all(labels.get(k) == v for k, v in asked.node_selector.items())
            and (not asked.node_affinity.required or any(term_holds(t, node) for t in asked.node_affinity.required))
            and all(self.domain(node, s.topology_key) is not None for s in asked.topology_spread)
        )

    def spread(self, key: str, selector: PodSelector | None) -> dict[str, int]:
        """Pods by domain."""
        found: dict[str, int] = {}
        for node in self.nodes:
            domain = self.domain(node, key)
            if self.counts(node) and domain is not None:
                found[domain] = found.get(domain, 0) + self.count([selector], [node])
        return found

    def allowed(self, node: NodeState) -> bool:
        return self.evenly(node) and self.near(node) and self.apart(node) and self.welcome(node)

    def evenly(self, node: NodeState) -> bool:
        for spread in self.asked.topology_spread:
            if spread.when_unsatisfiable == "ScheduleAnyway":
                continue
            if not self.counts(node):
                return False
            found = self.spread(spread.topology_key, spread.selector)
            me = chosen_by(spread.selector, self.asked.pod.labels, self.asked.pod.labels)
            here = found[self.domain(node, spread.topology_key) or ""]
            if here + me - min(found.values()) > spread.max_skew:
                return False
        return True

    def near(self, node: NodeState) -> bool:
        terms = self.asked.pod_affinity.required
        if any(self.domain(node, term.topology_key) is None for term in terms):
            return False
        selectors = [term.selector for term in terms]
        if all(self.count(selectors, self.around(node, term.topology_key)) for term in terms):
            return True
        own = self.asked.pod.labels
        somewhere = any(
            self.count(selectors, [other])
            for term in terms
            for other in self.nodes
            if self.domain(other, term.topology_key) is not None
        )
        return all(chosen_by(s, own, own) for s in selectors) and not somewhere

    def apart(self, node: NodeState) -> bool:
        return not any(self.met(term, node) for term in self.asked.pod_anti_affinity.required)

    def met(self, term: PodTerm, node: NodeState) -> bool:
        """Such a pod is in the node's domain."""
        if self.domain(node, term.topology_key) is None:
            return False
        return self.count([term.selector], self.around(node, term.topology_key)) > 0

    def welcome(self, node: NodeState) -> bool:
        for other in self.nodes:
            for resident in self.residents(other):
                for term in resident.request.pod_anti_affinity.required:
                    same = self.domain(node, term.topology_key)
                    if (
                        same is not None
                        and same == self.domain(other, term.topology_key)
                        and resident.accepted.namespace == self.namespace
                        and chosen_by(term.selector, resident.request.pod.labels, self.asked.pod.labels)
                    ):
                        return False
        return True

    # --- preferences -------------------------------------------------------------------------------------------------

    def points(self, node: NodeState) -> int:
        kinds: dict[str, tuple[int, int]] = {}

        def add(kind: str, points: int, most: int) -> None:
            before = kinds.get(kind, (0, 0))
            kinds[kind] = (before[0] + points, before[1] + most)

        asked = self.asked
        for preferred in asked.node_affinity.preferred:
            add("node", preferred.weight * term_holds(preferred.term, node), preferred.weight)
        for term in asked.pod_affinity.preferred:
            add("near", term.weight * self.met(term.term, node), term.weight)
        for term in asked.pod_anti_affinity.preferred:
            add("apart", term.weight * (not self.met(term.term, node)), term.weight)
        for spread in asked.topology_spread:
            if spread.when_unsatisfiable == "ScheduleAnyway":
                found = self.spread(spread.topology_key, spread.selector)
                low, high = min(found.values(), default=0), max(found.values(), default=0)
                here = found.get(self.domain(node, spread.topology_key) or "") if self.counts(node) else None
                even = 100 if high == low else 100 * (high - (here or 0)) // (high - low)
                add("spread", 0 if here is None else even, 100)
        minded = [self.minded(other.facts.taints) for other in self.nodes if other.facts is not None]
        if max(minded, default=0):
            assert node.facts is not None
            add("taints", 100 * (max(minded) - self.minded(node.facts.taints)) // max(minded), 100)
        total = sum(most for _, most in kinds.values())
        return sum(got if total <= 255 else got * 255 // total for got, _ in kinds.values())

    def minded(self, taints: Iterable[Taint]) -> int:
        return sum(
            taint.effect == "PreferNoSchedule" and not any(covers(t, taint) for t in self.asked.tolerations)
            for taint in taints
        )


def covers(toleration: Toleration, taint: Taint) -> bool:
    """One toleration, one taint."""
    effect = toleration.effect in (None, taint.effect)
    key = toleration.key == taint.key if toleration.key is not None else toleration.operator == "Exists"
    return effect and key and (toleration.operator == "Exists" or toleration.value == taint.value)


def best(state: LedgerState, newcomer: RequestState, policy: Policy) -> tuple[str, int, int] | None:
    """Node, score and number of nodes that fit; None when there is none."""
    shape = shape_of(newcomer.request, newcomer.accepted.namespace).bare
    neighbours = Neighbours(state, newcomer)
    found = []
    for node in neighbours.nodes:
        score = evaluate(policy, shape, view_of(node, state.requests), NOTHING_KNOWN)
        if score is not None and neighbours.allowed(node):
            found.append((-(score + POINT * neighbours.points(node)), node.tie, node.name))
    if not found:
        return None
    least = min(found)
    return least[2], -least[0], len(found)
