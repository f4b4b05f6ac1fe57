"""Quotas as a table: of each namespace what it may hold beside what it holds."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from contracts.answers import QuotaView
from contracts.units import WHOLE_CARD
from gpubus.render.tables import Column, table
from gpubus.render.words import mib


def quotas(rows: Iterable[QuotaView]) -> Table:
    """`-` is no limit; a namespace without a quota, while quotas are on, may hold nothing."""
    columns: list[Column[QuotaView]] = [
        ("NAMESPACE", lambda q: q.namespace),
        ("CARDS", lambda q: f"{q.used_milli / WHOLE_CARD:g}/{_limit(q, q.share_milli, 1 / WHOLE_CARD)}"),
        ("MEMORY", lambda q: f"{q.used_mib}/{_memory(q)}"),
        ("WEIGHT", lambda q: str(q.weight)),
        ("MAX PRIORITY", lambda q: "-" if q.max_priority is None else str(q.max_priority)),
        ("QUOTA", lambda q: "yes" if q.mapped else "none: may hold nothing"),
    ]
    return table(columns, rows, lambda q: "" if q.mapped else "yellow")


def _limit(quota: QuotaView, limit: int | None, scale: float) -> str:
    if not quota.mapped:
        return "0"
    return "-" if limit is None else f"{limit * scale:g}"


def _memory(quota: QuotaView) -> str:
    if not quota.mapped:
        return mib(0)
    return "-" if quota.memory_mib is None else mib(quota.memory_mib)
