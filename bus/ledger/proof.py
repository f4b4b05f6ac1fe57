"""Proof from the log alone: every commit in order, chain unbroken, nothing sold twice, every request accounted for. Pure.

In: the stored messages of one ledger, from its first commit. Out: what was found, in one struct and in one line.
The fold checks each record; beside it a second set of books is kept, made of the records only and grown without the
fold's sums, and after each commit the two must agree. The walk ends at the first thing that does not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from bus.ledger.fold import apply
from bus.ledger.rules import LedgerError
from bus.ledger.snapshot import digest
from bus.ledger.state import LedgerState
from bus.protocol import Received
from contracts.decisions import (
    Accepted,
    Adopted,
    CardSlice,
    Commit,
    EpochStarted,
    InventorySet,
    Placement,
    Record,
    Released,
    Reserved,
    Resized,
    Withdrawn,
)
from contracts.messages import Value
from contracts.units import WHOLE_CARD, CardUuid, RequestUid


class CardPeak(Value, frozen=True, kw_only=True):
    """The most that was ever sold of one card, and what it had to sell when last listed."""

    card: CardUuid
    share_milli: int
    memory_mib: int
    capacity_mib: int


class Proof(Value, frozen=True, kw_only=True):
    """What a walk over the log found. `broken` is empty, or tells the first thing that does not hold, with its sequence."""

    broken: str = ""
    commits: int = 0
    records: int = 0
    first_sequence: int = 0
    last_sequence: int = 0
    epochs: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    terms: tuple[int, ...] = ()
    accepted: int = 0
    decided: int = 0
    adopted: int = 0
    withdrawn: int = 0
    released: int = 0
    pending: int = 0
    placed: int = 0
    peaks: tuple[CardPeak, ...] = ()
    digest: str = ""
    """Of the state at the end: the same on every machine."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found broken."""
        return not self.broken

    def __str__(self) -> str:
        """One line."""
        if self.broken:
            return f"BROKEN after {self.commits} sound commits (sequence {self.last_sequence}): {self.broken}"
        share = max((peak.share_milli for peak in self.peaks), default=0)
        return (
            f"holds: {self.commits} commits ({self.first_sequence}..{self.last_sequence}) with {self.records} records by "
            f"{len(self.authors)} authors in {len(self.terms)} terms; {self.accepted} accepted, {self.decided} decided, "
            f"{self.released} released, {self.withdrawn} withdrawn, {self.pending} pending, {self.placed} placed; "
            f"the fullest of {len(self.peaks)} cards had {share} of {WHOLE_CARD} thousandths sold; state {self.digest[:12]}"
        )


def conservation(state: LedgerState) -> bool:
    """Whether every accepted request is in exactly one place: accepted = pending + placed + withdrawn + ended."""
    totals = state.totals
    return totals.accepted == len(state.pending) + state.placed_count() + totals.withdrawn + totals.ended


def prove(messages: Iterable[Received], *, pool: str = "default") -> Proof:
    """Walk the whole log of `pool`. Never raises for what the log holds: that is the answer."""
    prover = Prover(pool)
    for message in messages:
        if not prover.take(message):
            break
    return prover.proof()


class Prover:
    """The walk, message by message: `take` each in order, then ask for the `proof`."""

    def __init__(self, pool: str = "default") -> None:
        self.state = LedgerState(pool=pool)
        self.broken = ""
        self._books = _Books()
        self._counts: Counter[type[Record]] = Counter()
        self._sequences: list[int] = []
        self._epochs: dict[str, None] = {}
        self._authors: dict[str, None] = {}
        self._terms: dict[int, None] = {}

    def take(self, message: Received) -> bool:
        """The next message of the log; False when something does not hold, and from then on."""
        if self.broken:
            return False
        try:
            commit = msgspec.json.decode(message.data, type=Commit)
            apply(self.state, commit, message.sequence)
            self._books.take(commit, message.sequence)
            self._books.compare(self.state, message.sequence)
        except msgspec.MsgspecError as error:
            self.broken = f"the message at {message.sequence} is no commit: {error}"
        except LedgerError as error:
            self.broken = str(error)
        else:
            self._note(commit, message.sequence)
        return not self.broken

    def _note(self, commit: Commit, sequence: int) -> None:
        self._sequences = [*self._sequences[:1], sequence]
        self._counts.update(map(type, commit.records))
        self._epochs[commit.epoch] = self._authors[commit.author] = self._terms[commit.term] = None

    def proof(self) -> Proof:
        """What was found so far."""
        counts, state = self._counts, self.state
        return Proof(
            broken=self.broken,
            commits=state.number if self._sequences else 0,
            records=counts.total(),
            first_sequence=self._sequences[0] if self._sequences else 0,
            last_sequence=self._sequences[-1] if self._sequences else 0,
            epochs=tuple(self._epochs),
            authors=tuple(self._authors),
            terms=tuple(self._terms),
            accepted=counts[Accepted],
            decided=counts[Reserved],
            adopted=counts[Adopted],
            withdrawn=counts[Withdrawn],
            released=counts[Released],
            pending=0 if self.broken else len(state.pending),
            placed=0 if self.broken else state.placed_count(),
            peaks=self._books.peaks(),
            digest="" if self.broken else digest(state),
        )


class _Books:
    """What is sold of each card by its UUID, wherever it is: kept from records alone."""

    def __init__(self) -> None:
        self.capacity: dict[CardUuid, int] = {}
        self.sold: dict[CardUuid, tuple[int, int]] = {}
        self.peak: dict[CardUuid, tuple[int, int]] = {}
        self.held: dict[RequestUid, Placement] = {}
        self.nodes: set[str] = set()

    def take(self, commit: Commit, at: int) -> None:
        self.nodes.clear()
        for record in commit.records:
            match record:
                case EpochStarted():
                    self.sold, self.held = {}, {}
                case InventorySet():
                    self.capacity.update((card.uuid, card.sellable_mib) for card in record.inventory.cards)
                case Reserved():
                    self._hold(record.uid, record.placement)
                    self._judge(record.placement, at)
                case Adopted():
                    self._hold(record.uid, record.placement)
                case Released():
                    self._add(self.held.pop(record.uid), -1)
                case Resized():
                    self._resize(record)

    def _hold(self, uid: RequestUid, placement: Placement) -> None:
        self.held[uid] = placement
        self._add(placement, 1)

    def _add(self, placement: Placement, sign: int) -> None:
        self.nodes.add(placement.node)
        for piece in placement.slices:
            milli, mib = self.sold.get(piece.card, (0, 0))
            sold = (milli + sign * piece.share_milli, mib + sign * piece.memory_mib)
            self.sold[piece.card] = sold
            most = self.peak.get(piece.card, (0, 0))
            self.peak[piece.card] = (max(most[0], sold[0]), max(most[1], sold[1]))

    def _resize(self, record: Resized) -> None:
        old = self.held[record.uid]
        slices = tuple(
            CardSlice(card=p.card, share_milli=record.share_milli, memory_mib=record.memory_mib) for p in old.slices
        )
        self._add(old, -1)
        self._hold(record.uid, msgspec.structs.replace(old, slices=slices))

    def _judge(self, placement: Placement, at: int) -> None:
        for piece in placement.slices:
            milli, mib = self.sold[piece.card]
            if milli > WHOLE_CARD or mib > self.capacity.get(piece.card, 0):
                room = f"{WHOLE_CARD} thousandths and {self.capacity.get(piece.card, 0)} MiB"
                raise LedgerError(f"card {piece.card} has {milli} thousandths and {mib} MiB sold at {at}, of {room}")

    def compare(self, state: LedgerState, at: int) -> None:
        """The fold's sums and ours, on what this commit touched; and no request in two places or none."""
        if not conservation(state):
            raise LedgerError(f"accepted requests do not add up at {at}: {state.totals}")
        for name in self.nodes & state.nodes.keys():
            for uuid, card in state.nodes[name].cards.items():
                homes = sum(1 for n in state.nodes.values() if uuid in n.cards) if card.rival else 1
                ours = self.sold.get(card.card.uuid, (0, 0))
                if homes == 1 and ours != (card.used_milli, card.used_mib):
                    raise LedgerError(f"card {uuid}: {ours} sold by the records, {card.used_milli} by the fold at {at}")

    def peaks(self) -> tuple[CardPeak, ...]:
        return tuple(
            CardPeak(card=card, share_milli=milli, memory_mib=mib, capacity_mib=self.capacity.get(card, 0))
            for card, (milli, mib) in sorted(self.peak.items())
        )
