"""Allocation and fragments against arrived demand, as a picture file. The only code that knows matplotlib.

matplotlib is an extra (`gpubus[plot]`) and is imported when a picture is asked for. `check` tells early, before
minutes of work, whether there will be one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gpubus.errors import UsageError
from gpubus.simulate.protocol import Point
from gpubus.simulate.report import RunOutcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
WIDTH_INCHES, HEIGHT_INCHES = 11.0, 4.0

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


def draw(runs: Sequence[RunOutcome], cards: int, file: str) -> None:
    """One row of two panels for each trace: a line for each policy, the mean over its seeds.

    Raises:
        UsageError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - half a second, and an extra

    traces = list(dict.fromkeys(run.trace for run in runs))
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES * len(traces)), layout="constrained")
    panels = figure.subplots(len(traces), 2, squeeze=False)
    for trace, (left, right) in zip(traces, panels, strict=True):
        of_trace = [run for run in runs if run.trace == trace]
        _panel(left, of_trace, lambda point: point.allocated_percent, f"{trace}: allocated, % of all cards")
        _panel(right, of_trace, lambda point: point.fragment_milli / (10 * cards), "fragments, % of all cards")
        left.legend(loc="upper left", fontsize="small")
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise UsageError(f"--plot {file}: {error.strerror or error}") from error


def _panel(axes: Axes, runs: Sequence[RunOutcome], value: Value, title: str) -> None:
    for policy in dict.fromkeys(run.policy for run in runs):
        curve = means([run for run in runs if run.policy == policy], value)
        axes.plot(list(curve), list(curve.values()), label=policy, linewidth=1.2)
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("demand arrived, % of all cards")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)


def means(runs: Sequence[RunOutcome], value: Value) -> dict[int, float]:
    """By percent arrived, ascending: the mean over the runs that have a point there."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for point in run.curve.points:
            found.setdefault(point.arrived_percent, []).append(value(point))
    return {percent: statistics.fmean(found[percent]) for percent in sorted(found)}
