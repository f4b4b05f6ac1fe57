"""What runs of either protocol come to, side by side: means over seeds, and differences to the first policy. Pure.

In: outcomes of a plan. Out: `Result`s, one for each trace, load, policy and measure. Measures: `@100`, `@130` (percent
of all cards that is allocated when so much has arrived) without departures; `allocated` (percent of all cards, averaged
over time) and `lost` (percent of the card time asked for; less is better) with them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from contracts.messages import Value
from gpubus.simulate.paired import Paired, paired
from gpubus.simulate.plan import Done, Plan
from gpubus.simulate.report import FULL, Instead, RunOutcome, SteadyOutcome

PUT_ASIDE = "is put aside"
LESS_IS_BETTER = frozenset(("lost",))

Values = dict[int, float]
"""By seed."""


class Result(Value, frozen=True, kw_only=True):
    """One policy on one trace by one measure."""

    trace: str
    load: float | None
    policy: str
    measure: str
    mean: float
    spread: float | None
    """Standard deviation of one seed."""
    seeds: tuple[int, ...]
    against: Paired | None = None
    """Minus the first policy of the plan; None for that one."""


def results(plan: Plan, done: Iterable[Done]) -> tuple[Result, ...]:
    """In the order of the plan; what did not come to its end is left out."""
    found: dict[tuple[str, float | None, str, str], Values] = {}
    for each in done:
        for measure, value in values(each, plan.ratio):
            key = (each.job.trace, each.job.load, each.job.policy, measure)
            found.setdefault(key, {})[each.job.seed] = value
    first = plan.policies[0]
    return tuple(
        Result(
            trace=trace,
            load=load,
            policy=policy,
            measure=measure,
            mean=statistics.fmean(by_seed.values()),
            spread=statistics.stdev(by_seed.values()) if len(by_seed) > 1 else None,
            seeds=tuple(by_seed),
            against=None if policy == first else paired(by_seed, found.get((trace, load, first, measure), {})),
        )
        for (trace, load, policy, measure), by_seed in found.items()
    )


def values(done: Done, ratio: float) -> list[tuple[str, float]]:
    """Measures of one run."""
    if done.steady is not None:
        return [("allocated", done.steady.allocated_percent), ("lost", done.steady.lost_percent)]
    if done.curve is None:
        return []
    percents = dict.fromkeys((FULL, round(100 * ratio)))
    at = [(f"@{percent}", done.curve.allocated(percent)) for percent in percents]
    return [(name, value) for name, value in at if value is not None]


def instead(done: Iterable[Done]) -> tuple[Instead, ...]:
    """Policies that could not decide everything, in the order of the plan."""
    counts: dict[str, Counter[str]] = {}
    for each in done:
        found = each.curve or each.steady
        if found is not None and found.instead:
            counts.setdefault(each.job.policy, Counter()).update(found.instead)
    return tuple(
        Instead(policy=policy, decisions=reasons.total(), why=_first(reasons)) for policy, reasons in counts.items()
    )


def _first(reasons: Counter[str]) -> str:
    """The most frequent one; that it was put aside in the end is what came of the others."""
    return min(reasons, key=lambda why: (PUT_ASIDE in why, -reasons[why], why))


def outcomes(done: Sequence[Done]) -> list[RunOutcome]:
    """Runs of the arrival protocol, as reports and pictures take them."""
    return [
        RunOutcome(trace=each.job.trace, policy=each.job.policy, seed=each.job.seed, curve=each.curve)
        for each in done
        if each.curve is not None
    ]


def steady_outcomes(done: Sequence[Done]) -> list[SteadyOutcome]:
    """Runs with departures, likewise."""
    return [
        SteadyOutcome(
            trace=each.job.trace, load=each.job.load, policy=each.job.policy, seed=each.job.seed, steady=each.steady
        )
        for each in done
        if each.steady is not None
    ]
