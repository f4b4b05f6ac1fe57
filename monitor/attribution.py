"""Whose GPU use is whose: the processes of a card, each to its request, to nobody, or to nobody that we know. Pure.

In: the cards over a period, as the driver lists them; who each process is (`Process`, from /proc); what the reconciler
says is sold on this node and which pods those are (`Told`). Out: the same cards, with each process named, each
request's part, and what belongs to nobody.

    its pod is one of ours                          request
    of ours, and this card was not sold to it       nobody, and its request is named: it uses a card of others
    no pod, or a pod that is not ours               nobody; its memory is not ours to sell
    it cannot be looked at, nothing was told yet    unknown
    its pod is not known, and one of ours neither   unknown: it may be that one

The last rule keeps a pod that has just started, and a reconciler that does not tell of pods, from looking like a
stranger. A process that outlives its pod (a forced deletion) is nobody's, and that is the truth: its memory is taken.

A request's part of the busy time is the sum of its processes'; where all parts together are more than the card (the
driver samples processes and card by different means), each is cut in proportion, so that parts never exceed the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from contracts.outcomes import NodeShares, ShareAssignment
from contracts.units import CardUuid, RequestUid
from contracts.usage import Belongs, CardUsage, ProcessUsage, SliceUsage
from monitor.procs.reading import Process

_FULL_PERCENT = 100


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is placed on this node, as people know it."""

    uid: RequestUid
    namespace: str = ""
    pod: str = ""
    container: str = ""
    """Id of the container that the request describes; empty = not known yet."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is sold on this node, by pod and by card."""

    pods: Mapping[str, Owner] = {}
    """By Kubernetes' uid of the pod."""
    slices: Mapping[str, tuple[ShareAssignment, ...]] = {}
    """By UUID of the card."""
    all_known: bool = True
    """Whether the pod of every request is known."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Who the listed processes are: those that could be looked at, and those that have ended since they were listed."""

    processes: Mapping[int, Process] = {}
    ended: frozenset[int] = frozenset()


def told(shares: NodeShares) -> Told:
    """As the reconciler has published it."""
    names = {a.uid: Owner(uid=a.uid, namespace=a.namespace, pod=a.pod) for a in shares.assignments}
    pods = {
        p.pod_uid: replace(names.get(p.uid, Owner(uid=p.uid)), container=p.container_id)
        for p in shares.pods
        if p.pod_uid
    }
    slices: dict[str, list[ShareAssignment]] = {}
    for assignment in shares.assignments:
        slices.setdefault(assignment.card, []).append(assignment)
    known = {owner.uid for owner in pods.values()}
    return Told(
        pods=pods,
        slices={card: tuple(sorted(held, key=lambda a: a.uid)) for card, held in slices.items()},
        all_known=known >= names.keys() and all(p.pod_uid for p in shares.pods),
    )


def listed_pids(cards: Iterable[CardUsage]) -> tuple[int, ...]:
    """Every process on any card, once."""
    return tuple(sorted({process.pid for card in cards for process in card.processes or ()}))


def attributed(cards: Iterable[CardUsage], seen: Seen, of: Told | None) -> tuple[CardUsage, ...]:
    """The cards, with each process named and each request's part; `of` is None while nothing was told."""
    return tuple(_card(card, seen, of) for card in cards)


def owner_of(process: Process | None, of: Told | None, card: CardUuid) -> tuple[Belongs, RequestUid]:
    """Whose a process on a card is, by the table above."""
    if process is None or of is None:
        return "unknown", RequestUid("")
    owner = of.pods.get(process.home.pod_uid) if process.home.pod_uid else None
    if owner is not None:
        sold = any(assignment.uid == owner.uid for assignment in of.slices.get(card, ()))
        return "request" if sold else "nobody", owner.uid
    return "unknown" if process.home.pod_uid and not of.all_known else "nobody", RequestUid("")


def apportioned(parts: Sequence[int], whole: int) -> list[int]:
    """The parts as they are if they fit into the whole, else cut in proportion so that they add up to it.

    Rounded by largest remainder, the earlier one first: 30 and 30 of 41 are 21 and 20.
    """
    total = sum(parts)
    if total <= whole:
        return list(parts)
    cut = [part * whole // total for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda at: (-(parts[at] * whole % total), at))
    for at in by_remainder[: whole - sum(cut)]:
        cut[at] += 1
    return cut


# --- one card ---------------------------------------------------------------------------------------------------------


def _card(card: CardUsage, seen: Seen, of: Told | None) -> CardUsage:
    named = None if card.processes is None else tuple(_named(card, seen, of))
    if of is None:
        return replace(card, processes=named)
    held = of.slices.get(card.uuid, ())
    return replace(card, processes=named, slices=_slices(card, named, held), unmanaged_mib=unmanaged_mib(card, named))


def _named(card: CardUsage, seen: Seen, of: Told | None) -> Iterable[ProcessUsage]:
    for process in card.processes or ():
        if process.pid in seen.ended:
            continue
        who = seen.processes.get(process.pid)
        belongs, uid = owner_of(who, of, card.uuid)
        yield replace(
            process,
            belongs=belongs,
            request=uid,
            command=who.command if who else "",
            started_ticks=who.started_ticks if who else None,
        )


def _slices(
    card: CardUsage, named: Sequence[ProcessUsage] | None, held: Sequence[ShareAssignment]
) -> tuple[SliceUsage, ...]:
    """Of each request that holds a piece; where one process is unknown, so is every part: it may be of any."""
    mine = [[p for p in named or () if p.request == a.uid] for a in held]
    known = named is not None and all(p.belongs != "unknown" for p in named)
    compute = _compute(card, named or (), mine) if known else [None] * len(held)
    return tuple(
        SliceUsage(
            uid=a.uid,
            namespace=a.namespace,
            pod=a.pod,
            share_milli=a.share_milli,
            limit_mib=a.memory_mib,
            compute_percent=busy,
            memory_used_mib=_sum(p.memory_mib for p in processes) if known else None,
            processes=len(processes) if known else None,
        )
        for a, processes, busy in zip(held, mine, compute, strict=True)
    )


def _compute(
    card: CardUsage, named: Sequence[ProcessUsage], mine: Sequence[Sequence[ProcessUsage]]
) -> list[int | None]:
    """The parts of the requests, beside that of nobody; a part with an unknown process is unknown and takes nothing."""
    nobodys = _sum(p.compute_percent for p in named if p.belongs == "nobody")
    parts = [_sum(p.compute_percent for p in processes) for processes in mine]
    whole = _FULL_PERCENT if card.compute_percent is None else card.compute_percent
    cut = apportioned([part or 0 for part in (*parts, nobodys)], whole)
    return [None if part is None else share for part, share in zip(parts, cut[:-1], strict=True)]


def unmanaged_mib(card: CardUsage, named: Sequence[ProcessUsage] | None) -> int | None:
    """Memory of those that are nobody's.

    Where the driver tells of none of them how much, it is what is used beyond all others: too much rather than too
    little, because what is sold and not there ends in somebody's out-of-memory.
    """
    if named is None or any(p.belongs == "unknown" for p in named):
        return None
    nobodys = _sum(p.memory_mib for p in named if p.belongs == "nobody")
    if nobodys is not None:
        return nobodys
    others = _sum(p.memory_mib for p in named if p.belongs == "request")
    return None if others is None or card.memory_used_mib is None else max(0, card.memory_used_mib - others)


def _sum(values: Iterable[int | None]) -> int | None:
    """0 of none; None when one is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
