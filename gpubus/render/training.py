"""The training experiment as a table for people and as markdown for documents."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from gpubus.simulate.training import Measured

TITLES = (
    "case",
    "policy",
    "wait of a job",
    "published",
    "CPU asked for",
    "published",
    "off-peak",
    "withdrawn",
    "service wait",
)


def rows(found: Sequence[Measured]) -> list[tuple[str, ...]]:
    """One row a case and policy; a dash where there is nothing to tell."""
    return [
        (
            line.case,
            line.policy,
            _told(line.pending_s, "s"),
            _told(line.published[0] if line.published else None, "s"),
            _told(line.cpu_percent, "%"),
            _told(line.published[1] if line.published else None, "%"),
            _off_peak(line),
            str(line.withdrawn),
            _told(line.service_wait_s, "s"),
        )
        for line in found
    ]


def _off_peak(line: Measured) -> str:
    published = line.published[2] if line.published else None
    own = _told(line.off_peak_percent, "%")
    return own if published is None else f"{own} ({published:.1f})"


def _told(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.1f} {unit}"


def table(found: Sequence[Measured]) -> Table:
    """For a terminal."""
    made = Table(box=None, pad_edge=False)
    for number, title in enumerate(TITLES):
        made.add_column(title, justify="left" if number < 2 else "right")  # noqa: PLR2004 - names, then numbers
    for row in rows(found):
        made.add_row(*row)
    return made


def markdown(found: Sequence[Measured]) -> str:
    """For a document."""
    lines = [TITLES, tuple("---" for _ in TITLES), *rows(found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
