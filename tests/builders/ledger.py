"""Small clusters drawn as data: `cluster(node("n1").gpus(2, memory_mib=80_000)).accept(request("a").share(500))`.

A `Cluster` is a `LedgerState` that was made by folding records only, with a `decide` that folds what it decides. What a
test does not name is filled in with something roomy: 64 cores, 512 GiB of host memory, 110 pods, fresh and ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from bus.ledger.fold import apply_record
from bus.ledger.snapshot import dump, load
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import (
    Accepted,
    Candidate,
    CardHealthSet,
    CardSlice,
    FactsSet,
    HealthSet,
    InventorySet,
    Placement,
    Rationale,
    Record,
    Released,
    Reserved,
)
from contracts.inventory import Card, NodeFacts, NodeInventory, Taint
from contracts.requests import GangRef, GpuAsk, Locality, PodRequest, PodTemplate, Toleration
from contracts.units import CardUuid, NodeName, RequestUid

__all__ = ["Cluster", "Node", "Request", "cluster", "node", "request"]


class Node:
    """A node to be folded into a state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._cards: list[Card] = []
        self._facts: dict[str, Any] = {"allocatable_cpu_milli": 64_000, "allocatable_memory_mib": 524_288}
        self._fresh: bool | None = True
        self._known = True
        self._health: list[CardHealthSet] = []

    def gpus(self, count: int, *, memory_mib: int | None = 81_920, model: str = "A100", **fields: Any) -> Self:
        """`count` more cards, named `<node>-gpu<index>`."""
        for _ in range(count):
            index = len(self._cards)
            self._cards.append(
                Card(
                    uuid=CardUuid(f"{self.name}-gpu{index}"),
                    index=index,
                    model=model,
                    memory_total_mib=memory_mib,
                    **fields,
                )
            )
        return self

    def with_cards(self, cards: Iterable[Card]) -> Self:
        """These cards as well, whatever their names."""
        self._cards.extend(cards)
        return self

    def cpu(self, milli: int, *, foreign: int = 0) -> Self:
        """Allocatable CPU and what foreign pods take of it."""
        return self.facts(allocatable_cpu_milli=milli, foreign_cpu_milli=foreign)

    def memory(self, mib: int, *, foreign: int = 0) -> Self:
        """Allocatable host memory and what foreign pods take of it."""
        return self.facts(allocatable_memory_mib=mib, foreign_memory_mib=foreign)

    def pods(self, count: int) -> Self:
        """Pod slots."""
        return self.facts(allocatable_pods=count)

    def labels(self, **labels: str) -> Self:
        """Node labels."""
        return self.facts(labels=labels)

    def taint(self, key: str, effect: str = "NoSchedule", value: str = "") -> Self:
        """One more taint."""
        return self.facts(taints=(*self._facts.get("taints", ()), Taint(key=key, effect=effect, value=value)))

    def facts(self, **fields: Any) -> Self:
        """Any field of the node facts."""
        self._facts.update(fields)
        return self

    def stale(self, *, heard: bool = True) -> Self:
        """Its heartbeat stopped; `heard=False`: it never came."""
        self._fresh = False if heard else None
        return self

    def unknown(self) -> Self:
        """Kubernetes has not reported it."""
        self._known = False
        return self

    def card_health(self, index: int, health: Any, reason: str = "") -> Self:
        """Health of one card, or `cordoned`."""
        card = self._cards[index].uuid
        self._health.append(CardHealthSet(node=NodeName(self.name), card=card, health=health, reason=reason))
        return self

    def records(self) -> list[Record]:
        """What the ledger would have of it."""
        name = NodeName(self.name)
        inventory = NodeInventory(node=name, boot_id="boot", incarnation="one", cards=tuple(self._cards))
        records: list[Record] = [InventorySet(inventory=inventory)]
        if self._known:
            records.append(FactsSet(facts=NodeFacts(node=name, uid=f"uid-{name}", **self._facts)))
        if self._fresh is not None:
            health: Any = "fresh" if self._fresh else "suspect"
            records.append(HealthSet(node=name, health=health, reason="" if self._fresh else "no heartbeat for 3 s"))
        return [*records, *self._health]


class Request:
    """A request to be accepted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._gpu: dict[str, Any] = {}
        self._pod: dict[str, Any] = {"image": "image", "cpu_milli": 100, "memory_mib": 64}
        self._fields: dict[str, Any] = {}
        self._locality: dict[str, str] = {}

    def share(self, milli: int) -> Self:
        """Thousandths of each card."""
        self._gpu["share_milli"] = milli
        return self

    def cards(self, count: int) -> Self:
        """Number of cards."""
        self._gpu["cards"] = count
        return self

    def gpu_memory(self, mib: int) -> Self:
        """MiB of each card."""
        self._gpu["memory_mib"] = mib
        return self

    def models(self, *models: str) -> Self:
        """Allowed models."""
        self._gpu["models"] = models
        return self

    def cpu(self, milli: int) -> Self:
        """CPU of the pod."""
        self._pod["cpu_milli"] = milli
        return self

    def memory(self, mib: int) -> Self:
        """Host memory of the pod."""
        self._pod["memory_mib"] = mib
        return self

    def affinity(self, tag: str) -> Self:
        """Affinity tag."""
        self._locality["affinity"] = tag
        return self

    def anti_affinity(self, tag: str) -> Self:
        """Anti-affinity tag."""
        self._locality["anti_affinity"] = tag
        return self

    def exclusion(self, tag: str) -> Self:
        """Exclusion tag."""
        self._locality["exclusion"] = tag
        return self

    def select(self, **labels: str) -> Self:
        """Node selector."""
        self._fields["node_selector"] = labels
        return self

    def tolerate(self, key: str | None = None, **fields: Any) -> Self:
        """One more toleration."""
        self._fields["tolerations"] = (*self._fields.get("tolerations", ()), Toleration(key=key, **fields))
        return self

    def gang(self, name: str, size: int, **fields: Any) -> Self:
        """Membership in a gang."""
        self._fields["gang"] = GangRef(name=name, size=size, **fields)
        return self

    def labels(self, **labels: str) -> Self:
        """Labels of the pod."""
        self._pod["labels"] = labels
        return self

    def gpu(self, **fields: Any) -> Self:
        """Any field of the ask for cards."""
        self._gpu.update(fields)
        return self

    def fields(self, **fields: Any) -> Self:
        """Any field of the request."""
        self._fields.update(fields)
        return self

    def policy(self, name: str) -> Self:
        """Placement policy by name."""
        self._fields["policy"] = name
        return self

    def build(self) -> PodRequest:
        """The message."""
        return PodRequest(
            name=self.name,
            pod=PodTemplate(**self._pod),
            gpu=GpuAsk(**self._gpu),
            locality=Locality(**self._locality) if self._locality else Locality(),
            **self._fields,
        )


class Cluster:
    """A state that grows by records; every record it folds is kept in `log`."""

    def __init__(self) -> None:
        self.state = LedgerState(epoch="e0000000")
        self.log: list[Record] = []

    def fold(self, *records: Record) -> Self:
        """Fold records, all at the next sequence."""
        for record in records:
            apply_record(self.state, record, self.state.sequence + 1)
            self.log.append(record)
        self.state.sequence += 1
        return self

    def add(self, *nodes: Node) -> Self:
        """Nodes join."""
        for each in nodes:
            self.fold(*each.records())
        return self

    def accept(self, asked: Request | PodRequest) -> RequestState:
        """A request is accepted; it is pending."""
        message = asked.build() if isinstance(asked, Request) else asked
        uid = RequestUid(f"e0000000-{self.state.totals.accepted + 1}-0")
        self.fold(Accepted(uid=uid, namespace="default", request=message))
        return self.state.requests[uid]

    def hold(self, asked: Request | PodRequest, on: str, *cards: int, memory_mib: int | None = None) -> RequestState:
        """A request is accepted and placed on the cards of these indices, whatever a policy would say."""
        held = self.accept(asked)
        gpu, pod = held.request.gpu, held.request.pod
        states = [list(self.state.nodes[on].cards.values())[index] for index in cards]
        slices = tuple(
            CardSlice(
                card=CardUuid(card.card.uuid),
                share_milli=gpu.share_milli,
                memory_mib=next(
                    m
                    for m in (memory_mib, gpu.memory_mib, card.capacity_mib * gpu.share_milli // 1000)
                    if m is not None
                ),
            )
            for card in states
        )
        placement = Placement(node=NodeName(on), slices=slices, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)
        chosen = Candidate(node=NodeName(on), score=0)
        rationale = Rationale(policy="test", chosen=chosen, feasible_nodes=1, rejected_nodes=0)
        self.fold(Reserved(uid=held.uid, placement=placement, rationale=rationale))
        return held

    def release(self, uid: RequestUid) -> Self:
        """Its pod ended."""
        return self.fold(Released(uid=uid, evidence="ended"))

    def used(self, node_name: str) -> list[int]:
        """Thousandths sold of each card of a node, in index order."""
        return [card.used_milli for card in self.state.nodes[node_name].cards.values()]

    def replayed(self, *, nodes_reversed: bool = False) -> LedgerState:
        """The state as a checkpoint gives it back, optionally with its nodes in another order of insertion."""
        copy = load(dump(self.state))
        if nodes_reversed:
            copy.nodes = dict(reversed(copy.nodes.items()))
        return copy


def node(name: str) -> Node:
    """A node by name."""
    return Node(name)


def request(name: str) -> Request:
    """A request by name: one whole card, little CPU."""
    return Request(name)


def cluster(*nodes: Node | Iterable[Node]) -> Cluster:
    """A cluster of nodes."""
    whole = Cluster()
    for each in nodes:
        whole.add(*([each] if isinstance(each, Node) else each))
    return whole
