"""A cluster in memory that the code of production decides about: its fold, its placer, a clock that is only a number.

In: nodes, a policy, requests, ends, faults, each at a virtual time. Out: decisions; the state is the ledger's own. What
is learned of the mix is learned by the fold, as in production. Pure: no bus, no clock, no randomness but the seed's.

Every node gets a number in front of its name, drawn by the seed: the order that breaks ties depends on the name alone,
so that it is another one for each seed, and the same for all requests of a run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from bus.ledger.fold import apply_record, mix_key, tell_time
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import (
    Accepted,
    FactsSet,
    HealthSet,
    InventorySet,
    QuotaSet,
    Record,
    Released,
    Reserved,
    Withdrawn,
)
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.quotas import NamespaceQuota
from contracts.units import WHOLE_CARD, CardUuid, NamespaceName, NodeName, RequestUid
from gpubus.local.nodes import NodeSpec
from gpubus.simulate.openb import PodRow
from scheduler.core.placer import Placer
from scheduler.core.queue import quota

PODS_PER_NODE = 10_000
"""Pod slots decide nothing in the published protocol."""

EPOCH_MS = 1_000_000
"""When virtual time begins: a ledger reads 0 as "not known"."""

DROPPED = "it did not fit when it arrived"


def mix_of(rows: Iterable[PodRow]) -> dict[str, int]:
    """How often each shape stands in the trace, as the ledger counts it."""
    return dict(Counter(mix_key(row.request()) for row in rows))


def cluster_of(specs: Sequence[NodeSpec], seed: int, ranks: Mapping[str, int] | None = None) -> LedgerState:
    """An empty cluster, each name with a number in front that the seed draws.

    With `ranks`, by name, these are the numbers, and they are the order among equals: no digest.
    """
    state = LedgerState(epoch=f"{seed:08x}")
    numbers = list(range(len(specs)))
    random.Random(seed).shuffle(numbers)
    if ranks is not None:
        numbers = [ranks[spec.name] for spec in specs]
    for number, spec in zip(numbers, specs, strict=True):
        name = f"{number:04d}-{spec.name}"
        for record in node_records(spec, name):
            apply_record(state, record, 1)
        if ranks is not None:
            state.nodes[name].tie = f"{number:016x}"
    return state


def node_records(spec: NodeSpec, name: str) -> tuple[InventorySet, FactsSet, HealthSet]:
    """What a ledger would hold of a new node."""
    cards = tuple(
        Card(
            uuid=CardUuid(f"{name}-{i}"),
            index=i,
            model=spec.model.name,
            memory_total_mib=spec.model.memory_mib,
            memory_reserved_mib=spec.model.reserved_mib,
        )
        for i in range(spec.cards)
    )
    facts = NodeFacts(
        node=NodeName(name),
        uid=name,
        allocatable_cpu_milli=spec.cpu_milli,
        allocatable_memory_mib=spec.memory_mib,
        allocatable_pods=PODS_PER_NODE,
    )
    inventory = NodeInventory(node=NodeName(name), boot_id="", incarnation="", cards=cards, provider="simulated")
    return InventorySet(inventory=inventory), FactsSet(facts=facts), HealthSet(node=NodeName(name), health="fresh")


class World:
    """One state and whoever decides about it.

    Args:
        state: from `cluster_of`; changed here.
        policy: by name.
        quotas: of all namespaces of the pods; none = quotas are off.
    """

    def __init__(self, state: LedgerState, policy: str, quotas: Iterable[NamespaceQuota] = ()) -> None:
        self.state = state
        self.placer = Placer(state, policy)
        self.at_ms: int | None = None
        """Virtual time of what comes next; None: no time passes."""
        self.instead: Counter[str] = Counter()
        """Why the policy could not decide, and how often."""
        self.over_quota = False
        """The last pod was refused by the quota of its namespace."""
        self._number = 0
        for each in quotas:
            self._fold(QuotaSet(quota=each))

    @property
    def capacity_milli(self) -> int:
        """Of all cards, away or not."""
        return sum(len(node.cards) for node in self.state.nodes.values()) * WHOLE_CARD

    def arrive(self, row: PodRow) -> RequestState:
        """Accepted under a name of its own."""
        self._number += 1
        uid = RequestUid(f"{self.state.epoch}-{self._number}-0")
        request = row.request(name=f"pod-{self._number}")
        self._fold(
            Accepted(
                uid=uid,
                namespace=NamespaceName(row.namespace),
                request=request,
                submitted_ms=0 if self.at_ms is None else EPOCH_MS + self.at_ms,
            )
        )
        return self.state.requests[uid]

    def place(self, request: RequestState) -> Reserved | None:
        """Placed at once, or out of the queue for good."""
        reserved = self._within_quota(request)
        self._fold(reserved if reserved is not None else Withdrawn(uid=request.uid, reason=DROPPED))
        if reserved is not None and reserved.rationale.instead_of:
            self.instead[reserved.rationale.instead_of] += 1
        return reserved

    def _within_quota(self, request: RequestState) -> Reserved | None:
        """As the queue asks: by what is known for certain, then by what the chosen cards come to."""
        self.over_quota = quota.held_back(self.state, (request,)) is not None
        found = None if self.over_quota else self.placer.place(request)
        if found is not None and quota.beyond(self.state, request.accepted.namespace, (found.placement,)) is not None:
            self.over_quota, found = True, None
        return found

    def end(self, uid: RequestUid) -> None:
        """Its pod has run its time."""
        self._fold(Released(uid=uid, evidence="ended"))

    def fail(self, name: str) -> tuple[RequestUid, ...]:
        """The node is lost with all that runs on it; who that was."""
        self._fold(HealthSet(node=NodeName(name), health="suspect", reason="failed"))
        lost = tuple(self.state.nodes[name].residents)
        for uid in lost:
            self._fold(Released(uid=uid, evidence="node-gone"))
        return lost

    def drain(self, name: str) -> None:
        """Nothing new goes there; what runs, runs on."""
        self._mark(name, unschedulable=True)

    def restore(self, name: str) -> None:
        """Heard again and open, whatever it was."""
        self._fold(HealthSet(node=NodeName(name), health="fresh"))
        self._mark(name, unschedulable=False)

    def is_open(self, name: str) -> bool:
        """Neither failed nor drained."""
        node = self.state.nodes[name]
        return node.fresh and node.facts is not None and not node.facts.unschedulable

    def _mark(self, name: str, *, unschedulable: bool) -> None:
        facts = self.state.nodes[name].facts
        if facts is None:
            raise AssertionError(f"{name} has no facts")
        self._fold(FactsSet(facts=msgspec.structs.replace(facts, unschedulable=unschedulable)))

    def _fold(self, record: Record) -> None:
        """Each record is a commit of its own; lives are learned from the times that commits tell."""
        apply_record(self.state, record, self._number + 1)
        if self.at_ms is not None:
            tell_time(self.state, EPOCH_MS + self.at_ms)
