"""The arrival protocol that placement policies are compared by, over the code that decides in production. Pure.

In: nodes, arrivals, a policy. Out: a `Curve`: how much of the cards is allocated, and how much of the rest is fragment,
at each percent of demand that has arrived.

No time passes: no departures, no queue, no second try. Each pod is placed when it arrives, or withdrawn for good. State
and decisions are those of the scheduler: records are folded into a `LedgerState`, a `Placer` decides.

Before a run every node gets a number in front of its name, drawn by the seed: the order that breaks ties depends on the
name alone, so that it is another one for each seed, and the same for all requests of a run.

What is coming, which policies that learn go by: `trace` = the true mix of the whole trace from the first arrival on, as
in the published protocol; `live` = what the ledger has learned from the arrivals so far, as in production.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from bus.ledger.fold import apply_record, mix_key
from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, FactsSet, HealthSet, InventorySet, Withdrawn
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.messages import Value
from contracts.units import WHOLE_CARD, CardUuid, NodeName, RequestUid
from gpubus.local.nodes import NodeSpec
from gpubus.simulate.openb import PodRow
from scheduler.core.fragments import usable
from scheduler.core.mix import Mix, classes_of
from scheduler.core.placer import Placer

Knowledge = Literal["trace", "live"]
Told = Callable[[int], None]

NAMESPACE = "openb"
PODS_PER_NODE = 10_000
"""Pod slots decide nothing in the published protocol."""


class Point(Value, frozen=True, kw_only=True):
    """What held while the demand that had arrived rounded to `arrived_percent` of the cards."""

    arrived_percent: int
    allocated_percent: float
    """Mean over these arrivals."""
    idle_milli: int
    """Free share of all cards after the first of these arrivals."""
    fragment_milli: int
    """How much of that the next request of the trace's mix cannot use, on average (F of Weng et al.)."""

    @property
    def fragment_percent(self) -> float:
        """Of what is idle."""
        return 100 * self.fragment_milli / self.idle_milli if self.idle_milli else 0.0


class Curve(Value, frozen=True, kw_only=True):
    """One run."""

    arrived: int
    refused: int
    points: tuple[Point, ...]

    def allocated(self, percent: int) -> float | None:
        """Allocation while so much had arrived; None: it never did."""
        found = (point.allocated_percent for point in self.points if point.arrived_percent == percent)
        return next(found, None)


def mix_of(rows: Iterable[PodRow]) -> dict[str, int]:
    """How often each shape stands in the trace, as the ledger counts it."""
    return dict(Counter(mix_key(row.request()) for row in rows))


def cluster_of(specs: Sequence[NodeSpec], seed: int) -> LedgerState:
    """An empty cluster, each name with a number in front that the seed draws."""
    state = LedgerState(epoch=f"{seed:08x}")
    numbers = list(range(len(specs)))
    random.Random(seed).shuffle(numbers)
    for number, spec in zip(numbers, specs, strict=True):
        for record in _node(spec, f"{number:04d}-{spec.name}"):
            apply_record(state, record, 1)
    return state


def _node(spec: NodeSpec, name: str) -> tuple[InventorySet, FactsSet, HealthSet]:
    cards = tuple(
        Card(uuid=CardUuid(f"{name}-{i}"), index=i, model=spec.model.name, memory_total_mib=spec.model.memory_mib)
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


class Run:
    """Arrivals into one cluster under one policy.

    Args:
        state: empty, from `cluster_of`; the run changes it.
        policy: by name.
        mix: of the whole trace; fragments are always measured by it.
        knows: what policies that learn go by.
    """

    def __init__(self, state: LedgerState, policy: str, mix: dict[str, int], knows: Knowledge = "trace") -> None:
        self._state = state
        self._placer = Placer(state, policy)
        self._mix = mix
        self._knows = knows
        self._measure = Measure(sum(len(node.cards) for node in state.nodes.values()) * WHOLE_CARD)

    def play(self, rows: Sequence[PodRow], told: Told = lambda _: None) -> Curve:
        """All arrivals; `told` gets the number of those that are through after each of them."""
        refused = 0
        for index, row in enumerate(rows):
            placed = self._arrive(index, row)
            refused += not placed
            if self._measure.take(row.demand_milli, placed=placed):
                self._measure.fragment(*self._fragment())
            told(index + 1)
        return Curve(arrived=len(rows), refused=refused, points=self._measure.points())

    def _arrive(self, index: int, row: PodRow) -> bool:
        """Accept it, then place it or take it out again."""
        uid = RequestUid(f"{self._state.epoch}-{index + 1}-0")
        request = row.request(name=f"pod-{index}")
        apply_record(self._state, Accepted(uid=uid, namespace=NAMESPACE, request=request), index + 1)
        if self._knows == "trace":
            self._state.learned, self._state.learned_at = self._mix, 1
        reserved = self._placer.place(self._state.requests[uid])
        record = reserved if reserved is not None else Withdrawn(uid=uid, reason="it did not fit when it arrived")
        apply_record(self._state, record, index + 1)
        return reserved is not None

    def _fragment(self) -> tuple[int, int]:
        """Idle and fragment of all nodes, thousandths: F = R - U/N summed up, rounded down once."""
        rankings = self._placer.rankings
        rankings.sync(self._state)
        mix = rankings.mix if self._knows == "trace" else Mix(classes_of(self._mix))
        views = rankings.views.values()
        idle = sum(view.left_milli for view in views)
        used = sum(usable(mix, view, mix.level(view.cpu_milli)) for view in views)
        return idle, (idle * mix.total - used) // mix.total if mix.total else 0


class Measure:
    """Sums by percent of demand arrived. Everything is whole thousandths until a mean is taken at the end."""

    def __init__(self, capacity_milli: int) -> None:
        self._capacity = capacity_milli
        self._arrived = 0
        self._placed = 0
        self._sums: dict[int, tuple[int, int]] = {}
        self._fragments: dict[int, tuple[int, int]] = {}
        self._at = 0

    def take(self, demand_milli: int, *, placed: bool) -> bool:
        """One arrival; true: the first one at its percent. Percent arrived is rounded to the nearest, halves up."""
        self._arrived += demand_milli
        self._placed += demand_milli if placed else 0
        self._at = (200 * self._arrived + self._capacity) // (2 * self._capacity)
        allocated, count = self._sums.get(self._at, (0, 0))
        self._sums[self._at] = (allocated + self._placed, count + 1)
        return count == 0

    def fragment(self, idle_milli: int, fragment_milli: int) -> None:
        """Idle and fragment at the percent of the last arrival."""
        self._fragments[self._at] = (idle_milli, fragment_milli)

    def points(self) -> tuple[Point, ...]:
        """By percent, ascending."""
        return tuple(
            Point(
                arrived_percent=percent,
                allocated_percent=100 * allocated / (count * self._capacity),
                idle_milli=self._fragments.get(percent, (0, 0))[0],
                fragment_milli=self._fragments.get(percent, (0, 0))[1],
            )
            for percent, (allocated, count) in sorted(self._sums.items())
        )
