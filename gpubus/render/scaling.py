"""Functions and scale decisions as people read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from contracts.functions import FunctionStatus, MissingCards
from gpubus.functions import Again, FunctionView

LAST = 8
"""Decisions that are shown."""


def functions(rows: Sequence[FunctionView], *, wide: bool) -> Table:
    """One line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("NAMESPACE", "NAME", "TARGET", "READY", "STARTING", "WARM", "DRAINING", "WAITING", "RULE"):
        table.add_column(column)
    table.add_column("MISSING", overflow="fold")
    if wide:
        table.add_column("IMAGE")
    for row in rows:
        status = row.status
        cells = [row.namespace, row.function.name, *(_cells(status) if status else ["?"] * 7)]
        cells.append(missing(status.missing, wide=wide) if status and status.missing else "")
        table.add_row(*cells, *([row.function.pod.image] if wide else []))
    return table


def _cells(status: FunctionStatus) -> list[str]:
    numbers = (status.target, status.ready, status.starting, status.warm, status.draining, status.waiting)
    return [*("?" if number is None else str(number) for number in numbers), status.rule]


def missing(cards: MissingCards, *, wide: bool = True) -> str:
    """`4 x 500/1000 of H100: why`."""
    part = f"{cards.cards} x {cards.share_milli}/1000"
    of = f" of {' or '.join(cards.models)}" if cards.models else ""
    return f"{part}{of}: {cards.reason}" if wide else f"{part}{of}"


def story(found: Sequence[Again]) -> Iterator[Text]:
    """The last decisions about a workload, newest first, with what they were made from."""
    shown = found[-LAST:][::-1]
    newest = shown[0].decision
    yield Text(f"{newest.kind} {newest.namespace}/{newest.name}: {newest.target} wanted", style="bold")
    for one in shown:
        yield _line(one)
    yield Text("made from", style="dim")
    for name, number in sorted(newest.inputs.items()):
        yield Text(f"  {name:<20} {number}")
    other = [one for one in found if not one.same]
    if other:
        yield Text(f"{len(other)} of {len(found)} come out differently by the rules of this version", style="yellow")
    else:
        yield Text(f"{len(found)} decisions made again from their inputs: all the same", style="green")


def _line(one: Again) -> Text:
    decision = one.decision
    at = datetime.fromtimestamp(decision.at_ms / 1000, UTC).strftime("%H:%M:%S") if decision.at_ms else "-"
    line = Text(f"  {at}  {decision.present} -> {decision.target}  {decision.rule}")
    return line if one.same else line.append(f"  (now: {one.target} {one.rule})", style="yellow")
