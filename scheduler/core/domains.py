"""Who lives where, as far as somebody asks: pods of a selection in each domain of a label, kept up node by node.

In: views of nodes as they change, and questions. Out: counts by domain. A question that was asked before costs what
changed since: about 5 us for a node of eight residents. A new one reads every resident once, 25 ms for 40,000.
Like a ranking it is a cache and nothing else: dropped and built again it gives the same answers.

    watch(key)      pods of a selection by domain, over the nodes that count: for spreading and for neighbours
    wanted(terms)   nodes on which a preferred node term holds
    signs()         PreferNoSchedule taints, and residents whose required anti-affinity keeps newcomers away
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from contracts.inventory import NodeFacts
from scheduler.core.changes import Changes
from scheduler.core.labels import Selection, selects
from scheduler.core.locality import Requests
from scheduler.core.signs import Signs, Wanted, domain_of
from scheduler.core.view import NodeView

MAX_WATCHES = 128
"""Questions kept, least recently asked dropped first: each holds two dicts of the nodes, 0.7 MB for 5,000 of them."""


class Eligible(msgspec.Struct, frozen=True):
    """The nodes that count: those with all these keys that selector and required affinity allow."""

    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[Selection, ...] = ()
    keys: tuple[str, ...] = ()


ALL_NODES = Eligible()


class Question(msgspec.Struct, frozen=True, cache_hash=True):
    """Which pods, by which label, on which nodes."""

    namespace: str
    selection: Selection
    key: str
    eligible: Eligible = ALL_NODES


class Watch:
    """The answer to one question, kept up."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.position = 0
        self.domains: dict[str, str] = {}
        """Node -> domain, of the nodes that count."""
        self.counts: dict[str, int] = {}
        """Domain -> pods, 0 where there is none."""
        self._nodes: dict[str, int] = {}
        self._held: dict[str, int] = {}

    def update(self, name: str, view: NodeView | None, requests: Requests) -> None:
        """The node as it is now; None: it is gone."""
        self._drop(name)
        facts = view.facts if view is not None else None
        domain = None if facts is None else self._domain(facts)
        if view is None or domain is None:
            return
        held = self._count(view, requests)
        self.domains[name] = domain
        self._held[name] = held
        self._nodes[domain] = self._nodes.get(domain, 0) + 1
        self.counts[domain] = self.counts.get(domain, 0) + held

    def _drop(self, name: str) -> None:
        domain = self.domains.pop(name, None)
        if domain is None:
            return
        self.counts[domain] -= self._held.pop(name)
        self._nodes[domain] -= 1
        if not self._nodes[domain]:
            del self._nodes[domain], self.counts[domain]

    def _domain(self, facts: NodeFacts) -> str | None:
        counts = self.question.eligible
        labels = facts.labels
        if any(labels.get(key) != value for key, value in counts.node_selector):
            return None
        if counts.node_terms and not any(selects(term, labels, facts.node) for term in counts.node_terms):
            return None
        if any(domain_of(facts, key) is None for key in counts.keys):
            return None
        return domain_of(facts, self.question.key)

    def _count(self, view: NodeView, requests: Requests) -> int:
        namespace, selection = self.question.namespace, self.question.selection
        found = 0
        for uid in view.uids:
            accepted = requests[uid].accepted
            if accepted.namespace == namespace and selects(selection, accepted.request.pod.labels):
                found += 1
        return found


class Domains:
    """All questions over the views of one `Rankings`, whose log of changes they follow."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._watches: OrderedDict[Question, Watch] = OrderedDict()
        self._wanted: OrderedDict[Selection, Wanted] = OrderedDict()
        self._signs = Signs()

    def watch(self, question: Question, views: Mapping[str, NodeView], requests: Requests) -> Watch:
        """The answer, up to date with the views."""
        found = self._watches.get(question)
        if found is None:
            found = self._watches[question] = Watch(question)
            _bound(self._watches)
        self._watches.move_to_end(question)
        self._catch_up(found, views, requests)
        return found

    def wanted(self, selection: Selection, views: Mapping[str, NodeView], requests: Requests) -> Mapping[str, str]:
        """The nodes on which the selection holds."""
        found = self._wanted.get(selection)
        if found is None:
            found = self._wanted[selection] = Wanted(selection)
            _bound(self._wanted)
        self._wanted.move_to_end(selection)
        self._catch_up(found, views, requests)
        return found.domains

    def signs(self, views: Mapping[str, NodeView], requests: Requests) -> Signs:
        """What nodes say of themselves: soft taints, and residents that keep others away."""
        self._catch_up(self._signs, views, requests)
        return self._signs

    def _catch_up(self, follower: Watch | Wanted | Signs, views: Mapping[str, NodeView], requests: Requests) -> None:
        """Tell a follower what has changed since it was last told."""
        end = self._changes.end
        if follower.position == end:
            return
        changed = self._changes.since(follower.position) if follower.position else None
        names = dict.fromkeys(views if changed is None else changed)
        if changed is None:
            names.update(dict.fromkeys(follower.domains))
        for name in names:
            follower.update(name, views.get(name), requests)
        follower.position = end


def _bound(kept: OrderedDict[Any, Any]) -> None:
    if len(kept) > MAX_WATCHES:
        kept.popitem(last=False)
