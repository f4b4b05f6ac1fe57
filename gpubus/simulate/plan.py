"""All runs that were asked for, one after the other or in several processes; Ctrl-C keeps what is through.

In: nodes, traces, policies, seeds, a protocol. Out: one outcome a run, in the order of the plan whatever the number of
processes: a run is a function of the plan and its `Job`, and shares nothing with the others.

Processes are spawned, not forked: a forked copy of a process with threads is not safe. A worker reads the plan once.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import takewhile

from contracts.messages import Value
from contracts.quotas import NamespaceQuota
from contracts.units import WHOLE_CARD
from gpubus.local.nodes import NodeSpec
from gpubus.simulate import offers
from gpubus.simulate.arrivals import Draws, arrivals, drawn_as_published
from gpubus.simulate.bounds import bound
from gpubus.simulate.departures import Departures, Steady
from gpubus.simulate.offers import Faults
from gpubus.simulate.openb import PodRow
from gpubus.simulate.protocol import Curve, Knowledge, Run
from gpubus.simulate.world import World, cluster_of, mix_of
from scheduler import policyfile

Progress = Callable[[int, int], None]
"""How far a run is, and of how much."""


class Horizon(Value, frozen=True, kw_only=True):
    """The protocol with departures; times in hours."""

    hours: float = 14.0
    discard: float = 4.0
    faults: Faults = Faults()

    @property
    def until_ms(self) -> int:
        """The end."""
        return round(self.hours * offers.HOUR_MS)


class Job(Value, frozen=True, kw_only=True):
    """One run; without a load it is one of the arrival protocol."""

    trace: str
    policy: str
    seed: int
    load: float | None = None


class Done(Value, frozen=True, kw_only=True):
    """What came of it: a curve without departures, a `Steady` with them."""

    job: Job
    curve: Curve | None = None
    steady: Steady | None = None

    @property
    def told(self) -> str:
        """In a few words, for progress."""
        found = self.curve or self.steady
        if found is None:
            return ""
        over = sum(tenant.over_quota for tenant in found.tenants)
        words = f"{found.refused - over} of {found.arrived} did not fit"
        words += f", {over} were beyond a quota" if over else ""
        if found.instead:
            why, count = max(found.instead.items(), key=lambda item: (item[1], item[0]))
            words += f"; {sum(found.instead.values())} were decided by the default policy, {count} because {why}"
        return words


class Plan(Value, frozen=True, kw_only=True):
    """All of it."""

    nodes: tuple[NodeSpec, ...]
    traces: dict[str, tuple[PodRow, ...]]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    ratio: float = 1.3
    mix: Knowledge = "trace"
    draws: Draws = "own"
    loads: tuple[float | None, ...] = (None,)
    horizon: Horizon | None = None
    """None: the arrival protocol."""
    files: tuple[str, ...] = ()
    """Policies of users, which every process loads for itself."""
    bounds: tuple[str, ...] = ()
    """Of `bounds`, run like policies."""
    quotas: tuple[NamespaceQuota, ...] = ()
    """Of all namespaces of the traces; none = quotas are off."""

    @property
    def cards(self) -> int:
        """Of all nodes."""
        return sum(node.cards for node in self.nodes)

    def jobs(self) -> list[Job]:
        """Each trace, load, policy and seed."""
        return [
            Job(trace=trace, policy=policy, seed=seed, load=load)
            for trace in self.traces
            for load in self.loads
            for policy in (*self.policies, *self.bounds)
            for seed in self.seeds
        ]

    def run(self, job: Job, progress: Progress = lambda _done, _whole: None) -> Done:
        """One of them."""
        if self.horizon is None:
            return Done(job=job, curve=self._arrivals(job, progress))
        return Done(job=job, steady=self._departures(job, self.horizon, progress))

    def arriving(self, trace: str, seed: int) -> tuple[list[PodRow], dict[str, int] | None]:
        """Who arrives in the arrival protocol, and the order of the nodes among equals; None: by digest."""
        rows, capacity_milli = self.traces[trace], WHOLE_CARD * self.cards
        if self.draws == "own":
            return arrivals(rows, capacity_milli=capacity_milli, ratio=self.ratio, seed=seed), None
        names = [node.name for node in self.nodes]
        return drawn_as_published(rows, names, capacity_milli=capacity_milli, ratio=self.ratio, seed=seed)

    def _arrivals(self, job: Job, progress: Progress) -> Curve:
        order, ranks = self.arriving(job.trace, job.seed)
        if job.policy in self.bounds:
            return bound(job.policy, order, self.nodes, last_percent=round(100 * self.ratio))
        run = Run(
            cluster_of(self.nodes, job.seed, ranks), job.policy, mix_of(self.traces[job.trace]), self.mix, self.quotas
        )
        return run.play(order, lambda done: progress(done, len(order)))

    def _departures(self, job: Job, horizon: Horizon, progress: Progress) -> Steady:
        rows, until = self.traces[job.trace], horizon.until_ms
        world = World(cluster_of(self.nodes, job.seed), job.policy, self.quotas)
        if job.load is None:
            coming: Iterable[offers.Offer] = takewhile(lambda each: each.at_ms < until, offers.recorded(rows))
        else:
            coming = offers.drawn(
                rows, capacity_milli=world.capacity_milli, load=job.load, until_ms=until, seed=job.seed
            )
        run = Departures(
            world,
            until_ms=until,
            discard_ms=round(horizon.discard * offers.HOUR_MS),
            away_ms=horizon.faults.away_s * offers.MS,
        )
        failing = offers.faults(horizon.faults, nodes=len(self.nodes), until_ms=until, seed=job.seed)
        return run.play(coming, failing, lambda at_ms: progress(at_ms, until))


# --- running ----------------------------------------------------------------------------------------------------------

_plan: Plan | None = None
"""Of a worker process: told once, when it starts."""


def each(plan: Plan, workers: int, progress: Callable[[Job], Progress]) -> Generator[Done, None, None]:
    """Outcomes in the order of the plan, as they come to be.

    `progress` makes a listener for a run; runs in other processes tell nothing until they are through.
    """
    if workers == 1:
        for job in plan.jobs():
            yield plan.run(job, progress(job))
        return
    with _pool(plan, workers) as pool:
        yield from pool.map(_run, plan.jobs())


@contextlib.contextmanager
def _pool(plan: Plan, workers: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Worker processes; left early, they are ended, not waited for."""
    before = set(multiprocessing.active_children())
    pool = concurrent.futures.ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(plan,)
    )
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(plan: Plan) -> None:
    """A worker starts. Ctrl-C reaches every process of the terminal: whoever waits for us handles it."""
    global _plan  # noqa: PLW0603 - what an initializer is for
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for file in plan.files:
        policyfile.load(file)
    _plan = plan


def _run(job: Job) -> Done:
    if _plan is None:
        raise AssertionError("a worker that was told no plan")
    return _plan.run(job)
