"""Proof from the log alone: chain unbroken, nothing sold twice, every request accounted for. Pure.

In: the stored messages of one ledger, from its first commit. Out: what was found, in one struct and in one line.
The fold checks each record; beside it a second set of books is kept, and after each commit the two must agree. The
walk ends at the first thing that does not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from bus.ledger.books import Books, CardPeak
from bus.ledger.fold import apply
from bus.ledger.rules import LedgerError
from bus.ledger.snapshot import copy, digest
from bus.ledger.state import LedgerState
from bus.protocol import Received
from contracts.decisions import Accepted, Adopted, Commit, Nominated, Record, Released, Reserved, Withdrawn
from contracts.messages import Value
from contracts.units import WHOLE_CARD


class Proof(Value, frozen=True, kw_only=True):
    """What a walk over the log found. `broken` is empty, or tells the first thing that does not hold."""

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
    nominated: int = 0
    """Places that were kept for somebody until others had left."""
    evicted: int = 0
    """Requests that had to leave for one of them."""
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
        fullest = max((peak.share_milli for peak in self.peaks), default=0)
        return (
            f"holds: {self.commits} commits ({self.first_sequence}..{self.last_sequence}) with {self.records} records "
            f"by {len(self.authors)} authors in {len(self.terms)} terms; {self.accepted} accepted, "
            f"{self.decided} decided, {self.released} released, {self.withdrawn} withdrawn, {self.pending} pending, "
            f"{self.placed} placed; the fullest of {len(self.peaks)} cards had {fullest} of {WHOLE_CARD} thousandths "
            f"sold; state {self.digest[:12]}"
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
    """The walk, message by message: `take` each in order, then ask for the `proof`.

    Args:
        state: where to begin when the first commits have aged out: a checkpoint, taken as proved.
    """

    def __init__(self, pool: str = "default", state: LedgerState | None = None) -> None:
        self.state = copy(state) if state is not None else LedgerState(pool=pool)
        self.broken = ""
        self._books = Books()
        self._books.open(self.state)
        self._counts: Counter[type[Record]] = Counter()
        self._commits = self._first = self._last = 0
        self._epochs: dict[str, None] = {}
        self._authors: dict[str, None] = {}
        self._terms: dict[int, None] = {}
        self._evicted = 0

    def take(self, message: Received) -> bool:
        """The next message of the log; False when something does not hold, and from then on."""
        if not self.broken and message.malformed:
            self.broken = f"the message at {message.sequence} is no commit: {message.malformed}"
        if self.broken:
            return False
        try:
            commit = msgspec.json.decode(message.data, type=Commit)
            apply(self.state, commit, message.sequence)
            self._books.take(commit.records, message.sequence)
            self._books.compare(self.state, message.sequence)
            self._conserve(message.sequence)
        except msgspec.MsgspecError as error:
            self.broken = f"the message at {message.sequence} is no commit: {error}"
        except LedgerError as error:
            self.broken = str(error)
        else:
            self._note(commit, message.sequence)
        return not self.broken

    def _conserve(self, at: int) -> None:
        if not conservation(self.state):
            raise LedgerError(f"accepted requests do not add up at {at}: {self.state.totals}")

    def _note(self, commit: Commit, sequence: int) -> None:
        self._commits += 1
        self._first, self._last = self._first or sequence, sequence
        self._counts.update(map(type, commit.records))
        self._evicted += sum(len(record.victims) for record in commit.records if isinstance(record, Nominated))
        self._epochs[commit.epoch] = self._authors[commit.author] = self._terms[commit.term] = None

    def proof(self) -> Proof:
        """What was found so far."""
        counts, state = self._counts, self.state
        return Proof(
            broken=self.broken,
            commits=self._commits,
            records=counts.total(),
            first_sequence=self._first,
            last_sequence=self._last,
            epochs=tuple(self._epochs),
            authors=tuple(self._authors),
            terms=tuple(self._terms),
            accepted=counts[Accepted],
            decided=counts[Reserved],
            adopted=counts[Adopted],
            withdrawn=counts[Withdrawn],
            released=counts[Released],
            nominated=counts[Nominated],
            evicted=self._evicted,
            pending=0 if self.broken else len(state.pending),
            placed=0 if self.broken else state.placed_count(),
            peaks=self._books.peaks(),
            digest="" if self.broken else digest(state),
        )
