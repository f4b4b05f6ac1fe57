"""What is on a node, prepared for the search of victims: who sits where, in the order in which they would be asked.

In: a `NodeState`. Out: a `NodeLoad`, made anew when the node changed. Room is what will be free when everybody who has
been told to go is gone, less what is promised to nominated requests: `soon`, not `idle`.

Whoever has been leaving for longer than its own grace and `LINGER_MS` is no longer believed: it sits on a node that is
dead, perhaps, and its share counts as taken until it is seen to be gone.

The order of being asked: lowest priority, then the latest decision, then the latest acceptance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from bus.ledger.state import CardState, LedgerState, NodeState, RequestState
from contracts.priorities import priority_of
from contracts.requests import Locality
from contracts.units import RequestUid
from scheduler.core.queue.order import acceptance
from scheduler.core.request import NOT_TAGGED

LINGER_MS = 300_000
"""Beyond its grace: the time that a kubelet and an API server may take over a pod's end when all goes slowly."""

Asked = tuple[int, int, tuple[int, int]]
"""Priority, negated ledger sequence of the decision, negated acceptance: smallest is asked first."""


class Seat(msgspec.Struct, frozen=True):
    """One request that stays on a card (or, with no card, on a node)."""

    asked: Asked
    uid: RequestUid
    milli: int
    mib: int
    cpu_milli: int = 0
    memory_mib: int = 0
    tags: Locality = NOT_TAGGED

    @property
    def priority(self) -> int:
        """Of the request."""
        return self.asked[0]


class CardLoad(msgspec.Struct, frozen=True):
    """One card that may take something, and who would have to leave it."""

    uuid: str
    capacity_mib: int
    known: bool
    milli: int
    """Room. Below 0 where more is promised than there is."""
    mib: int
    seats: tuple[Seat, ...]
    """In the order of being asked."""
    group: int | None = None
    """Of NVLink."""


class NodeLoad(msgspec.Struct, frozen=True):
    """One node; `cards` in position order."""

    name: str
    tie: str
    cpu_milli: int
    memory_mib: int
    cards: tuple[CardLoad, ...]
    seats: tuple[Seat, ...]
    """Everybody who stays, by what they take of the node; in the order of being asked."""
    first: Asked | None
    """The first who would be asked; None when nobody stays."""
    single_milli: int
    """The most that one card has when its largest tenant leaves."""
    going: bool
    """Somebody is leaving: what is free changes without anybody being asked."""


def lingers(request: RequestState, now_ms: int) -> bool:
    """It should be gone by now and is not."""
    allowed_ms = request.request.pod.grace_s * 1000 + LINGER_MS
    return request.leaving and request.leaving_ms > 0 and now_ms > request.leaving_ms + allowed_ms


def load_of(state: LedgerState, node: NodeState) -> NodeLoad:
    """The load of a node."""
    residents = [state.requests[uid] for uid in node.residents]
    going = {r.uid for r in residents if r.leaving and not lingers(r, state.clock_ms)}
    asked = {r.uid: _asked(r) for r in residents if not r.leaving}
    cards = tuple(_card(state, node, card, going, asked) for card in node.cards.values() if card.usable)
    seats = tuple(_seats(node, asked))
    return NodeLoad(
        name=node.name,
        tie=node.tie,
        cpu_milli=node.free_cpu_milli + sum(node.residents[u].cpu_milli for u in going) - _promised(state, node, "cpu"),
        memory_mib=node.free_memory_mib
        + sum(node.residents[u].memory_mib for u in going)
        - _promised(state, node, "memory"),
        cards=cards,
        seats=seats,
        first=seats[0].asked if seats else None,
        single_milli=max((c.milli + max((s.milli for s in c.seats), default=0) for c in cards), default=0),
        going=bool(going),
    )


def _asked(request: RequestState) -> Asked:
    commit, index = acceptance(request.uid)
    return (priority_of(request.request), -request.decided_at, (-commit, -index))


def _seats(node: NodeState, asked: dict[RequestUid, Asked]) -> Iterator[Seat]:
    for uid in sorted(asked, key=asked.__getitem__):
        placement = node.residents[uid]
        yield Seat(asked[uid], uid, 0, 0, placement.cpu_milli, placement.memory_mib)


def _card(
    state: LedgerState, node: NodeState, card: CardState, going: set[RequestUid], asked: dict[RequestUid, Asked]
) -> CardLoad:
    milli, mib = card.free_milli, card.free_mib
    seats = []
    for uid, piece in card.residents.items():
        if uid in going:
            milli += piece.share_milli
            mib += piece.memory_mib
        elif uid in asked:
            tags = state.requests[uid].request.locality
            seats.append(Seat(asked[uid], uid, piece.share_milli, piece.memory_mib, tags=tags))
    for wanted_milli, wanted_mib in _promised_of_card(state, node, card.card.uuid) if node.holds else ():
        milli -= wanted_milli
        mib -= wanted_mib
    seats.sort(key=lambda seat: seat.asked)
    known = card.card.memory_total_mib is not None
    return CardLoad(card.card.uuid, card.capacity_mib, known, milli, mib, tuple(seats), card.card.nvlink_group)


def _promised_of_card(state: LedgerState, node: NodeState, uuid: str) -> Iterator[tuple[int, int]]:
    """What others still lack of it."""
    for uid, hold in node.holds.items():
        wanted = state.nominated[uid].nomination
        for piece in wanted.placement.slices if wanted is not None else ():
            if piece.card == uuid:
                milli, mib = hold.cards.get(uuid, (0, 0))
                yield piece.share_milli - milli, piece.memory_mib - mib


def _promised(state: LedgerState, node: NodeState, what: str) -> int:
    total = 0
    for uid, hold in node.holds.items():
        wanted = state.nominated[uid].nomination
        if wanted is not None and what == "cpu":
            total += wanted.placement.cpu_milli - hold.cpu_milli
        elif wanted is not None:
            total += wanted.placement.memory_mib - hold.memory_mib
    return total


class Loads:
    """The loads of all nodes of one state, made when they are asked for and the node changed since."""

    def __init__(self, state: LedgerState) -> None:
        self.state = state
        self._known: dict[str, NodeLoad] = {}
        self._read = len(state.touched)

    def sync(self) -> None:
        """Forget the loads of nodes that changed."""
        try:
            for name in self.state.touched[self._read :]:
                self._known.pop(name, None)
        except IndexError:
            self._known.clear()
        self._read = len(self.state.touched)

    def prepare(self, most: int) -> bool:
        """Make so many of the missing ones at most, before anybody asks; whether more are missing."""
        self.sync()
        missing = [name for name in self.state.nodes if name not in self._known]
        for _ in self.of(missing[:most]):
            pass
        return len(missing) > most

    def of(self, names: Iterable[str]) -> Iterator[NodeLoad]:
        """Loads of these nodes, of those that exist."""
        for name in names:
            load = self._known.get(name)
            if load is None or load.going:
                node = self.state.nodes.get(name)
                if node is None:
                    continue
                load = self._known[name] = load_of(self.state, node)
            yield load
