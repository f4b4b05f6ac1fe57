"""A second set of books: what is sold of each card, kept from the records alone, to check the fold against. Pure.

In: records that the fold has taken. Out: an error when they sell too much, or when the fold's sums are others; at the
end the most that was ever sold of each card. Nothing of the fold is used: the same mistake would have to be made twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from bus.ledger.rules import LedgerError
from bus.ledger.state import LedgerState
from contracts.decisions import (
    Adopted,
    CardSlice,
    EpochStarted,
    FactsSet,
    InventorySet,
    Placement,
    Record,
    Released,
    Reserved,
    Resized,
)
from contracts.inventory import NodeFacts
from contracts.messages import Value
from contracts.units import WHOLE_CARD, CardUuid, NodeName, RequestUid

Seat = tuple[NodeName, CardUuid]
Amount = tuple[int, int]
"""Thousandths and MiB."""


class CardPeak(Value, frozen=True, kw_only=True):
    """The most that was ever sold of one card, and the memory it had to sell when last listed."""

    node: NodeName
    card: CardUuid
    share_milli: int
    memory_mib: int
    capacity_mib: int


class Books:
    """What is sold of each card, per node that it is in."""

    def __init__(self) -> None:
        self.capacity: dict[Seat, int] = {}
        self.sold: dict[Seat, Amount] = {}
        self.peak: dict[Seat, Amount] = {}
        self.held: dict[RequestUid, Placement] = {}
        self.touched: set[NodeName] = set()
        self.shared: dict[NodeName, frozenset[CardUuid]] = {}
        """Nodes whose cards belong to others too: those that are ours."""

    def open(self, state: LedgerState) -> None:
        """Begin with what a state says; an empty one says nothing."""
        for card in state.cards():
            self.capacity[NodeName(card.node), card.card.uuid] = card.capacity_mib
        for node in state.nodes.values():
            if node.facts is not None:
                self._share(node.facts)
        for uid, request in state.requests.items():
            if request.placement is not None:
                self._hold(uid, request.placement)

    def take(self, records: Iterable[Record], at: int) -> None:
        """The records of one commit.

        Raises:
            LedgerError: a decision sold more than there is.
        """
        self.touched.clear()
        for record in records:
            self._take(record, at)

    def _take(self, record: Record, at: int) -> None:
        match record:
            case EpochStarted():
                self.sold, self.held, self.shared = {}, {}, {}
            case FactsSet(facts=facts):
                self._share(facts)
            case InventorySet(inventory=found):
                self.capacity.update(((found.node, card.uuid), card.sellable_mib) for card in found.cards)
            case Reserved():
                self._hold(record.uid, record.placement)
                self._judge(record.placement, at)
                self._owned(record.placement, at)
            case Adopted():
                self._hold(record.uid, record.placement)
            case Resized():
                self._resize(record, at)
            case Released():
                self._add(self.held.pop(record.uid), -1)

    def _share(self, facts: NodeFacts) -> None:
        self.shared.pop(facts.node, None)
        if facts.mode == "coexist":
            self.shared[facts.node] = frozenset(facts.acquired)

    def _owned(self, placement: Placement, at: int) -> None:
        """A card that others may be using is not sold. One that was sold may lose its placeholder, and stays sold."""
        ours = self.shared.get(placement.node)
        for piece in placement.slices if ours is not None else ():
            if ours is not None and piece.card not in ours:
                raise LedgerError(f"card {piece.card} of {placement.node} is sold at {at}, and no placeholder holds it")

    def _hold(self, uid: RequestUid, placement: Placement) -> None:
        self.held[uid] = placement
        self._add(placement, 1)

    def _add(self, placement: Placement, sign: int) -> None:
        self.touched.add(placement.node)
        for piece in placement.slices:
            seat = (placement.node, piece.card)
            milli, mib = self.sold.get(seat, (0, 0))
            self.sold[seat] = milli, mib = milli + sign * piece.share_milli, mib + sign * piece.memory_mib
            most = self.peak.get(seat, (0, 0))
            self.peak[seat] = (max(most[0], milli), max(most[1], mib))

    def _resize(self, record: Resized, at: int) -> None:
        old = self.held[record.uid]
        new = replace(
            old,
            slices=tuple(
                CardSlice(card=p.card, share_milli=record.share_milli, memory_mib=record.memory_mib) for p in old.slices
            ),
        )
        self._add(old, -1)
        self._hold(record.uid, new)
        share = any(record.share_milli > piece.share_milli for piece in old.slices)
        memory = any(record.memory_mib > piece.memory_mib for piece in old.slices)
        self._judge(new, at, share=share, memory=memory)

    def _judge(self, placement: Placement, at: int, *, share: bool = True, memory: bool = True) -> None:
        """Only what was asked for: a card that lost memory may be over its size, and still sell thousandths."""
        for piece in placement.slices:
            milli, mib = self.sold[placement.node, piece.card]
            room = self.capacity.get((placement.node, piece.card), 0)
            if (share and milli > WHOLE_CARD) or (memory and mib > room):
                raise LedgerError(
                    f"card {piece.card} has {milli} of {WHOLE_CARD} thousandths and {mib} of {room} MiB sold at {at}"
                )

    def compare(self, state: LedgerState, at: int) -> None:
        """The fold's sums of what the last commit placed or released are these.

        Raises:
            LedgerError: they are not, with both.
        """
        for name in self.touched & state.nodes.keys():
            node = state.nodes[name]
            for uuid, card in node.cards.items():
                ours = self.sold.get((name, card.card.uuid), (0, 0))
                held = [hold.cards[uuid] for hold in node.holds.values() if uuid in hold.cards]
                theirs = (card.used_milli - sum(m for m, _ in held), card.used_mib - sum(m for _, m in held))
                if ours != theirs:
                    raise LedgerError(f"card {uuid} of {name}: records sold {ours}, the fold has {theirs} at {at}")

    def peaks(self) -> tuple[CardPeak, ...]:
        """The most of each card, by node and card."""
        return tuple(
            CardPeak(
                node=node, card=card, share_milli=milli, memory_mib=mib, capacity_mib=self.capacity.get((node, card), 0)
            )
            for (node, card), (milli, mib) in sorted(self.peak.items())
        )
