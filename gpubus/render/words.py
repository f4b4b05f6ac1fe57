"""Short forms that every view shares: an ask, a slice, an age, a memory size in the words of the contracts."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.decisions import CardSlice
from contracts.requests import GpuAsk
from contracts.units import WHOLE_CARD

UNKNOWN = "?"
"""Shown where a number is not known; never 0."""


def mib(value: int | None) -> str:
    """`8000 MiB`."""
    return UNKNOWN if value is None else f"{value} MiB"


def share(milli: int) -> str:
    """`500/1000`, a whole card as `whole`."""
    return "whole" if milli == WHOLE_CARD else f"{milli}/{WHOLE_CARD}"


def plural(count: int, word: str) -> str:
    """`1 card`, `2 cards`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def ask(gpu: GpuAsk) -> str:
    """What a request wants of cards, as one phrase."""
    if gpu.cards == 0:
        return "no card"
    size = "whole" if gpu.share_milli == WHOLE_CARD else f"{share(gpu.share_milli)} of the compute"
    each = "each " if gpu.cards > 1 else ""
    models = f", model {' or '.join(gpu.models)}" if gpu.models else ""
    least = f", of at least {mib(gpu.min_card_memory_mib)}" if gpu.min_card_memory_mib else ""
    links = {"prefer": ", linked by NVLink if possible", "require": ", linked by NVLink"}.get(gpu.nvlink, "")
    return f"{plural(gpu.cards, 'card')}, {each}{size} and {_memory(gpu)}{models}{least}{links}"


def _memory(gpu: GpuAsk) -> str:
    if gpu.memory_mib is not None:
        return mib(gpu.memory_mib)
    if gpu.memory_milli is not None:
        return f"{share(gpu.memory_milli)} of its memory"
    return "the same part of its memory"


def piece(part: CardSlice) -> str:
    """One slice: `GPU-… 500/1000 8000 MiB`."""
    return f"{part.card} {share(part.share_milli)} {mib(part.memory_mib)}"


def age(since_ms: int, now_ms: int) -> str:
    """How long ago, in the largest unit that is not 0; `?` when it was never told."""
    return UNKNOWN if not since_ms else span((now_ms - since_ms) // 1000)


def span(whole_seconds: int) -> str:
    """A length of time in one unit, two for minutes under ten: `7s`, `3m20s`, `25m`, `5h`, `9d`."""
    seconds = max(0, whole_seconds)
    if seconds < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{seconds}s"
    if seconds < 600:  # noqa: PLR2004 - ten minutes: below it the seconds still matter
        return f"{seconds // 60}m{seconds % 60}s"
    for unit, size in (("d", 172_800), ("h", 7200), ("m", 60)):
        if seconds >= size:
            return f"{seconds // {'d': 86_400, 'h': 3600, 'm': 60}[unit]}{unit}"
    raise AssertionError(seconds)


def bar(part: int, whole: int, width: int) -> str:
    """A bar of eighths: how much of `whole` is `part`, rounded down, so that a full bar means full."""
    if whole <= 0:
        return " " * width
    eighths = min(max(part, 0), whole) * width * 8 // whole
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


def csv_words(values: Iterable[str]) -> str:
    """`a, b`, or `-` when there is none."""
    return ", ".join(values) or "-"
