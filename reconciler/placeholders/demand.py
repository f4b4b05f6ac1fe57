"""Which waiting requests would go onto a card that we have not got, and on which nodes. Pure.

In: requests that have waited, oldest first; the nodes with their idle cards, those on their way, and those that could
be got. Out: for each node how many more cards to get. Requests are packed like the scheduler would, roughly: what is
idle or on its way first, then new cards, on the node that has most of ours, then fewest left, then by name. A request
that a card on its way will take asks for no second one; those of one affinity group share a card while it has room; a
gang counts whole or not at all.

Requests of a few kinds cost as much as a few: where one of a kind found no room, the next of it is not tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from bus.ledger.rules import over_quota
from bus.ledger.state import CardState, LedgerState, RequestState
from contracts.inventory import NodeFacts
from contracts.messages import encode
from contracts.requests import GpuAsk, Locality, PodRequest
from contracts.units import WHOLE_CARD
from reconciler.placeholders.fits import kind_fits, memory_on, welcome

LOOKED_AT = 2_000
"""Requests, oldest first, that one look goes through."""


class Bin(msgspec.Struct, kw_only=True):
    """A card that may take requests: idle, on its way, or to be got."""

    card: CardState
    ours: bool
    """Idle or on its way; else it has to be got first."""
    free_milli: int
    free_mib: int
    guests: list[Locality] = []


class Room(msgspec.Struct, kw_only=True):
    """A node; changed while requests are packed."""

    name: str
    facts: NodeFacts
    cpu_milli: int
    memory_mib: int
    pods: int
    left: int
    """Cards that could still be got."""
    bins: list[Bin]
    wanted: int = 0

    def copied(self) -> Room:
        """For a trial."""
        bins = [msgspec.structs.replace(each, guests=list(each.guests)) for each in self.bins]
        return msgspec.structs.replace(self, bins=bins)


def a_bin(card: CardState, *, ours: bool) -> Bin:
    """With nothing in it."""
    return Bin(card=card, ours=ours, free_milli=WHOLE_CARD, free_mib=card.capacity_mib)


def askers(state: LedgerState, waited: Iterable[RequestState]) -> list[RequestState]:
    """Of those that have waited, the ones that a card would help: a quota or a promised place is another matter."""
    return [each for each in waited if each.nomination is None and each.request.gpu.cards and not _over(state, each)]


def _over(state: LedgerState, request: RequestState) -> bool:
    gpu = request.request.gpu
    asked = (gpu.cards * gpu.share_milli, gpu.cards * (gpu.memory_mib or 0))
    return over_quota(state, request.accepted.namespace, *asked) is not None


def demand(asking: Sequence[RequestState], rooms: Sequence[Room]) -> dict[str, int]:
    """How many more cards of each node; nodes that need none are left out."""
    order = sorted(rooms, key=lambda room: (-sum(each.ours for each in room.bins), room.left, room.name))
    begin: dict[bytes, int] = {}
    for unit in _units(asking[:LOOKED_AT]):
        kind = _kind(unit)
        begin[kind] = _packed(unit, order, begin.get(kind, 0))
    return {room.name: room.wanted for room in rooms if room.wanted}


def _units(asking: Sequence[RequestState]) -> list[list[RequestState]]:
    """Single ones, and gangs with all members that wait, in the order of the first."""
    numbered = [(_gang(each) or f"{number}", number, each) for number, each in enumerate(asking)]
    first: dict[str, int] = {}
    for name, number, _ in numbered:
        first.setdefault(name, number)
    ordered = sorted(numbered, key=lambda item: (first[item[0]], item[1]))
    return [[each for *_, each in group] for _, group in groupby(ordered, key=lambda item: item[0])]


def _gang(request: RequestState) -> str:
    gang = request.request.gang
    return f"{request.accepted.namespace}/{gang.name}" if gang is not None else ""


def _kind(unit: Sequence[RequestState]) -> bytes:
    """Everything that is looked at here, and nothing that tells two alike apart."""
    return b"\n".join(encode(_asks(each.request)) for each in unit)


class _Asks(msgspec.Struct, frozen=True):
    gpu: GpuAsk
    cpu_milli: int
    memory_mib: int
    rest: tuple[object, ...]


def _asks(request: PodRequest) -> _Asks:
    where = (request.node_selector, request.tolerations, request.node_affinity.required, request.locality)
    gang = request.gang.within if request.gang else ""
    return _Asks(request.gpu, request.pod.cpu_milli, request.pod.memory_mib, (*where, gang))


# --- packing ---------------------------------------------------------------------------------------------------------


def _packed(unit: Sequence[RequestState], rooms: Sequence[Room], begin: int) -> int:
    """A single one goes where it fits first; a gang, or as much of it as it needs, likewise or all over the rooms.

    Rooms only fill up: the answer is the first one that may still take another of its kind; all of them are behind it
    when nothing did.
    """
    gang = unit[0].request.gang
    if gang is not None and gang.within not in ("node", "nvlink"):
        return begin if begin < len(rooms) and _together(unit, rooms, min(gang.needed, gang.size)) else len(rooms)
    for at in range(begin, len(rooms)):
        if gang is None and _enter(unit[0].request, rooms[at]):
            return at
        if gang is not None and _together(unit, [rooms[at]], min(gang.needed, gang.size)):
            return at
    return len(rooms)


def _together(unit: Sequence[RequestState], rooms: Sequence[Room], needed: int) -> bool:
    """Members that are placed already count towards what it needs: those that wait are enough when all of them fit."""
    trial = [room.copied() for room in rooms]
    entered = sum(any(_enter(each.request, room) for room in trial) for each in unit)
    if entered < min(needed, len(unit)):
        return False
    for room, tried in zip(rooms, trial, strict=True):
        room.cpu_milli, room.memory_mib, room.pods = tried.cpu_milli, tried.memory_mib, tried.pods
        room.left, room.bins, room.wanted = tried.left, tried.bins, tried.wanted
    return True


def _enter(request: PodRequest, room: Room) -> bool:
    """One request into one node, if it fits."""
    pod, gpu = request.pod, request.gpu
    if room.pods < 1 or pod.cpu_milli > max(0, room.cpu_milli) or pod.memory_mib > max(0, room.memory_mib):
        return False
    if not welcome(request, room.facts):
        return False
    chosen = _bins(request, room)
    if len(chosen) < gpu.cards:
        return False
    for each in chosen:
        if not each.ours:
            each.ours, room.left, room.wanted = True, room.left - 1, room.wanted + 1
        each.free_milli -= gpu.share_milli
        each.free_mib -= memory_on(each.card.capacity_mib, gpu)
        each.guests.append(request.locality)
    room.cpu_milli, room.memory_mib, room.pods = (
        room.cpu_milli - pod.cpu_milli,
        room.memory_mib - pod.memory_mib,
        room.pods - 1,
    )
    return True


def _bins(request: PodRequest, room: Room) -> list[Bin]:
    """The first that take it: those of its affinity group, then others that are ours, then new ones."""
    wanted = request.locality.affinity
    able = [each for each in room.bins if _takes(request, each)]
    ours = sorted(
        (each for each in able if each.ours),
        key=lambda each: wanted is None or all(guest.affinity != wanted for guest in each.guests),
    )
    return [*ours, *[each for each in able if not each.ours][: room.left]][: request.gpu.cards]


def _takes(request: PodRequest, each: Bin) -> bool:
    gpu, tags = request.gpu, request.locality
    if gpu.share_milli > each.free_milli or memory_on(each.card.capacity_mib, gpu) > each.free_mib:
        return False
    return kind_fits(gpu, each.card) and (not each.guests or _open_to(tags, each.guests))


def _open_to(tags: Locality, guests: Sequence[Locality]) -> bool:
    """As on a card with these residents."""
    if tags.affinity is not None and all(guest.affinity != tags.affinity for guest in guests):
        return False
    if tags.anti_affinity is not None and any(guest.anti_affinity == tags.anti_affinity for guest in guests):
        return False
    return all(guest.exclusion == tags.exclusion for guest in guests)
