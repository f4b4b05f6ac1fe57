"""Differences between policies as a picture file: a dot for each mean, a line for two standard errors either way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpubus.errors import UsageError
from gpubus.render.compared import SURE, Compared
from gpubus.render.simulation import short
from gpubus.simulate.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_INCHES, ROW_INCHES, HEAD_INCHES = 8.0, 0.3, 1.2


def draw(found: Compared, file: str) -> None:
    """One panel for each measure, one row for each trace, load and policy but the first.

    Raises:
        UsageError: the file cannot be written.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - half a second, and an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    measures = list(dict.fromkeys(r.measure for r in found.results))
    rows = {measure: [r for r in found.results if r.measure == measure and r.against] for measure in measures}
    heights = [HEAD_INCHES + ROW_INCHES * len(rows[measure]) for measure in measures]
    with rc_context({"svg.hashsalt": "gpubus", "svg.fonttype": "none"}):
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
        panels = figure.subplots(len(measures), 1, squeeze=False, height_ratios=heights)
        for measure, (axes,) in zip(measures, panels, strict=True):
            _panel(axes, rows[measure], f"{measure}: points more than {found.against}")
        try:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.endswith(".svg") else None)
        except OSError as error:
            raise UsageError(f"--plot {file}: {error.strerror or error}") from error


def _panel(axes: Axes, rows: Sequence[Result], title: str) -> None:
    names = [f"{short(r.trace)}{'' if r.load is None else f' {r.load:g}'}  {r.policy}" for r in rows]
    means = [r.against.mean for r in rows if r.against is not None]
    errors = [SURE * (r.against.error or 0.0) for r in rows if r.against is not None]
    axes.axvline(0.0, color="0.6", linewidth=0.8)
    axes.errorbar(means, range(len(rows)), xerr=errors, fmt="o", markersize=4, linewidth=1.0)
    axes.set_yticks(range(len(rows)), names, fontsize="small")
    axes.invert_yaxis()
    axes.set_title(title, fontsize="medium")
    axes.grid(visible=True, axis="x", alpha=0.3)
