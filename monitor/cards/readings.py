"""From what a driver says to what we publish: units, bounds and the rule that unknown stays unknown. Pure.

Bytes become MiB against us: what can be sold is rounded down (total down, reserved up), what is used is rounded up.
A number outside its bounds is a driver's nonsense (255 % is known from the field) and therefore unknown: publishing it
would make every reader refuse the whole message.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from contracts.inventory import Card
from contracts.units import MAX_INTEGER, MAX_MEMORY_MIB, CardUuid
from contracts.usage import CardUsage, ProcessUsage

MIB = 1024 * 1024
MAX_PROCESSES = 1024
MAX_MODEL_LENGTH = 80


class RawMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A card's memory in bytes. `reserved` is None when the driver counts its own part as used (version 1)."""

    total: int
    used: int
    reserved: int | None = None


class RawCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a card says of itself; None = it cannot tell."""

    uuid: CardUuid
    index: int
    name: str | None = None
    memory: RawMemory | None = None
    mig: int | None = None


class RawInstance(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance of a card (MIG) says of itself. `slot`: its number within the card, as events name it."""

    uuid: CardUuid
    name: str | None = None
    slot: int | None = None
    memory: RawMemory | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None


class RawUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a card says it does. Processes: (pid, bytes or None). Samples: (pid, time stamp, per cent)."""

    uuid: CardUuid
    utilization: int | None = None
    memory: RawMemory | None = None
    power_mw: int | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None
    samples: tuple[tuple[int, int, int], ...] | None = None


class MemoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """What to assume where the driver cannot tell."""

    reserved_fallback_mib: int = 1024
    """Kept back where only version 1 of the memory query exists: more than the 300 to 650 MiB that data-centre cards
    were seen to reserve, because a share sold too large ends in somebody's out-of-memory."""
    unified_total_mib: int | None = None
    """Total of a card that reports none (unified memory); None = such a card is not shared by memory."""


def card(raw: RawCard, rules: MemoryRules) -> Card:
    """The card as the inventory names it."""
    return Card(
        uuid=raw.uuid,
        index=raw.index,
        model=(raw.name or "unknown")[:MAX_MODEL_LENGTH],
        memory_total_mib=_total_mib(raw.memory, rules),
        memory_reserved_mib=_reserved_mib(raw.memory, rules),
        mig_enabled=None if raw.mig is None else raw.mig == 1,
    )


def instance(whole: RawCard, raw: RawInstance, rules: MemoryRules) -> Card:
    """An instance as a card of its own. What its card is called comes with the driver's name for the instance."""
    name = raw.name or f"{whole.name or 'unknown'} MIG"
    return Card(
        uuid=raw.uuid,
        index=whole.index,
        model=name[:MAX_MODEL_LENGTH],
        memory_total_mib=_total_mib(raw.memory, rules),
        memory_reserved_mib=_reserved_mib(raw.memory, rules),
        mig_enabled=False,
        isolation="mig",
        parent=whole.uuid,
        mig_profile=name.rpartition("MIG ")[2][:MAX_MODEL_LENGTH],
    )


def usage(raw: RawUsage) -> CardUsage:
    """The card's use as one sample."""
    busy = percent(raw.utilization)
    return CardUsage(
        uuid=raw.uuid,
        compute_percent=busy,
        memory_used_mib=mib_up(raw.memory.used) if raw.memory else None,
        power_w=None if raw.power_mw is None else max(0, (raw.power_mw + 500) // 1000),
        temperature_c=at_least_0(raw.temperature_c),
        sm_clock_mhz=at_least_0(raw.sm_clock_mhz),
        memory_clock_mhz=at_least_0(raw.memory_clock_mhz),
        ecc_corrected=count(raw.ecc_corrected),
        ecc_uncorrected=count(raw.ecc_uncorrected),
        processes=None if raw.processes is None else _processes(raw.processes, raw.samples, busy),
    )


def legal_uuid(text: str | None) -> CardUuid | None:
    """The UUID as messages carry it, or None: a card that cannot be named cannot be published."""
    try:
        return CardUuid(msgspec.convert(text, CardUuid))
    except msgspec.ValidationError:
        return None


def mib_down(size: int | None) -> int | None:
    """Bytes to MiB, rounded down; None for what cannot be."""
    return size // MIB if size is not None and 0 <= size <= MAX_MEMORY_MIB * MIB else None


def mib_up(size: int | None) -> int | None:
    """Bytes to MiB, rounded up; None for what cannot be."""
    return -(-size // MIB) if size is not None and 0 <= size <= MAX_MEMORY_MIB * MIB else None


def percent(value: int | None) -> int | None:
    """0 to 100, else unknown."""
    return value if value is not None and 0 <= value <= 100 else None  # noqa: PLR2004 - per cent


def at_least_0(value: int | None) -> int | None:
    """0 and above, else unknown."""
    return value if value is not None and value >= 0 else None


def count(value: int | None) -> int | None:
    """A counter that messages can carry, else unknown."""
    return value if value is not None and 0 <= value <= MAX_INTEGER else None


def _total_mib(memory: RawMemory | None, rules: MemoryRules) -> int | None:
    total = mib_down(memory.total) if memory else None
    return total or rules.unified_total_mib  # a total of 0 bytes is how some integrated cards say "no memory of my own"


def _reserved_mib(memory: RawMemory | None, rules: MemoryRules) -> int:
    reserved = mib_up(memory.reserved) if memory else None
    return rules.reserved_fallback_mib if reserved is None else reserved


def _processes(
    listed: Iterable[tuple[int, int | None]],
    samples: Iterable[tuple[int, int, int]] | None,
    card_busy: int | None,
) -> tuple[ProcessUsage, ...]:
    """One entry a process, by pid: a process may be listed in several lists and in several MIG instances."""
    held: dict[int, int | None] = {}
    for pid, size in listed:
        before = held.get(pid)
        held[pid] = size if before is None else before if size is None else max(before, size)
    newest = {pid: sm for pid, _, sm in sorted(samples or ())}
    idle = 0 if card_busy == 0 else None  # no sample: idle if the whole card is, else unknown
    every = [
        ProcessUsage(pid=pid, memory_mib=mib_up(size), compute_percent=percent(newest.get(pid, idle)))
        for pid, size in held.items()
    ]
    return keep_largest(every)


def keep_largest(every: Iterable[ProcessUsage]) -> tuple[ProcessUsage, ...]:
    """At most `MAX_PROCESSES` of them, those with the most memory, in order of pid."""
    kept = sorted(every, key=lambda p: (-(p.memory_mib or 0), p.pid))[:MAX_PROCESSES]
    return tuple(sorted(kept, key=lambda p: p.pid))
