"""What the surroundings of nodes do to a ranking, at the moment of one decision.

In: the terms of a shape, who asks, and the domains as they are now. Out: `Surroundings`: conditions that rule nodes out
and preferences that lift them, each a look-up by the domain of a node. `scheduler.core.applied` applies them.

The ranking itself knows nothing of this. It is kept for the bare shape and is right whatever happens on other nodes;
each decision reads it from the best node on, leaves out what the conditions rule out, and orders what is left by
preference first. So there is nothing to invalidate when a domain changes, and nothing to get wrong.

    spread, hard     pods of the domain + 1 (if the asker is one of them) - pods of the least domain <= max_skew
    near, required   pods of all required selections together in the domain; or none anywhere, and the asker is one
    apart, required  no pod of the selection in the domain; a node without the label has no domain and is free
    repelled         no resident in the domain whose required anti-affinity selects the asker

Points of preferences add up: weight of each node term that holds; weight of each pod term that holds (a pod is there,
or for anti-affinity none is), however many pods; 100 for a soft spread in the least domain down to 0 in the fullest;
100 for no PreferNoSchedule taint that is not tolerated, down to 0 for the most of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter

from scheduler.core.around import NONE, Hard, Soft, Surroundings
from scheduler.core.domains import ALL_NODES, Domains, Eligible, Question, Watch
from scheduler.core.feasibility.taints import matches
from scheduler.core.labels import Selection, selects, words
from scheduler.core.locality import Requests
from scheduler.core.request import Shape
from scheduler.core.signs import Repeller, Signs
from scheduler.core.terms import SOFT_SPREAD, Asker, Near, Spread, Terms
from scheduler.core.view import NodeView

MAX_MEMO = 64
"""Distinct tolerations for which points of soft taints are kept."""

SOFT_TAINTS = 100
"""What it counts not to be discouraged by a taint, beside preferences of 1 to 100."""


def surroundings(
    shape: Shape, asker: Asker, domains: Domains, views: Mapping[str, NodeView], requests: Requests
) -> Surroundings:
    """What counts for this shape and this asker now."""
    signs = domains.signs(views, requests)
    terms = shape.terms
    if terms is None and not signs.repellers and not signs.discouraged:
        return NONE
    hard: list[Hard] = []
    soft: list[Soft] = []
    if terms is not None:
        ask = _Ask(shape, terms, domains, views, requests)
        hard += [*ask.spread_hard(), *ask.near(), *ask.apart()]
        soft += [*ask.rather(), *ask.spread_soft(), *ask.preferred()]
    for repeller, counts in sorted(signs.repellers.items(), key=itemgetter(0)) if signs.repellers else ():
        if repeller.namespace == asker.namespace and selects(repeller.term.selection, asker.labels):
            hard.append(_repelled(repeller, counts, domains, views, requests))
    if signs.discouraged and (taints := _discouraged(shape, signs)) is not None:
        soft.append(taints)
    return Surroundings(tuple(hard), tuple(soft)) if hard or soft else NONE


class _Ask:
    """The terms of one shape, asked of the domains."""

    def __init__(
        self, shape: Shape, terms: Terms, domains: Domains, views: Mapping[str, NodeView], requests: Requests
    ) -> None:
        self.terms = terms
        self.labels = dict(terms.labels)
        keys = tuple(sorted({spread.key for spread in terms.spreads}))
        self.eligible = Eligible(shape.node_selector, shape.node_terms, keys)
        self.domains, self.views, self.requests = domains, views, requests

    def _watch(self, selection: Selection, key: str, eligible: Eligible = ALL_NODES) -> Watch:
        question = Question(self.terms.namespace, selection, key, eligible)
        return self.domains.watch(question, self.views, self.requests)

    def spread_hard(self) -> Iterator[Hard]:
        for spread in self.terms.spreads:
            if spread.hard:
                yield self._spread(spread)

    def _spread(self, spread: Spread) -> Hard:
        watch = self._watch(spread.selection, spread.key, self.eligible)
        base = min(watch.counts.values(), default=0) - selects(spread.selection, self.labels)
        full = [d for d, count in watch.counts.items() if count - base > spread.max_skew]
        what = words(spread.selection)
        closed = frozenset((None, *full))
        return Hard("topology-spread", spread.key, watch.domains, closed, what, watch.counts, spread.max_skew, base)

    def spread_soft(self) -> Iterator[Soft]:
        for spread in self.terms.spreads:
            if not spread.hard:
                watch = self._watch(spread.selection, spread.key, self.eligible)
                least, most = min(watch.counts.values(), default=0), max(watch.counts.values(), default=0)
                points = {d: _share(most - count, most - least) for d, count in watch.counts.items()}
                yield Soft("topology_spread", watch.domains, points, 0, SOFT_SPREAD)

    def near(self) -> Iterator[Hard]:
        """Required affinity: a pod counts if all required terms select it; the first of its kind may go anywhere."""
        required = [term for term in self.terms.near if not term.weight]
        together = tuple(sorted({match for term in required for match in term.selection}))
        watches = [self._watch(together, term.key) for term in required]
        first = selects(together, self.labels) and not any(any(w.counts.values()) for w in watches)
        for term, watch in zip(required, watches, strict=True):
            empty = () if first else [d for d, count in watch.counts.items() if not count]
            closed = frozenset((None, *empty))
            yield Hard("pod-affinity", term.key, watch.domains, closed, words(together), watch.counts)

    def apart(self) -> Iterator[Hard]:
        for term in self.terms.apart:
            if not term.weight:
                watch = self._watch(term.selection, term.key)
                closed: frozenset[str | None] = frozenset(d for d, count in watch.counts.items() if count)
                what = words(term.selection)
                yield Hard("pod-anti-affinity", term.key, watch.domains, closed, what, watch.counts)

    def rather(self) -> Iterator[Soft]:
        for term in self.terms.rather:
            there = self.domains.wanted(term.selection, self.views, self.requests)
            yield Soft("node_affinity", there, {"": term.weight}, 0, term.weight)

    def preferred(self) -> Iterator[Soft]:
        for term in self.terms.near:
            if term.weight:
                yield self._preferred("pod_affinity", term, there=True)
        for term in self.terms.apart:
            if term.weight:
                yield self._preferred("pod_anti_affinity", term, there=False)

    def _preferred(self, kind: str, term: Near, *, there: bool) -> Soft:
        watch = self._watch(term.selection, term.key)
        points = {d: term.weight for d, count in watch.counts.items() if bool(count) is there}
        return Soft(kind, watch.domains, points, 0 if there else term.weight, term.weight)


def _share(part: int, whole: int) -> int:
    return SOFT_SPREAD * part // whole if whole else SOFT_SPREAD


def _repelled(
    repeller: Repeller,
    counts: Mapping[str, int],
    domains: Domains,
    views: Mapping[str, NodeView],
    requests: Requests,
) -> Hard:
    key = repeller.term.key
    homes = domains.watch(Question("", (), key), views, requests).domains  # counts nobody: only who is where
    return Hard("pod-repelled", key, homes, frozenset(counts), words(repeller.term.selection), dict(counts))


def _discouraged(shape: Shape, signs: Signs) -> Soft | None:
    """Points by the number of soft taints that the shape does not tolerate; None when it minds none of them."""
    if shape.tolerations not in signs.memo:
        if len(signs.memo) >= MAX_MEMO:
            signs.memo.clear()
        counted = {
            name: sum(not any(matches(toleration, taint) for toleration in shape.tolerations) for taint in taints)
            for name, taints in signs.discouraged.items()
        }
        most = max(counted.values())
        points = {str(count): SOFT_TAINTS * (most - count) // most for count in range(most + 1)} if most else {}
        homes = {name: str(count) for name, count in counted.items()}
        signs.memo[shape.tolerations] = Soft("soft_taints", homes, points, SOFT_TAINTS, SOFT_TAINTS) if most else None
    found: Soft | None = signs.memo[shape.tolerations]
    return found
