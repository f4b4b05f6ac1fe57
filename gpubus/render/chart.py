"""Allocation and fragments against arrived demand, as a picture file. The only code that knows matplotlib.

matplotlib is an extra (`gpubus[plot]`) and is imported when a picture is asked for. `check` tells early, before
minutes of work, whether there will be one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubus.errors import UsageError
from gpubus.simulate.bounds import BOUNDS
from gpubus.simulate.protocol import Point
from gpubus.simulate.report import RunOutcome, SteadyOutcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
WIDTH_INCHES, HEIGHT_INCHES = 11.0, 4.0

ZOOM_FROM = 70
"""Percent: below it every policy places what arrives, and the lines lie on one another."""

_POLICY: dict[str, Any] = {"linewidth": 1.2}
_BOUND: dict[str, Any] = {"linewidth": 1.0, "linestyle": "--", "color": "0.4"}

Value = Callable[[Point], float]


def check(file: str) -> None:
    """Whether a picture can be made under that name.

    Raises:
        UsageError: no matplotlib, or a format that it is not made for.
    """
    if Path(file).suffix not in FORMATS:
        raise UsageError(f"--plot {file}: the name ends in {', '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed: pip install 'gpubus[plot]'")


def draw(runs: Sequence[RunOutcome], steady: Sequence[SteadyOutcome], cards: int, file: str) -> None:
    """One row of panels for each trace: a line for each policy, the mean over its seeds.

    Raises:
        UsageError: the file cannot be written.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - half a second, and an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    filling = [[run for run in runs if run.trace == trace] for trace in dict.fromkeys(run.trace for run in runs)]
    places = dict.fromkeys((run.trace, run.load) for run in steady)
    going = [[run for run in steady if (run.trace, run.load) == place] for place in places]
    rows = len(filling) + len(going)
    # Equal results make equal bytes: no date, and names inside an SVG that do not change from run to run.
    with rc_context({"svg.hashsalt": "gpubus", "svg.fonttype": "none"}):
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES * rows), layout="constrained")
        panels = list(figure.subplots(rows, 2, squeeze=False))
        for of_trace, (left, right) in zip(filling, panels, strict=False):
            _filling(left, right, of_trace, cards)
        for of_load, (left, right) in zip(going, panels[len(filling) :], strict=True):
            _going(left, right, of_load, cards)
        try:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.endswith(".svg") else None)
        except OSError as error:
            raise UsageError(f"--plot {file}: {error.strerror or error}") from error


def _filling(left: Axes, right: Axes, runs: Sequence[RunOutcome], cards: int) -> None:
    """Allocation and fragments against what has arrived."""
    for policy in dict.fromkeys(run.policy for run in runs):
        of_policy = [run for run in runs if run.policy == policy]
        look = _BOUND if policy in BOUNDS else _POLICY
        allocated = means(of_policy, lambda point: point.allocated_percent)
        left.plot(list(allocated), list(allocated.values()), label=policy, **look)
        if policy not in BOUNDS:
            lost = means(of_policy, lambda point: point.fragment_milli / (10 * cards))
            right.plot(list(lost), list(lost.values()), label=policy, **look)
    _frame(left, f"{runs[0].trace}: allocated, % of all cards", "demand arrived, % of all cards")
    _frame(right, "fragments, % of all cards", "demand arrived, % of all cards")
    left.legend(loc="upper left", fontsize="small")
    if max(point.arrived_percent for run in runs for point in run.curve.points) > ZOOM_FROM:
        left.set_xlim(left=ZOOM_FROM)
        left.set_ylim(ZOOM_FROM, 100)


def _going(left: Axes, right: Axes, runs: Sequence[SteadyOutcome], cards: int) -> None:
    """Allocation over virtual time, and card time lost by size of pod."""
    policies = list(dict.fromkeys(run.policy for run in runs))
    for policy in policies:
        samples = [run.steady.samples for run in runs if run.policy == policy]
        hours = [at.at_ms / 3_600_000 for at in samples[0]]
        sold = [statistics.fmean(at.sold_milli for at in same) / (10 * cards) for same in zip(*samples, strict=True)]
        left.plot(hours, sold, label=policy, **_POLICY)
    load = "recorded" if runs[0].load is None else f"load {runs[0].load:g}"
    _frame(left, f"{runs[0].trace}, {load}: allocated, % of all cards", "hours")
    left.legend(loc="lower right", fontsize="small")
    lost = [statistics.fmean(run.steady.lost_percent for run in runs if run.policy == policy) for policy in policies]
    right.barh(policies, lost)
    right.invert_yaxis()
    _frame(right, "card time lost, % of what was asked for", "")


def _frame(axes: Axes, title: str, below: str) -> None:
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(below)
    axes.grid(visible=True, alpha=0.3)


def means(runs: Sequence[RunOutcome], value: Value) -> dict[int, float]:
    """By percent arrived, ascending: the mean over the runs that have a point there."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for point in run.curve.points:
            found.setdefault(point.arrived_percent, []).append(value(point))
    return {percent: statistics.fmean(found[percent]) for percent in sorted(found)}
