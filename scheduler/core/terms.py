"""What a request asks of the surroundings of a node rather than of the node: neighbours, and mere preferences.

In: a request and its namespace. Out: `Terms`, frozen and hashable, or None, which nearly every request has. A shape
with terms is ranked like the same shape without them (one ranking serves both) and its terms are applied to that
ranking at each decision, by `scheduler.core.surroundings`: they depend on who lives on *other* nodes, so nothing that
is kept for a node could stay right.

Terms name the labels of the request itself, because a pod counts among those it is spread with, and its namespace,
because terms over pods never look beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bus.ledger.state import RequestState
from contracts.constraints import PodTerm, TopologySpread
from contracts.requests import PodRequest
from scheduler.core.labels import Selection, of_nodes, of_pods

HOSTNAME = "kubernetes.io/hostname"
"""A node without this label has its name for it: each node is a domain of its own."""

SOFT_SPREAD = 100
"""What a spread that is only asked for counts as, beside preferences of 1 to 100: as much as the strongest."""


class Spread(msgspec.Struct, frozen=True):
    """One topology spread constraint."""

    key: str
    max_skew: int
    hard: bool
    selection: Selection


class Near(msgspec.Struct, frozen=True, order=True):
    """Pods of a selection within one domain of a label; `weight` 0 = required."""

    key: str
    selection: Selection
    weight: int = 0


class Rather(msgspec.Struct, frozen=True):
    """A preferred node term."""

    weight: int
    selection: Selection


class Terms(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Everything that is applied to a ranking at the decision."""

    namespace: str = ""
    """Empty, as are the labels, when no term looks at pods: equal wishes then share everything."""
    labels: tuple[tuple[str, str], ...] = ()
    rather: tuple[Rather, ...] = ()
    spreads: tuple[Spread, ...] = ()
    near: tuple[Near, ...] = ()
    apart: tuple[Near, ...] = ()

    @property
    def binding(self) -> bool:
        """Some of them can make a node infeasible."""
        return any(s.hard for s in self.spreads) or any(not t.weight for t in (*self.near, *self.apart))

    @property
    def weight(self) -> int:
        """The most that its preferences can add up to."""
        soft = SOFT_SPREAD * sum(not s.hard for s in self.spreads)
        return soft + sum(r.weight for r in self.rather) + sum(t.weight for t in (*self.near, *self.apart))


def terms_of(request: PodRequest, namespace: str) -> Terms | None:
    """The terms of a request, or None.

    Raises:
        ValueError: the request looks at pods, and no namespace is given.
    """
    if not request.topology_spread and not looks_around(request):
        return None
    own = request.pod.labels
    found = Terms(
        rather=tuple(Rather(p.weight, of_nodes(p.term)) for p in request.node_affinity.preferred),
        spreads=tuple(_spread(s, own) for s in request.topology_spread),
        near=_terms(request.pod_affinity.required, own)
        + tuple(_near(p.term, own, p.weight) for p in request.pod_affinity.preferred),
        apart=_terms(request.pod_anti_affinity.required, own)
        + tuple(_near(p.term, own, p.weight) for p in request.pod_anti_affinity.preferred),
    )
    if not found.spreads and not found.near and not found.apart:
        return found
    if not namespace:
        raise ValueError(f"{request.name} looks at pods of its namespace, and none is given")
    return msgspec.structs.replace(found, namespace=namespace, labels=tuple(sorted(own.items())))


def looks_around(request: PodRequest) -> bool:
    """Whether it says where it would rather be, or looks at pods."""
    near, apart = request.pod_affinity, request.pod_anti_affinity
    return bool(request.node_affinity.preferred or near.required or near.preferred or apart.required or apart.preferred)


def _spread(spread: TopologySpread, own: dict[str, str]) -> Spread:
    hard = spread.when_unsatisfiable == "DoNotSchedule"
    return Spread(spread.topology_key, spread.max_skew, hard, of_pods(spread.selector, own))


def _terms(terms: tuple[PodTerm, ...], own: dict[str, str]) -> tuple[Near, ...]:
    return tuple(_near(term, own, 0) for term in terms)


def _near(term: PodTerm, own: dict[str, str], weight: int) -> Near:
    return Near(term.topology_key, of_pods(term.selector, own), weight)


def repels(request: PodRequest) -> tuple[Near, ...]:
    """The required anti-affinity of a request, which holds against others once it is placed; nearly always ()."""
    required = request.pod_anti_affinity.required
    return _terms(required, request.pod.labels) if required else ()


class Asker(msgspec.Struct, frozen=True):
    """Who asks for a place, as neighbours see it."""

    namespace: str = ""
    labels: Mapping[str, str] = {}


NOBODY = Asker()
"""Nobody is kept away from anybody."""


def asker_of(request: RequestState) -> Asker:
    """The namespace and the labels of a request."""
    return Asker(request.accepted.namespace, request.request.pod.labels)
