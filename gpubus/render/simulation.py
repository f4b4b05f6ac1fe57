"""Simulated policies as tables: for people, and in Markdown; percent of all cards unless a column says otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from gpubus.render.tables import Column, table
from gpubus.simulate.report import Line, Simulated, SteadyLine, TenantLine


def simulated(found: Simulated) -> Iterator[RenderableType]:
    """One row for each trace and policy."""
    yield Text(f"{found.nodes} nodes with {found.cards} cards; {_told(found)}", style="dim")
    if found.lines:
        beside = any(mark.published is not None for line in found.lines for mark in line.marks)
        yield table(_columns(found.lines[0], beside=beside), found.lines)
    if found.steady:
        yield table(_STEADY, found.steady)
    if found.tenants:
        yield Text("by namespace; LOST in % of what it asked for", style="dim")
        yield table(_tenant_columns(with_load=bool(found.steady)), found.tenants)
    for each in found.instead:
        yield Text(each.told, style="yellow")


def _tenant_columns(*, with_load: bool) -> list[Column[TenantLine]]:
    load: list[Column[TenantLine]] = [("LOAD", lambda line: "recorded" if line.load is None else f"{line.load:g}")]
    return [
        ("TRACE", lambda line: line.trace),
        *(load if with_load else []),
        ("POLICY", lambda line: line.policy),
        ("NAMESPACE", lambda line: line.namespace),
        ("ARRIVED", lambda line: f"{line.arrived:.0f}"),
        ("REFUSED", lambda line: f"{line.refused:.0f}"),
        ("BY QUOTA", lambda line: f"{line.over_quota:.0f}"),
        ("LOST", lambda line: percents(line.lost)),
    ]


def _told(found: Simulated) -> str:
    if found.steady:
        return (
            "allocation in % of all cards, averaged over time; LOST in % of the card time that was asked for; "
            "policies that learn know what has arrived so far"
        )
    knows = "the mix of the whole trace" if found.mix == "trace" else "the arrivals so far"
    return f"allocation in % of all cards when so much % of them has been asked for; policies that learn know {knows}"


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
        (f"@{percent}", lambda line: percents(line.marks[place].mean)),
        ("SD", lambda line: percents(line.marks[place].spread)),
    ]


def _published(place: int) -> list[Column[Line]]:
    return [
        ("PUBLISHED", lambda line: percents(line.marks[place].published)),
        ("DIFF", lambda line: percents(line.marks[place].difference, "+.2f")),
    ]


_STEADY: list[Column[SteadyLine]] = [
    ("TRACE", lambda line: line.trace),
    ("LOAD", lambda line: "recorded" if line.load is None else f"{line.load:g}"),
    ("POLICY", lambda line: line.policy),
    ("SEEDS", lambda line: str(len(line.seeds))),
    ("ALLOCATED", lambda line: percents(line.allocated)),
    ("SD", lambda line: percents(line.spread)),
    ("LOST", lambda line: percents(line.lost)),
    ("LOST BY CARDS", lambda line: "  ".join(f"{each.cards}: {each.percent:.1f}" for each in line.lost_by_cards)),
    ("ARRIVED", lambda line: f"{line.arrived:.0f}"),
    ("REFUSED", lambda line: f"{line.refused:.0f}"),
    ("KILLED", lambda line: f"{line.killed:.0f}"),
]


def percents(value: float | None, form: str = ".2f") -> str:
    """Two digits, or a dash."""
    return "-" if value is None else format(value, form)


# --- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(found: Simulated) -> str:
    """Traces down, policies across: one table for each mark, published means in brackets; then what is to be known."""
    tenants = [_tenants_markdown(found.tenants)] if found.tenants else []
    return "\n\n".join([_tables(found), *tenants, *(each.told for each in found.instead)])


def _tenants_markdown(lines: Sequence[TenantLine]) -> str:
    """One row for each trace, load, policy and namespace."""
    head = ["trace", "load", "policy", "namespace", "arrived", "refused", "by quota", "lost"]
    rows = [
        [
            short(line.trace),
            "-" if line.load is None else f"{line.load:g}",
            f"`{line.policy}`",
            line.namespace,
            *(f"{count:.0f}" for count in (line.arrived, line.refused, line.over_quota)),
            percents(line.lost),
        ]
        for line in lines
    ]
    return grid(head, rows)


def _tables(found: Simulated) -> str:
    if found.steady:
        return _steady_markdown(found.steady)
    policies = list(dict.fromkeys(line.policy for line in found.lines))
    traces = list(dict.fromkeys(line.trace for line in found.lines))
    at = {(line.trace, line.policy): line for line in found.lines}
    tables = []
    for place, mark in enumerate(found.lines[0].marks if found.lines else ()):
        cells = [[_cell(at.get((trace, policy)), place) for policy in policies] for trace in traces]
        head = [f"@{mark.arrived_percent}", *(f"`{policy}`" for policy in policies)]
        tables.append(grid(head, [[short(trace), *row] for trace, row in zip(traces, cells, strict=True)]))
    return "\n\n".join(tables)


def short(trace: str) -> str:
    """Without what all files of the trace begin with."""
    return trace.removeprefix("openb_pod_list_")


def _cell(line: Line | None, place: int) -> str:
    if line is None:
        return "-"
    mark = line.marks[place]
    return percents(mark.mean) + (f" ({mark.published:.2f})" if mark.published is not None else "")


def _steady_markdown(lines: Sequence[SteadyLine]) -> str:
    """Traces and loads down, policies across: allocated / lost."""
    policies = list(dict.fromkeys(line.policy for line in lines))
    places = list(dict.fromkeys((line.trace, line.load) for line in lines))
    at = {(line.trace, line.load, line.policy): line for line in lines}
    rows = []
    for trace, load in places:
        cells = [at.get((trace, load, policy)) for policy in policies]
        told = [f"{line.allocated:.2f} / {line.lost:.2f}" if line is not None else "-" for line in cells]
        rows.append([short(trace), "recorded" if load is None else f"{load:g}", *told])
    return grid(["trace", "load", *(f"`{policy}`" for policy in policies)], rows)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
