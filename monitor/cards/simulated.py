"""Cards made up from the settings: for laptops, tests and simulations. No driver, no clock, no randomness of its own.

In: how many cards of which kind, the time (a function) and, when somebody tells, the shares sold on them. Out: the same
cards with the same UUIDs on every start, and a use that is a function of (card, time, shares) alone:

    a pod with share s uses   s × (60 + 40 × wave) %   of a card; wave in -1..1, a turn a minute, its phase from the uid
    a card uses the sum of its pods, never more than 100 %; nothing when nobody holds a share

So a card sold whole to one pod swings between 20 and 100 %, which gives autoscalers something to do.

Faults are scripted: `2@20+30` means that the card of index 2 falls off the bus 20 seconds after the start, for 30
seconds; `2@20+30:Xid 48` that this is said against it meanwhile.
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping

import msgspec

from contracts.inventory import Card
from contracts.outcomes import NodeShares, ShareAssignment
from contracts.units import CardUuid
from contracts.usage import CardUsage, ProcessUsage
from monitor.cards.protocol import DriverInfo, Look, Place, ProviderName, Sign, Weight

_UUIDS = uuid.uuid5(uuid.NAMESPACE_DNS, "cards.gpubus")
_TURN_MS = 60_000
_IDLE_W, _FULL_W = 60, 400
_IDLE_C, _FULL_C = 30, 75
_PER_SWITCH = 4


class SimulatedKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the made-up cards are. The defaults are those of an A100 with 40 GiB."""

    cards: int = 8
    model: str = "Simulated A100-40G"
    memory_mib: int = 40_960
    reserved_mib: int = 512


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one card, from when, for how long."""

    index: int
    after_s: int
    for_s: int
    reason: str = "GPU is lost (simulated)"


_FAULT = re.compile(r"(\d{1,2})@(\d{1,6})\+(\d{1,6})(?::(.{1,200}))?")


def fault(text: str) -> Fault:
    """`INDEX@AFTER+FOR` or `INDEX@AFTER+FOR:REASON`, in seconds. Raises ValueError: it is spelt otherwise."""
    match = _FAULT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: spelt as INDEX@AFTER+FOR or INDEX@AFTER+FOR:REASON in seconds, such as 2@20+30")
    index, after_s, for_s, reason = match.groups()
    return Fault(index=int(index), after_s=int(after_s), for_s=int(for_s), **({"reason": reason} if reason else {}))


class SimulatedCards:
    """A `CardProvider` that also takes shares, and faults."""

    def __init__(
        self, node: str, kind: SimulatedKind, now_ms: Callable[[], int], *, faults: Iterable[Fault] = ()
    ) -> None:
        self._kind = kind
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._faults = tuple(faults)
        self._broken: dict[int, tuple[Weight, str]] = {}
        self._assignments: tuple[ShareAssignment, ...] = ()
        self._cards = tuple(_card(node, index, kind) for index in range(kind.cards))

    @property
    def name(self) -> ProviderName:
        """`simulated`."""
        return "simulated"

    def assign(self, shares: NodeShares) -> None:
        """The shares from now on."""
        self._assignments = shares.assignments

    def break_card(self, index: int, reason: str, weight: Weight = "fatal") -> None:
        """From now on each look finds this against the card. Raises IndexError: there is no such card."""
        self._broken[self._cards[index].index] = (weight, reason)

    def repair(self, index: int) -> None:
        """Nothing speaks against the card any more."""
        self._broken.pop(index, None)

    def seats(self) -> tuple[int, ...]:
        """One per card."""
        return tuple(range(len(self._cards)))

    def look(self, seat: int) -> Look:
        """What the curve says for now; a card that a fault has hit tells nothing."""
        card, now_ms = self._cards[seat], self._now_ms()
        against = self._against(seat, now_ms)
        if against is None:
            return Look(cards=(card,), usage=(card_usage(card, self._assignments, now_ms),))
        weight, reason = against
        sign = Sign(card=card.uuid, weight=weight, reason=reason)
        return Look(cards=(card,), usage=(CardUsage(uuid=card.uuid),), signs=(sign,))

    def _against(self, seat: int, now_ms: int) -> tuple[Weight, str] | None:
        age_s = (now_ms - self._began_ms) / 1000
        for one in self._faults:
            if one.index == seat and one.after_s <= age_s < one.after_s + one.for_s:
                return "fatal", one.reason
        return self._broken.get(seat)

    def info(self) -> DriverInfo:
        """`simulated`."""
        return DriverInfo(version="simulated")

    def places(self, seats: tuple[int, ...]) -> Mapping[int, Place]:
        """Four cards on a PCIe switch and a memory node, all of them on NVLink: as in common machines with eight."""
        linked = 0 if len(seats) > 1 else None
        return {s: Place(nvlink_group=linked, pcie_group=s // _PER_SWITCH, numa_node=s // _PER_SWITCH) for s in seats}

    def reopen(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to let go of."""


def card_uuid(node: str, index: int) -> CardUuid:
    """The same node and index have the same UUID for ever."""
    return CardUuid(f"GPU-{uuid.uuid5(_UUIDS, f'{node}/{index}')}")


def card_usage(card: Card, assignments: tuple[ShareAssignment, ...], now_ms: int) -> CardUsage:
    """The use of one card at one time, from the shares sold on it."""
    ours = sorted((a for a in assignments if a.card == card.uuid), key=lambda a: a.uid)
    processes = tuple(
        ProcessUsage(pid=pid_of(a), memory_mib=a.memory_mib * 9 // 10, compute_percent=_used_percent(a, now_ms))
        for a in ours
    )
    busy = min(100, sum(p.compute_percent or 0 for p in processes))
    return CardUsage(
        uuid=card.uuid,
        compute_percent=busy,
        memory_used_mib=min(card.sellable_mib, sum(p.memory_mib or 0 for p in processes)),
        power_w=_IDLE_W + (_FULL_W - _IDLE_W) * busy // 100,
        temperature_c=_IDLE_C + (_FULL_C - _IDLE_C) * busy // 100,
        processes=processes,
    )


def pid_of(assignment: ShareAssignment) -> int:
    """A process id for a pod that has no process: from its uid, above what Linux gives out."""
    return (1 << 22) + zlib.crc32(assignment.uid.encode()) % (1 << 22)


def _used_percent(assignment: ShareAssignment, now_ms: int) -> int:
    phase = zlib.crc32(assignment.uid.encode()) % _TURN_MS
    return (assignment.share_milli * (60_000 + 40 * _wave(now_ms + phase)) + 500_000) // 1_000_000


def _wave(at_ms: int) -> int:
    """A triangle between -1000 and 1000: integers, so that every machine draws the same one."""
    quarter = _TURN_MS // 4
    at = at_ms % _TURN_MS
    if at < quarter:
        return at * 1000 // quarter
    return (2 * quarter - at) * 1000 // quarter if at < 3 * quarter else (at - 4 * quarter) * 1000 // quarter


def _card(node: str, index: int, kind: SimulatedKind) -> Card:
    return Card(
        uuid=card_uuid(node, index),
        index=index,
        model=kind.model,
        memory_total_mib=kind.memory_mib,
        memory_reserved_mib=kind.reserved_mib,
        mig_enabled=False,
    )
