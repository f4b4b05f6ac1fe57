"""Functions, training jobs and scale decisions as people read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from contracts.functions import FunctionStatus, MissingCards
from contracts.workloads import JobStatus
from gpubus.functions import Again, FunctionView
from gpubus.workloads import JobView

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


def jobs(rows: Sequence[JobView], *, wide: bool) -> Table:
    """One line each: phase, trainers that run of those wanted, bounds, the last change and why."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("NAMESPACE", "NAME", "PHASE", "TARGET", "RUNNING", "WAITING", "BOUNDS", "FAILED", "LAST CHANGE"):
        table.add_column(column)
    if wide:
        table.add_column("REASON", overflow="fold")
        table.add_column("IMAGE")
    for row in rows:
        job, status = row.job, row.status
        bounds = f"{job.min_trainers}..{job.max_trainers}{' paused' if job.paused else ''}"
        cells = [row.namespace, job.name, *(_job(status, bounds) if status else ["?"] * 4 + [bounds] + ["?"] * 2)]
        table.add_row(*cells, *([status.reason if status else "", job.pod.image] if wide else []))
    return table


def _job(status: JobStatus, bounds: str) -> list[str]:
    numbers = [str(number) for number in (status.target, status.running, status.waiting)]
    last = status.history[-1] if status.history else None
    change = f"{last.before} -> {last.after} {last.rule}" if last is not None else "-"
    return [status.phase, *numbers, bounds, str(status.failed), change]


def missing(cards: MissingCards, *, wide: bool = True) -> str:
    """`4 x 500/1000 of H100: why`."""
    part = f"{cards.cards} x {cards.share_milli}/1000"
    of = f" of {' or '.join(cards.models)}" if cards.models else ""
    return f"{part}{of}: {cards.reason}" if wide else f"{part}{of}"


def standing(status: FunctionStatus | JobStatus | None) -> Iterator[Text]:
    """How a workload is now, and what it lacks."""
    if isinstance(status, JobStatus):
        yield Text(
            f"now       {status.phase}: {status.reason or '-'}; {status.failed} failed, {status.succeeded} finished"
        )
    elif status is not None:
        numbers = [f"{'?' if n is None else n} {what}" for what, n in _numbers(status)]
        yield Text(f"now       {', '.join(numbers)}")
        if status.missing is not None:
            yield Text(f"missing   {missing(status.missing)}", style="yellow")
        for row in status.profiles:
            rate = f"{row.rate_milli / 1000:g} calls/s"
            yield Text(f"measured  {rate} on {row.share_milli}/1000 of {row.model}")


def _numbers(status: FunctionStatus) -> list[tuple[str, int | None]]:
    return [
        ("ready", status.ready),
        ("starting", status.starting),
        ("warm", status.warm),
        ("draining", status.draining),
        ("calls wait", status.waiting),
        ("calls run", status.outstanding),
    ]


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
