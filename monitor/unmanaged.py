"""Memory of a card that belongs to nobody, damped until it may be published: what is not ours cannot be sold. Pure.

In: what was found on each card, each period, and the monotonic time. Out: what the inventory says of it. Each change is
a record of the ledger, so a process that comes and goes must not make one a second:

    up      to the least that was held during all of `rise_ms`; a guest of less than that is none
    down    to the most that was held within `fall_ms`; who came back within it has never left
    steps   rounded up to STEP_MIB, and one change per card within `rise_ms` at most

Worst of all, a guest that stays just longer than the one and leaves just longer than the other writes two records in
`rise_ms + fall_ms` (70 s by default), for ever. What is not known is no observation: then the last word stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from contracts.inventory import Card
from contracts.units import CardUuid
from contracts.usage import CardUsage, ProcessUsage

STEP_MIB = 256
"""A CUDA context alone is 300 to 500 MiB; what is smaller than a step is counted as one."""
NAMED = 3
"""Processes that a card's line names."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long something must be so."""

    rise_ms: int = 10_000
    fall_ms: int = 60_000


class Damped(msgspec.Struct, frozen=True, kw_only=True):
    """One card. `steps` are the changes within `fall_ms`: since when it was how much, the oldest first."""

    said_mib: int = 0
    said_ms: int | None = None
    by: str = ""
    """Whose it was when it was said."""
    steps: tuple[tuple[int, int], ...] = ()


Book = Mapping[CardUuid, Damped]


def remembered(cards: tuple[Card, ...]) -> dict[CardUuid, Damped]:
    """Begin with what an earlier monitor of this boot said: it stands until something else is seen for long enough."""
    return {
        card.uuid: Damped(said_mib=card.memory_unmanaged_mib, by=card.unmanaged_by)
        for card in cards
        if card.memory_unmanaged_mib
    }


def strangers(cards: Iterable[CardUsage]) -> dict[CardUuid, tuple[ProcessUsage, ...]]:
    """The processes of nobody, on each card that has some: the largest first."""
    found = {card.uuid: [p for p in card.processes or () if p.belongs == "nobody"] for card in cards}
    return {
        uuid: tuple(sorted(processes, key=lambda p: (-(p.memory_mib or 0), p.pid)))
        for uuid, processes in found.items()
        if processes
    }


def observe(
    book: Book,
    found: Mapping[CardUuid, int | None],
    named: Mapping[CardUuid, tuple[ProcessUsage, ...]],
    *,
    now_ms: int,
    patience: Patience,
) -> dict[CardUuid, Damped]:
    """One period; a card that is not among `found` is forgotten."""
    return {
        uuid: _observed(book.get(uuid, Damped()), mib, words(named.get(uuid, ())), now_ms, patience)
        for uuid, mib in found.items()
    }


def overlaid(cards: tuple[Card, ...], book: Book) -> tuple[Card, ...]:
    """The cards as the inventory says them."""
    return tuple(_overlaid(card, book.get(card.uuid, Damped())) for card in cards)


def said(book: Book) -> dict[CardUuid, int]:
    """What is published of each card that has something."""
    return {uuid: one.said_mib for uuid, one in book.items() if one.said_mib}


def words(processes: tuple[ProcessUsage, ...]) -> str:
    """`python3 (4242), Xorg (17) and 2 more`; one of a request that has no share of this card is named with it."""
    names = ", ".join(_word(p) for p in processes[:NAMED])
    more = len(processes) - NAMED
    return f"{names} and {more} more" if more > 0 else names


def _word(process: ProcessUsage) -> str:
    astray = f" of request {process.request}, which has no share here" if process.request else ""
    return f"{process.command or 'unnamed'} ({process.pid}){astray}"


def _overlaid(card: Card, one: Damped) -> Card:
    if (card.memory_unmanaged_mib, card.unmanaged_by) == (one.said_mib, one.by):
        return card
    return replace(card, memory_unmanaged_mib=one.said_mib, unmanaged_by=one.by)


def _observed(one: Damped, mib: int | None, by: str, now_ms: int, patience: Patience) -> Damped:
    if mib is None:
        return one
    one = replace(one, steps=_stepped(one.steps, -(-mib // STEP_MIB) * STEP_MIB, now_ms, patience.fall_ms))
    if one.said_ms is not None and now_ms - one.said_ms < patience.rise_ms:
        return one
    wanted = _wanted(one, now_ms, patience)
    if wanted == one.said_mib:
        return one
    return replace(one, said_mib=wanted, said_ms=now_ms, by=by if wanted else "")


def _stepped(steps: tuple[tuple[int, int], ...], mib: int, now_ms: int, keep_ms: int) -> tuple[tuple[int, int], ...]:
    """With the newest value; of what ended before the window, only the step that reaches into it is kept."""
    steps = steps if steps and steps[-1][1] == mib else (*steps, (now_ms, mib))
    first = max((at for at, (since, _) in enumerate(steps) if since <= now_ms - keep_ms), default=0)
    return steps[first:]


def _wanted(one: Damped, now_ms: int, patience: Patience) -> int:
    """Within the least of the short window and the most of the long one; a window that is not full says nothing."""
    low = min(_within(one.steps, now_ms - patience.rise_ms), default=0)
    high = max(_within(one.steps, now_ms - patience.fall_ms), default=one.said_mib)
    return low if low > one.said_mib else min(high, one.said_mib)


def _within(steps: tuple[tuple[int, int], ...], since_ms: int) -> list[int]:
    """Values that held at some time since then; none when nothing was known so long ago."""
    if not steps or steps[0][0] > since_ms:
        return []
    ends = [*(since for since, _ in steps[1:]), None]
    return [mib for (_, mib), end in zip(steps, ends, strict=True) if end is None or end > since_ms]
