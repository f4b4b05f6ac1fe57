"""Decisions that were made again: one line each, and both records where they differ."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from contracts.decisions import Nominated, Reserved
from contracts.messages import encode
from gpubus.decideagain import Again, Decision
from gpubus.render.tables import Column, table
from gpubus.render.words import plural
from scheduler.core.replay import Decided


def again(found: Again) -> Iterator[RenderableType]:
    """The whole answer."""
    if not found.decisions:
        yield Text(f"the commit at {found.sequence} placed nothing and kept no place")
        return
    equal = sum(each.equal for each in found.decisions)
    yield table(_COLUMNS, found.decisions, lambda each: "" if each.equal else "yellow" if each.unknown else "red")
    for each in found.decisions:
        if not each.equal and not each.unknown:
            yield Text(f"log   {encode(each.logged).decode()}", style="dim")
            yield Text(f"again {encode(each.again).decode() if each.again is not None else 'nowhere'}", style="dim")
    words = "equal, byte for byte" if equal == len(found.decisions) else f"{equal} equal, byte for byte"
    yield Text(f"{plural(len(found.decisions), 'decision')} at {found.sequence} computed again: {words}")


def _where(record: Decided | None) -> str:
    if record is None:
        return "nowhere"
    cards = ", ".join(f"{piece.card} {piece.share_milli}/1000" for piece in record.placement.slices)
    return f"{record.placement.node} {cards}{_leaving(record)}".strip()


def _leaving(record: Decided) -> str:
    victims = record.victims if isinstance(record, Nominated) else ()
    return f", {plural(len(victims), 'other')} told to leave" if victims else ""


def _by(record: Decided) -> str:
    return record.rationale.policy if isinstance(record, Reserved) else f"(a place is kept: {record.why})"


def _again(each: Decision) -> str:
    if each.unknown:
        return f"{each.unknown} is not known here"
    return "the same" if each.equal else _where(each.again)


_COLUMNS: list[Column[Decision]] = [
    ("REQUEST", lambda each: f"{each.namespace}/{each.name}"),
    ("POLICY", lambda each: _by(each.logged)),
    ("IN THE LOG", lambda each: _where(each.logged)),
    ("AGAIN", _again),
]
