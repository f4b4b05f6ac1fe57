"""What nodes say of themselves: labels that are wished for, soft taints, residents that keep others away.

In: the view of a node as it is now, each time it changes; `scheduler.core.domains` sees to that. Out: look-ups by node
and by domain.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.inventory import NodeFacts, Taint
from contracts.requests import Toleration
from scheduler.core.labels import Selection, selects
from scheduler.core.locality import Requests
from scheduler.core.terms import HOSTNAME, Near, repels
from scheduler.core.view import NodeView


def domain_of(facts: NodeFacts, key: str) -> str | None:
    """The value of a topology label; every node is a domain of `kubernetes.io/hostname`, labelled or not."""
    return facts.labels.get(key, facts.node if key == HOSTNAME else None)


class Wanted:
    """The nodes on which one selection over nodes holds."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.position = 0
        self.domains: dict[str, str] = {}

    def update(self, name: str, view: NodeView | None, _requests: Requests) -> None:
        """The node as it is now; None: it is gone."""
        self.domains.pop(name, None)
        facts = view.facts if view is not None else None
        if facts is not None and selects(self.selection, facts.labels, name):
            self.domains[name] = ""


class Repeller(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Residents of a namespace that keep pods of a selection out of their domain."""

    namespace: str
    term: Near


class Signs:
    """Soft taints and repellers of every node. Both are nearly always empty: then a look at each resident is all."""

    def __init__(self) -> None:
        self.position = 0
        self.domains: dict[str, str] = {}
        """Unused: no node needs to be known here."""
        self.discouraged: dict[str, tuple[Taint, ...]] = {}
        """Nodes with PreferNoSchedule taints."""
        self.repellers: dict[Repeller, dict[str, int]] = {}
        """Domain -> residents that repel."""
        self.memo: dict[tuple[Toleration, ...], Any] = {}
        """What was made of `discouraged`, by tolerations; forgotten when it changes."""
        self._mine: dict[str, list[tuple[Repeller, str]]] = {}

    def update(self, name: str, view: NodeView | None, requests: Requests) -> None:
        """The node as it is now; None: it is gone."""
        if self._mine:
            self._drop(name)
        facts = view.facts if view is not None else None
        self._taints(name, facts.taints if facts is not None else ())
        if view is None or facts is None:
            return
        for uid in view.uids:
            if requests[uid].accepted.request.pod_anti_affinity.required:
                accepted = requests[uid].accepted
                for term in repels(accepted.request):
                    self._add(name, Repeller(accepted.namespace, term), domain_of(facts, term.key))

    def _taints(self, name: str, taints: tuple[Taint, ...]) -> None:
        if not taints and name not in self.discouraged:
            return
        before = self.discouraged.pop(name, ())
        soft = tuple(taint for taint in taints if taint.effect == "PreferNoSchedule")
        if soft:
            self.discouraged[name] = soft
        if soft != before:
            self.memo.clear()

    def _add(self, name: str, repeller: Repeller, domain: str | None) -> None:
        if domain is None:
            return
        counts = self.repellers.setdefault(repeller, {})
        counts[domain] = counts.get(domain, 0) + 1
        self._mine.setdefault(name, []).append((repeller, domain))

    def _drop(self, name: str) -> None:
        for repeller, domain in self._mine.pop(name, ()):
            counts = self.repellers[repeller]
            counts[domain] -= 1
            if not counts[domain]:
                del counts[domain]
                if not counts:
                    del self.repellers[repeller]
