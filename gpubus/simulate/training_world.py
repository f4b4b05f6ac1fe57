"""A cluster of CPU nodes on virtual time: pods that wait, are placed by our scheduler, start, are stopped and go.

In: pods by name, asked for and taken back. Out: a ledger state, kept by the ledger's own fold, and which pods run. What
a real cluster adds to a decision is three numbers: how many pods a second are bound, how long one takes to start, and
how long one takes to go.
"""

from __future__ import annotations

from bus.ledger.fold import apply_record, tell_time
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Accepted, FactsSet, HealthSet, InventorySet, Observed, Record, Released, Withdrawn
from contracts.inventory import NodeFacts, NodeInventory
from contracts.requests import PodRequest
from contracts.units import NodeName, RequestUid, request_key
from scheduler.core.placer import Placer

NAMESPACE = "lab"
EPOCH_MS = 1_000_000
SMALL, LARGE = (70, 12_000), (63, 24_000)
"""Nodes and their milli-cores: 133 with 2,352 cores. The logs of the experiment give both sums (a trainer of 5 cores is
0.2125 % of the cluster) and that 88 % is all that could be used; two sizes in these numbers reproduce that."""
SYSTEM_MILLI = 375
"""Of each node: 2.1 % of the cluster is taken before anything is submitted."""
MEMORY_MIB = 131_072

BOUND_PER_S = 12
START_S = 2
STOP_S = 5


class TrainingWorld:
    """One cluster, from second to second.

    Args:
        seed: which nodes are taken first among equals.
    """

    def __init__(self, seed: int) -> None:
        self.state = LedgerState(epoch=f"{seed:08x}")
        self.second = 0
        self.told = 0
        """Running pods that were told to stop."""
        self._number = 0
        self._starts: dict[RequestUid, int] = {}
        self._stops: dict[RequestUid, int] = {}
        for number, cpu_milli in enumerate([size for count, size in (SMALL, LARGE) for _ in range(count)]):
            self._node(f"n{(number * 7919 + seed * 104_729) % 100_003:06d}-{number}", cpu_milli)
        self.placer = Placer(self.state, "packing")
        facts = [node.facts for node in self.state.nodes.values() if node.facts is not None]
        self.total_milli = sum(fact.allocatable_cpu_milli for fact in facts)

    def _node(self, name: str, cpu_milli: int) -> None:
        node = NodeName(name)
        facts = NodeFacts(
            node=node,
            uid=name,
            allocatable_cpu_milli=cpu_milli,
            allocatable_memory_mib=MEMORY_MIB,
            foreign_cpu_milli=SYSTEM_MILLI,
        )
        self._fold(InventorySet(inventory=NodeInventory(node=node, boot_id="", incarnation="", cards=())))
        self._fold(FactsSet(facts=facts))
        self._fold(HealthSet(node=node, health="fresh"))

    @property
    def now_ms(self) -> int:
        """Wall clock of the ledger."""
        return EPOCH_MS + 1000 * self.second

    @property
    def used_milli(self) -> int:
        """CPU that placed pods and the system ask for."""
        return sum(n.used_cpu_milli + (n.facts.foreign_cpu_milli if n.facts else 0) for n in self.state.nodes.values())

    def find(self, name: str) -> RequestState | None:
        """A pod, living or gone."""
        return self.state.find(request_key(NAMESPACE, name))

    def running(self, name: str) -> bool:
        """Whether its container runs."""
        found = self.find(name)
        return found is not None and found.phase == "running"

    def ask(self, request: PodRequest) -> None:
        """One more pod that waits."""
        self._number += 1
        uid = RequestUid(f"{self.state.epoch}-{self._number}-0")
        self._fold(Accepted(uid=uid, namespace=NAMESPACE, request=request, submitted_ms=self.now_ms))

    def withdraw(self, name: str) -> None:
        """It is told to stop, if it is there and has not been told."""
        found = self.find(name)
        if found is not None and found.live and not found.withdrawn:
            placed = found.placement is not None
            self._fold(Withdrawn(uid=found.uid))
            if placed:
                self.told += 1
                self._stops[found.uid] = self.second + STOP_S

    def would_place(self, request: PodRequest) -> bool:
        """Whether one more of these would be placed now."""
        probe = Accepted(uid=RequestUid("probe"), namespace=NAMESPACE, request=request)
        return self.placer.place(RequestState(uid=probe.uid, accepted=probe)) is not None

    def tick(self) -> None:
        """One second: some stop, some start, some are placed, the oldest first."""
        self.second += 1
        for uid in [uid for uid, at in self._stops.items() if at <= self.second]:
            del self._stops[uid]
            self._starts.pop(uid, None)
            self._fold(Released(uid=uid, evidence="gone"))
        for uid in [uid for uid, at in self._starts.items() if at <= self.second]:
            del self._starts[uid]
            self._fold(Observed(uid=uid, phase="running"))
        self._place()

    def _place(self) -> None:
        """What did not fit once in this second is not tried again for its like."""
        bound, hopeless = 0, set[tuple[int, int]]()
        for request in list(self.state.pending.values()):
            size = (request.request.pod.cpu_milli, request.request.pod.memory_mib)
            if bound == BOUND_PER_S or size in hopeless:
                continue
            reserved = self.placer.place(request)
            if reserved is None:
                hopeless.add(size)
                continue
            bound += 1
            self._fold(reserved)
            self._starts[request.uid] = self.second + START_S

    def _fold(self, record: Record) -> None:
        apply_record(self.state, record, self._number + 1)
        tell_time(self.state, self.now_ms)
