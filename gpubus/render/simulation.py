"""Simulated policies as a table: means over seeds beside the published ones, percent of all cards."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from gpubus.render.tables import Column, table
from gpubus.simulate.report import Line, Simulated


def simulated(found: Simulated) -> Iterator[RenderableType]:
    """One row for each trace and policy."""
    knows = "the mix of the whole trace" if found.mix == "trace" else "the arrivals so far"
    yield Text(
        f"{found.nodes} nodes with {found.cards} cards; allocation in % of all cards when so much % of them has been "
        f"asked for; policies that learn know {knows}",
        style="dim",
    )
    if found.lines:
        beside = any(mark.published is not None for line in found.lines for mark in line.marks)
        yield table(_columns(found.lines[0], beside=beside), found.lines)


def _columns(first: Line, *, beside: bool) -> list[Column[Line]]:
    columns: list[Column[Line]] = [
        ("TRACE", lambda line: line.trace),
        ("POLICY", lambda line: line.policy),
        ("SEEDS", lambda line: str(len(line.seeds))),
    ]
    for place, mark in enumerate(first.marks):
        columns += _measured(place, mark.arrived_percent)
        if beside:
            columns += _published(place)
    return [*columns, ("REFUSED", lambda line: f"{line.refused:.0f}")]


def _measured(place: int, percent: int) -> list[Column[Line]]:
    return [
        (f"@{percent}", lambda line: _percent(line.marks[place].mean)),
        ("SD", lambda line: _percent(line.marks[place].spread)),
    ]


def _published(place: int) -> list[Column[Line]]:
    return [
        ("PUBLISHED", lambda line: _percent(line.marks[place].published)),
        ("DIFF", lambda line: _percent(line.marks[place].difference, "+.2f")),
    ]


def _percent(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)
