"""Limits that follow use, as a table: what each pod was sold, what it uses, and what it gets or would get. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from gpubus.limits import LimitRow
from gpubus.render.tables import Column, table
from gpubus.render.words import UNKNOWN


def limits(found: Iterable[LimitRow], *, wide: bool) -> Table:
    """CPU in thousandths of a core, GPU in thousandths of each card; NEXT of a pod that only is observed is a wish."""
    columns: list[Column[LimitRow]] = [
        ("NAMESPACE", lambda r: r.pod.namespace),
        ("NAME", lambda r: r.pod.pod),
        ("NODE", lambda r: r.node),
        ("DONE", _done),
        ("CPU SOLD", lambda r: f"{r.pod.cpu_sold_milli}m"),
        ("USED", lambda r: _milli(r.pod.cpu_used_milli, "m")),
        ("NEXT", lambda r: _next(r.pod.cpu_next_milli, "m")),
        ("GPU SOLD", lambda r: str(r.pod.gpu_sold_milli) if r.pod.cards else "-"),
        ("USED", lambda r: _milli(r.pod.gpu_used_milli, "") if r.pod.cards else "-"),
        ("NEXT", lambda r: _next(r.pod.gpu_next_milli, "") if r.pod.cards else "-"),
        ("REASON", lambda r: r.pod.reason or r.pod.rule),
    ]
    if wide:
        columns += [
            ("TOKENS/S", lambda r: f"{r.pod.income_milli / 1000:g}"),
            ("SAVED", lambda r: f"{r.pod.savings_milli / 1000:g}"),
        ]
    return table(columns, found, lambda r: "" if r.pod.managed else "dim")


def _done(row: LimitRow) -> str:
    """Whether what is next is written, and if not, why."""
    if not row.pod.managed:
        return "no: not asked for"
    return "yes" if row.mode == "act" else "no: only observed"


def _milli(value: int | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value}{unit}"


def _next(value: int, unit: str) -> str:
    """0 = nothing is granted or wished: its use is not known yet."""
    return f"{value}{unit}" if value else "-"
