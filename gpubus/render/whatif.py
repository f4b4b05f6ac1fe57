"""What would happen, as text: counts first, then who and where, those that wait grouped by their reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from gpubus.render.tables import Column, table
from gpubus.render.words import plural
from gpubus.whatif import Answer, Fate, Moved, counted

SHOWN = 20
"""Of each list; JSON has them all."""


def what_if(answer: Answer) -> Iterator[RenderableType]:
    """The whole answer, top to bottom."""
    yield Text(f"from ledger sequence {answer.sequence}, by policy {answer.policy}", style="dim")
    yield from _group("waiting now", answer.waiting, "would start", "would still wait")
    yield from _group("on drained nodes", answer.moving, "would move", "would wait")
    yield from _group("submitted", answer.submitted, "would start", "would wait")
    if answer.leaving:
        yield Text(f"{plural(len(answer.leaving), 'request')} would have to leave for another one")
        yield table(_COLUMNS, answer.leaving[:SHOWN])
    if answer.moves:
        yield Text(f"{plural(len(answer.moves), 'move')} would make room, each by itself; nobody is moved by this")
        yield table(_MOVES, answer.moves[:SHOWN])
        yield from _more(len(answer.moves))


def _group(title: str, fates: Sequence[Fate], placed: str, waiting: str) -> Iterator[RenderableType]:
    if not fates:
        return
    starts, waits = counted(fates)
    yield Text(f"{title}: {plural(len(fates), 'request')}, {starts} {placed}, {waits} {waiting}", style="bold")
    there = [fate for fate in fates if fate.node]
    if there:
        yield table(_COLUMNS, there[:SHOWN])
        yield from _more(len(there))
    for reason, names in _by_reason(fates).items():
        yield Text(f"{len(names)} wait: {reason}", style="yellow")
        yield Text(f"  {', '.join(names[:SHOWN])}{', …' if len(names) > SHOWN else ''}", style="dim")


def _more(count: int) -> Iterator[Text]:
    if count > SHOWN:
        yield Text(f"… and {count - SHOWN} more; -o json has them all", style="dim")


def _by_reason(fates: Sequence[Fate]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fate in fates:
        if not fate.node:
            found.setdefault(fate.reason or "no reason known", []).append(f"{fate.namespace}/{fate.name}")
    return found


_COLUMNS: list[Column[Fate]] = [
    ("REQUEST", lambda fate: f"{fate.namespace}/{fate.name}"),
    ("FROM", lambda fate: fate.before or "-"),
    ("TO", lambda fate: fate.node or "-"),
    ("CARDS", lambda fate: ", ".join(fate.cards) or "-"),
]

_MOVES: list[Column[Moved]] = [
    ("MOVES", lambda move: f"{move.namespace}/{move.name}"),
    ("FROM", lambda move: move.before),
    ("TO", lambda move: move.node),
    ("THEN STARTS", lambda move: move.starts),
    ("ON CARDS", lambda move: ", ".join(move.cards) or "-"),
]
