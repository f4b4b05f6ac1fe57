"""A change in words: one sentence that names node, card and the missing number."""

from __future__ import annotations

from contracts.answers import Nearest
from scheduler.core.nearest import Change
from scheduler.core.request import Shape


def nearest(shape: Shape, change: Change) -> Nearest:
    """The change as people and machines read it; `missing` is the number that lacks most of what was asked."""
    parts = _parts(shape, change.shape)
    where = f"{change.node} card {change.card}" if change.card else change.node
    less = " and ".join(f"{given} {unit} instead of {asked} ({asked - given} missing)" for asked, given, unit in parts)
    what = (f"with {less}", *change.conditions) if less else change.conditions
    missing, unit = _largest(parts)
    return Nearest(
        text=f"{where} would take it {', '.join(what)}"[:1024],
        node=change.node,
        card=change.card,
        missing=missing,
        unit=unit,
    )


def _parts(asked: Shape, given: Shape) -> list[tuple[int, int, str]]:
    """What shrinks: asked, given, unit."""
    pairs = (
        (asked.cards, given.cards, "cards"),
        (asked.share_milli, given.share_milli, "thousandths of a card"),
        (asked.memory_mib or 0, given.memory_mib or 0, "MiB of card memory"),
        (asked.memory_milli or 0, given.memory_milli or 0, "thousandths of a card's memory"),
        (asked.min_card_mib, given.min_card_mib, "MiB of the whole card"),
        (asked.cpu_milli, given.cpu_milli, "milli-cores"),
        (asked.host_memory_mib, given.host_memory_mib, "MiB of host memory"),
    )
    return [(before, after, unit) for before, after, unit in pairs if after < before]


def _largest(parts: list[tuple[int, int, str]]) -> tuple[int, str]:
    if not parts:
        return 0, ""
    asked, given, unit = max(parts, key=lambda part: (part[0] - part[1]) * 1000 // part[0])
    return asked - given, unit
