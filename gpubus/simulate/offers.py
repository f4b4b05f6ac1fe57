"""Who arrives when, for how long, and which nodes fail, on a virtual clock. Pure: streams drawn by a seed.

In: pods with lifetimes, a load or recorded times, a seed. Out: `Offer`s and `Fault`s in order of time, whole
milliseconds. The streams do not depend on the policy, so that policies are compared on the same arrivals and faults.

Offered load = card share that would be in service on average if nothing were refused, as a part of all cards:

    load x capacity = rate x E[demand x life]          (Little's law), so   rate = load x capacity / E[demand x life]

Pods are drawn from the trace, all with the same chance; lifetimes are cut to 60 s .. 4 h, so that after four hours the
load stands still. A pod whose trace tells no lifetime cannot be drawn: it takes that of another trace, by its name, or
else by its number of cards.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from contracts.messages import Value
from gpubus.errors import UsageError
from gpubus.simulate.openb import PodRow

SHORTEST_S = 60
LONGEST_S = 4 * 3600
MS = 1000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Offer(msgspec.Struct, frozen=True):
    """One pod that arrives."""

    at_ms: int
    life_ms: int
    row: PodRow


class Faults(Value, frozen=True, kw_only=True):
    """How nodes go away; rates a node and day."""

    fail_per_day: float = 0.0
    """The node is lost, and its pods with it."""
    drain_per_day: float = 0.0
    """The node takes nothing new; its pods run on."""
    away_s: int = 1800
    """After so long it is back, in both cases."""


class Fault(msgspec.Struct, frozen=True):
    """One node goes away."""

    at_ms: int
    node: int
    """Which one: an index into the nodes."""
    kills: bool


def lives(rows: Sequence[PodRow], source: str, others: Sequence[PodRow] = ()) -> list[PodRow]:
    """The pods with lifetimes: their own, or that of their name among `others`, or that of a pod with as many cards.

    The last one is drawn by a digest of the name, and is the same whatever else the lists hold in what order.

    Raises:
        UsageError: one has none, and none of the others has as many cards.
    """
    lent = _Lent(others)
    known = [
        row if row.life_s is not None else msgspec.structs.replace(row, life_s=lent.to(row.name, row.cards))
        for row in rows
    ]
    for row in known:
        if row.life_s is None:
            raise UsageError(
                f"{source} line {row.line}: {row.name} has no deletion_time, so no lifetime; --lifetimes takes those "
                "of another trace, by name or by number of cards"
            )
    return known


class _Lent:
    """Lifetimes of another list."""

    def __init__(self, rows: Iterable[PodRow]) -> None:
        told = sorted((row.name, row.cards, row.life_s) for row in rows if row.life_s is not None)
        self._by_name = {name: life_s for name, _, life_s in told}
        self._by_cards: dict[int, list[float]] = {}
        for _, cards, life_s in told:
            self._by_cards.setdefault(cards, []).append(life_s)

    def to(self, name: str, cards: int) -> float | None:
        """Of this pod; None: there is none like it."""
        if name in self._by_name:
            return self._by_name[name]
        alike = self._by_cards.get(cards, [])
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
        return alike[number % len(alike)] if alike else None


def life_ms(row: PodRow) -> int:
    """Its lifetime, cut to what the protocol allows."""
    return round(MS * min(max(row.life_s or 0.0, SHORTEST_S), LONGEST_S))


def drawn(rows: Sequence[PodRow], *, capacity_milli: int, load: float, until_ms: int, seed: int) -> Iterator[Offer]:
    """Poisson arrivals of pods drawn from the trace, at an offered load."""
    work = sum(row.demand_milli * life_ms(row) for row in rows)
    if not work:
        raise UsageError("no pod asks for a card: there is no load to offer")
    mean_gap_ms = work / len(rows) / (load * capacity_milli)
    drawing = random.Random(seed)
    at = drawing.expovariate(1.0) * mean_gap_ms
    while at < until_ms:
        row = rows[drawing.randrange(len(rows))]
        yield Offer(round(at), life_ms(row), row)
        at += drawing.expovariate(1.0) * mean_gap_ms


def recorded(rows: Sequence[PodRow]) -> Iterator[Offer]:
    """Arrivals as the trace has them, from its first; lifetimes uncut."""
    first = min((row.created_s for row in rows), default=0.0)
    for row in sorted(rows, key=lambda row: row.created_s):
        yield Offer(round(MS * (row.created_s - first)), round(MS * (row.life_s or 0.0)), row)


def faults(given: Faults, *, nodes: int, until_ms: int, seed: int) -> Iterator[Fault]:
    """Poisson faults over all nodes, of both kinds, in order of time."""
    per_day = (given.fail_per_day + given.drain_per_day) * nodes
    drawing = random.Random(f"{seed} faults")
    at = 0.0
    while per_day > 0:
        at += drawing.expovariate(1.0) * DAY_MS / per_day
        if at >= until_ms:
            return
        kills = drawing.random() * per_day < given.fail_per_day * nodes
        yield Fault(round(at), drawing.randrange(nodes), kills)


def load_of(rows: Sequence[PodRow], *, capacity_milli: int, span_ms: int) -> float:
    """The load that recorded arrivals offer over their span."""
    return sum(row.demand_milli * (row.life_s or 0.0) * MS for row in rows) / max(1, capacity_milli * span_ms)
