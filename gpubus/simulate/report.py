"""What simulated runs come to: means over seeds beside the published ones, and every point as CSV. Pure.

In: runs, the authors' own results (`published_alloc.csv` of their repository: one line for each trace, policy and seed,
one column for each percent of demand arrived). Out: `Line`s for people and programs, CSV text.

Percentages are of all cards of the cluster. Means are over seeds, `spread` is the standard deviation of one seed.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from contracts.messages import Value
from gpubus.errors import UsageError
from gpubus.simulate.departures import Steady
from gpubus.simulate.openb import NAMESPACE
from gpubus.simulate.protocol import Curve, Knowledge
from gpubus.simulate.tenants import Tenant

FULL = 100
"""Percent of demand arrived at which as much has been asked for as there is."""

PUBLISHED_NAMES: Mapping[str, tuple[str, ...]] = {
    "01-Random": ("random",),
    "02-DotProd": ("dot-product",),
    "03-GpuClustering": ("gpu-clustering",),
    "04-GpuPacking": ("gpu-packing",),
    "05-BestFit": ("best-fit",),
    "06-FGD": ("fgd", "fgd-published"),
}
"""Their names and ours."""

CSV_COLUMNS = ("trace", "policy", "seed", "arrived_percent", "allocated_percent", "idle_milli", "fragment_milli")

Published = Mapping[tuple[str, str, int], float]
"""By trace, policy and percent arrived: mean allocation over the published seeds."""


class RunOutcome(Value, frozen=True, kw_only=True):
    """One run and what it was."""

    trace: str
    policy: str
    seed: int
    curve: Curve


class Mark(Value, frozen=True, kw_only=True):
    """Allocation in percent at one percent of demand arrived; None: not known."""

    arrived_percent: int
    mean: float | None
    spread: float | None = None
    published: float | None = None

    @property
    def difference(self) -> float | None:
        """Above the published mean."""
        return None if self.mean is None or self.published is None else self.mean - self.published


class Line(Value, frozen=True, kw_only=True):
    """One policy on one trace."""

    trace: str
    policy: str
    seeds: tuple[int, ...]
    marks: tuple[Mark, ...]
    refused: float
    """Mean number of pods that did not fit when they arrived."""


class LostShare(Value, frozen=True, kw_only=True):
    """Of pods of one size."""

    cards: int
    percent: float
    """Of the card time they asked for."""


class SteadyLine(Value, frozen=True, kw_only=True):
    """One policy on one trace at one load, with departures: means over seeds."""

    trace: str
    load: float | None
    """None: arrivals as recorded."""
    policy: str
    seeds: tuple[int, ...]
    allocated: float
    spread: float | None
    lost: float
    lost_by_cards: tuple[LostShare, ...]
    arrived: float
    refused: float
    killed: float


class Instead(Value, frozen=True, kw_only=True):
    """A policy that could not decide everything: over all of its runs."""

    policy: str
    decisions: int
    """Made by the default policy in its place."""
    why: str
    """The most frequent reason."""

    @property
    def told(self) -> str:
        """For people."""
        made = "1 decision was" if self.decisions == 1 else f"{self.decisions} decisions were"
        return f"{made} made by the default policy in place of {self.policy}: {self.why}"


class TenantLine(Value, frozen=True, kw_only=True):
    """One namespace under one policy: means over seeds."""

    trace: str
    load: float | None
    policy: str
    namespace: str
    arrived: float
    refused: float
    over_quota: float
    lost: float
    """Percent of what it asked for, over all seeds together: of cards without departures, of card time with them."""


class Simulated(Value, frozen=True, kw_only=True):
    """All that was asked for."""

    nodes: int
    cards: int
    ratio: float
    mix: Knowledge
    lines: tuple[Line, ...] = ()
    steady: tuple[SteadyLine, ...] = ()
    tenants: tuple[TenantLine, ...] = ()
    """Of traces with namespaces, or with quotas."""
    instead: tuple[Instead, ...] = ()
    """Policies that could not decide everything."""


def lines(runs: Sequence[RunOutcome], ratio: float, published: Published) -> tuple[Line, ...]:
    """One for each trace and policy, in the order in which they were run."""
    percents = dict.fromkeys((FULL, round(100 * ratio)))
    groups: dict[tuple[str, str], list[RunOutcome]] = {}
    for run in runs:
        groups.setdefault((run.trace, run.policy), []).append(run)
    return tuple(
        Line(
            trace=trace,
            policy=policy,
            seeds=tuple(run.seed for run in group),
            marks=tuple(_mark(group, percent, published.get((trace, policy, percent))) for percent in percents),
            refused=statistics.fmean(run.curve.refused for run in group),
        )
        for (trace, policy), group in groups.items()
    )


def _mark(group: Sequence[RunOutcome], percent: int, published: float | None) -> Mark:
    found = [value for run in group if (value := run.curve.allocated(percent)) is not None]
    mean = statistics.fmean(found) if found else None
    spread = statistics.stdev(found) if len(found) > 1 else None
    return Mark(arrived_percent=percent, mean=mean, spread=spread, published=published)


class SteadyOutcome(Value, frozen=True, kw_only=True):
    """One run with departures and what it was."""

    trace: str
    load: float | None
    policy: str
    seed: int
    steady: Steady


def steady_lines(runs: Sequence[SteadyOutcome]) -> tuple[SteadyLine, ...]:
    """One for each trace, load and policy, in the order in which they were run."""
    groups: dict[tuple[str, float | None, str], list[SteadyOutcome]] = {}
    for run in runs:
        groups.setdefault((run.trace, run.load, run.policy), []).append(run)
    return tuple(_steady_line(group) for group in groups.values())


def _steady_line(group: Sequence[SteadyOutcome]) -> SteadyLine:
    first, found = group[0], [run.steady for run in group]
    allocated = [each.allocated_percent for each in found]
    return SteadyLine(
        trace=first.trace,
        load=first.load,
        policy=first.policy,
        seeds=tuple(run.seed for run in group),
        allocated=statistics.fmean(allocated),
        spread=statistics.stdev(allocated) if len(allocated) > 1 else None,
        lost=statistics.fmean(each.lost_percent for each in found),
        lost_by_cards=_lost_by_cards(found),
        arrived=statistics.fmean(each.arrived for each in found),
        refused=statistics.fmean(each.refused for each in found),
        killed=statistics.fmean(each.killed for each in found),
    )


def tenant_lines(runs: Sequence[RunOutcome | SteadyOutcome]) -> tuple[TenantLine, ...]:
    """One for each trace, load, policy and namespace; none where all pods are of the namespace of a trace without."""
    groups: dict[tuple[str, float | None, str, str], list[Tenant]] = {}
    for run in runs:
        load, found = (run.load, run.steady) if isinstance(run, SteadyOutcome) else (None, run.curve)
        for tenant in found.tenants:
            groups.setdefault((run.trace, load, run.policy, tenant.namespace), []).append(tenant)
    if all(key[3] == NAMESPACE and not any(t.over_quota for t in group) for key, group in groups.items()):
        return ()
    return tuple(_tenant_line(key, group) for key, group in groups.items())


def _tenant_line(key: tuple[str, float | None, str, str], group: Sequence[Tenant]) -> TenantLine:
    trace, load, policy, namespace = key
    asked, lost = sum(each.asked for each in group), sum(each.lost for each in group)
    return TenantLine(
        trace=trace,
        load=load,
        policy=policy,
        namespace=namespace,
        arrived=statistics.fmean(each.arrived for each in group),
        refused=statistics.fmean(each.refused for each in group),
        over_quota=statistics.fmean(each.over_quota for each in group),
        lost=100 * lost / asked if asked else 0.0,
    )


def _lost_by_cards(found: Sequence[Steady]) -> tuple[LostShare, ...]:
    """Over all seeds together; pods without cards lose no card time."""
    offered: Counter[int] = Counter()
    lost: Counter[int] = Counter()
    for run in found:
        for each in run.lost_by_cards:
            offered[each.cards] += each.offered
            lost[each.cards] += each.lost
    return tuple(LostShare(cards=n, percent=100 * lost[n] / offered[n]) for n in sorted(offered) if offered[n])


def published_of(text: str, source: str, ratio: float, seeds: Sequence[int] | None = None) -> Published:
    """The published means for that ratio, over all seeds or these; policies that we do not have are left out.

    Raises:
        UsageError: a column is missing, or a cell is no number.
    """
    reader = csv.DictReader(io.StringIO(text))
    columns = reader.fieldnames or ()
    if missing := [name for name in ("workload", "sc_policy", "tune", "seed") if name not in columns]:
        raise UsageError(f"{source}: no column {', '.join(missing)}")
    percents = [name for name in columns if name.isdecimal()]
    found: dict[tuple[str, str, int], list[float]] = {}
    for row in reader:
        if _number(row["tune"], source, reader.line_num) != ratio:
            continue
        if seeds is not None and _number(row["seed"], source, reader.line_num) not in seeds:
            continue
        for policy, percent in product(PUBLISHED_NAMES.get(row["sc_policy"], ()), percents):
            if row[percent]:
                value = _number(row[percent], source, reader.line_num)
                found.setdefault((row["workload"], policy, int(percent)), []).append(value)
    return {key: statistics.fmean(values) for key, values in found.items()}


def _number(cell: str, source: str, line: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise UsageError(f"{source} line {line}: {cell!r} is no number") from None


def as_csv(runs: Iterable[RunOutcome]) -> str:
    """Every point of every run."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for run in runs:
        for p in run.curve.points:
            at = (run.trace, run.policy, run.seed, p.arrived_percent)
            writer.writerow((*at, f"{p.allocated_percent:.4f}", p.idle_milli, p.fragment_milli))
    return out.getvalue()


STEADY_COLUMNS = ("trace", "load", "policy", "seed", "at_s", "sold_milli")


def steady_csv(runs: Iterable[SteadyOutcome]) -> str:
    """Every sample of every run with departures."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(STEADY_COLUMNS)
    for run in runs:
        load = "" if run.load is None else f"{run.load:g}"
        for sample in run.steady.samples:
            writer.writerow((run.trace, load, run.policy, run.seed, sample.at_ms // 1000, sample.sold_milli))
    return out.getvalue()
