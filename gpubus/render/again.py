"""Decisions that were made again: one line each, and both records where they differ."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from contracts.decisions import Reserved
from contracts.messages import encode
from gpubus.decideagain import Again, Decision
from gpubus.render.tables import Column, table
from gpubus.render.words import plural


def again(found: Again) -> Iterator[RenderableType]:
    """The whole answer."""
    if not found.decisions:
        yield Text(f"the commit at {found.sequence} placed nothing")
        return
    equal = sum(each.equal for each in found.decisions)
    yield table(_COLUMNS, found.decisions, lambda each: "" if each.equal else "red")
    for each in found.decisions:
        if not each.equal:
            yield Text(f"log   {encode(each.logged).decode()}", style="dim")
            yield Text(f"again {encode(each.again).decode() if each.again is not None else 'nowhere'}", style="dim")
    words = "equal, byte for byte" if equal == len(found.decisions) else f"{equal} equal, byte for byte"
    yield Text(f"{plural(len(found.decisions), 'decision')} at {found.sequence} computed again: {words}")


def _where(record: Reserved | None) -> str:
    if record is None:
        return "nowhere"
    cards = ", ".join(f"{piece.card} {piece.share_milli}/1000" for piece in record.placement.slices)
    return f"{record.placement.node} {cards}".strip()


_COLUMNS: list[Column[Decision]] = [
    ("REQUEST", lambda each: f"{each.namespace}/{each.name}"),
    ("POLICY", lambda each: each.logged.rationale.policy),
    ("IN THE LOG", lambda each: _where(each.logged)),
    ("AGAIN", lambda each: "the same" if each.equal else _where(each.again)),
]
