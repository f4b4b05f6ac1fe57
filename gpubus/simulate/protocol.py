"""The arrival protocol that placement policies are compared by, over the code that decides in production. Pure.

In: nodes, arrivals, a policy. Out: a `Curve`: how much of the cards is allocated, and how much of the rest is fragment,
at each percent of demand that has arrived.

No time passes: no departures, no queue, no second try. Each pod is placed when it arrives, or withdrawn for good. State
and decisions are those of the scheduler: see `world`.

What is coming, which policies that learn go by: `trace` = the true mix of the whole trace from the first arrival on, as
in the published protocol; `live` = what the ledger has learned from the arrivals so far, as in production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from bus.ledger.state import LedgerState
from contracts.messages import Value
from contracts.quotas import NamespaceQuota
from gpubus.simulate.openb import PodRow
from gpubus.simulate.tenants import Tenant, Tenants
from gpubus.simulate.world import World
from scheduler.core.fragments import usable
from scheduler.core.mix import Mix, classes_of
from scheduler.core.view import NodeView

Knowledge = Literal["trace", "live"]
Told = Callable[[int], None]


NEAR = 5
"""Percent of all cards that a whole node may be of a small cluster."""


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
    instead: dict[str, int] = {}
    """Decisions that the default policy made because this one could not, by reason."""
    tenants: tuple[Tenant, ...] = ()
    """By namespace."""

    def allocated(self, percent: int) -> float | None:
        """Allocation while so much had arrived; None: it never did.

        On a small cluster no arrival may fall on that percent: then it is what held just before, also after the last
        arrival if that is not more than `NEAR` percent away.
        """
        before = [point for point in self.points if point.arrived_percent <= percent]
        ended = len(before) == len(self.points)
        if not before or (ended and before[-1].arrived_percent < percent - NEAR):
            return None
        return before[-1].allocated_percent


class Run:
    """Arrivals into one cluster under one policy.

    Args:
        state: empty, from `cluster_of`; the run changes it.
        policy: by name.
        mix: of the whole trace; fragments are always measured by it.
        knows: what policies that learn go by.
        quotas: of namespaces.
    """

    def __init__(
        self,
        state: LedgerState,
        policy: str,
        mix: dict[str, int],
        knows: Knowledge = "trace",
        quotas: Iterable[NamespaceQuota] = (),
    ) -> None:
        self._world = World(state, policy, quotas)
        self._tenants = Tenants()
        self._trace = mix
        self._mix = None if knows == "trace" else Mix(classes_of(mix))
        """To measure by; None: the one that scores go by is that of the trace, and knows most of it already."""
        self._knows = knows
        self._fragments = Fragments()
        self._measure = Measure(self._world.capacity_milli)

    def play(self, rows: Sequence[PodRow], told: Told = lambda _: None) -> Curve:
        """All arrivals; `told` gets the number of those that are through after each of them."""
        refused = 0
        for index, row in enumerate(rows):
            placed = self._arrive(row)
            refused += not placed
            if self._measure.take(row.demand_milli, placed=placed):
                self._measure.fragment(*self._fragment())
            told(index + 1)
        return Curve(
            arrived=len(rows),
            refused=refused,
            points=self._measure.points(),
            instead=dict(self._world.instead),
            tenants=self._tenants.told(),
        )

    def _arrive(self, row: PodRow) -> bool:
        """Accept it, then place it or take it out again."""
        request, state = self._world.arrive(row), self._world.state
        if self._knows == "trace":
            state.learned, state.learned_at = self._trace, 1
        placed = self._world.place(request) is not None
        self._tenants.arrived(row.namespace, row.demand_milli, placed=placed, over_quota=self._world.over_quota)
        return placed

    def _fragment(self) -> tuple[int, int]:
        rankings = self._world.placer.rankings
        rankings.sync(self._world.state)
        return self._fragments.of(self._world.state, rankings.views, self._mix or rankings.mix)


class Fragments:
    """Idle and fragment of all nodes, thousandths: F = R - U/N summed up, rounded down once.

    Only what changed since the last time is worked out again: 70 nodes of 1,213 from one percent to the next.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, int]] = {}
        """Idle and usable, by node."""
        self._mix: Mix | None = None
        self._read = self._idle = self._used = 0

    def of(self, state: LedgerState, views: Mapping[str, NodeView], mix: Mix) -> tuple[int, int]:
        """Now."""
        names: Iterable[str] = dict.fromkeys(state.touched[self._read :])
        if mix is not self._mix:
            self._of.clear()
            self._idle = self._used = 0
            self._mix, names = mix, views
        self._read = len(state.touched)
        for name in names:
            self._take(name, views[name], mix)
        return self._idle, (self._idle * mix.total - self._used) // mix.total if mix.total else 0

    def _take(self, name: str, view: NodeView, mix: Mix) -> None:
        idle, used = self._of.get(name, (0, 0))
        self._of[name] = now = view.left_milli, usable(mix, view, mix.level(view.cpu_milli))
        self._idle += now[0] - idle
        self._used += now[1] - used


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
