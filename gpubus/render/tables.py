"""Tables of requests, cards, nodes, refusals, dead letters and events, in plain columns that grep and awk can read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from contracts.answers import CardView, NodeView, RequestView
from contracts.outcomes import DeadLetter, Refusal, RequestEvent
from contracts.units import WHOLE_CARD
from gpubus.render.words import UNKNOWN, age, csv_words, mib, share

Row = TypeVar("Row")
Column = tuple[str, Callable[[Row], str]]

PHASE_STYLES = {
    "pending": "yellow",
    "placed": "cyan",
    "bound": "cyan",
    "running": "green",
    "ended": "dim",
    "withdrawn": "dim",
    "released": "dim",
    "refused": "red",
    "accepted": "",
}
_HEALTH_STYLES = {"suspect": "yellow", "recovering": "yellow", "failed": "red", "cordoned": "magenta"}


def table(columns: Sequence[Column[Row]], rows: Iterable[Row], style: Callable[[Row], str] = lambda _: "") -> Table:
    """Columns without lines around them; each row in one style."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for title, _ in columns:
        made.add_column(title, overflow="fold", no_wrap=title != "REASON")
    for row in rows:
        made.add_row(*(Text(cell(row)) for _, cell in columns), style=style(row))
    return made


def requests(rows: Iterable[RequestView], *, now_ms: int, wide: bool = False) -> Table:
    """What was asked for and how far it is."""
    columns: list[Column[RequestView]] = [
        ("NAMESPACE", lambda r: r.namespace),
        ("NAME", lambda r: r.name),
        ("PHASE", lambda r: r.phase),
        ("CARDS", lambda r: str(r.cards)),
        ("SHARE", lambda r: share(r.share_milli) if r.cards else "-"),
        ("MEMORY", _memory),
        ("NODE", lambda r: r.node or "-"),
        ("AGE", lambda r: age(r.submitted_ms, now_ms)),
    ]
    if wide:
        columns += [
            ("PRIORITY", lambda r: str(r.priority)),
            ("GANG", lambda r: r.gang or "-"),
            ("POD", lambda r: r.pod or "-"),
            ("UID", lambda r: r.uid),
            ("SLICES", lambda r: csv_words(r.slices)),
        ]
    columns.append(("REASON", lambda r: r.reason))
    return table(columns, rows, lambda r: PHASE_STYLES.get(r.phase, ""))


def _memory(row: RequestView) -> str:
    if not row.cards:
        return "-"
    return "by share" if row.memory_mib is None else mib(row.memory_mib)


def cards(
    rows: Iterable[CardView],
    *,
    wide: bool = False,
    now_ms: int = 0,
    enforced: Callable[[CardView], str] | None = None,
    extra: Sequence[Column[CardView]] = (),
) -> Table:
    """Every card: what it is, what is sold of it, to how many; with more columns when it is wide."""
    columns: list[Column[CardView]] = [
        ("NODE", lambda c: c.node),
        ("CARD", lambda c: str(c.card.index)),
        ("MODEL", lambda c: c.card.model),
        ("SOLD", lambda c: f"{c.used_milli}/{WHOLE_CARD}"),
        ("MEMORY", lambda c: f"{c.used_mib}/{mib(c.sellable_mib)}"),
        ("RESIDENTS", lambda c: str(len(c.residents))),
        ("HEALTH", _card_health),
        ("SINCE", lambda c: age(c.since_ms, now_ms) if c.since_ms else "-"),
    ]
    if enforced is not None:
        columns.append(("ENFORCED", enforced))
    if wide:
        columns += [
            ("UUID", lambda c: c.card.uuid),
            ("ISOLATION", lambda c: c.card.isolation),
            ("WHO", lambda c: csv_words(c.residents)),
            *extra,
        ]
    columns.append(("REASON", lambda c: c.reason))
    return table(columns, rows, lambda c: _HEALTH_STYLES.get(_card_health(c).partition(",")[0], ""))


def _card_health(view: CardView) -> str:
    return view.health or view.card.health


def nodes(rows: Iterable[NodeView], *, wide: bool = False) -> Table:
    """Every node: alive or not, and what is sold of its cards, CPU and memory."""
    columns: list[Column[NodeView]] = [
        ("NODE", lambda n: n.node),
        ("READY", lambda n: "yes" if n.ready else "no"),
        ("HEALTH", lambda n: n.health),
        ("CARDS", lambda n: f"{n.used_card_milli / WHOLE_CARD:.1f}/{n.cards}"),
        ("CPU", lambda n: f"{n.used_cpu_milli}/{n.allocatable_cpu_milli}m"),
        ("MEMORY", lambda n: f"{n.used_memory_mib}/{mib(n.allocatable_memory_mib)}"),
    ]
    if wide:
        columns.append(("FREE CPU", lambda n: f"{n.allocatable_cpu_milli - n.used_cpu_milli}m"))
    columns.append(("REASON", lambda n: n.reason))
    return table(columns, rows, lambda n: "" if n.ready and n.health == "fresh" else "yellow")


def refusals(rows: Iterable[Refusal]) -> Table:
    """Which field, what stood there, what would be accepted."""
    columns: list[Column[Refusal]] = [
        ("FIELD", lambda r: r.field),
        ("VALUE", lambda r: r.value or UNKNOWN),
        ("BOUND", lambda r: r.bound),
        ("REASON", lambda r: r.text),
    ]
    return table(columns, rows)


def dead_letters(rows: Iterable[DeadLetter]) -> Table:
    """What could not be understood, from where, why."""
    columns: list[Column[DeadLetter]] = [
        ("STREAM", lambda d: d.origin_stream or "-"),
        ("SEQUENCE", lambda d: str(d.origin_sequence)),
        ("SUBJECT", lambda d: d.origin_subject),
        ("REASON", lambda d: d.reason),
    ]
    return table(columns, rows)


def event_line(event: RequestEvent, *, named: bool = True) -> Text:
    """One step of a request's life as one line."""
    style = PHASE_STYLES.get(event.phase, "")
    line = Text()
    if named:
        line.append(f"{event.namespace}/{event.name}  ")
    line.append(f"{event.phase:<9}", style=style)
    line.append("  " + (_event_words(event)))
    return line


def _event_words(event: RequestEvent) -> str:
    if event.text:
        return event.text
    if event.phase == "placed" and event.node:
        return f"on {event.node}: " + csv_words(
            f"{p.card} {share(p.share_milli)} {mib(p.memory_mib)}" for p in event.slices
        )
    if event.refusals:
        return "; ".join(f"{r.field} = {r.value}: {r.text}" for r in event.refusals)
    if event.reasons:
        return "; ".join(reason.text for reason in event.reasons)
    return event.pod
