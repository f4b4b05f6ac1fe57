"""Decide again: every decision of a log, from the log prefix alone, on any machine. Pure.

In: the commits of a ledger, from its first. Out: how many decisions were computed again, and those that came out
otherwise. A decision is equal when its record is: the same node, slices, scores and runner-up, byte for byte.

What is decided again is each `Reserved`: against the state that the records before it fold to, with the policy that its
rationale names. Members of a gang are decided together, from the state before the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bus.ledger.fold import apply_record, check_chain, seal
from bus.ledger.snapshot import copy
from bus.ledger.state import LedgerState
from contracts.decisions import Commit, Record, Reserved
from contracts.messages import Value, encode
from contracts.units import RequestUid
from scheduler.core.placer import Placer


class Difference(Value, frozen=True, kw_only=True):
    """A decision that comes out otherwise: as it stands in the log, and as it is computed now (None: not at all)."""

    sequence: int
    logged: Reserved
    again: Reserved | None


class Replayed(Value, frozen=True, kw_only=True):
    """What a replay found."""

    decisions: int
    differences: tuple[Difference, ...]


class Replay:
    """A log being decided again, commit after commit.

    Args:
        begin: the state to go on from when the first commits have aged out: a checkpoint.

    Raises (from `take`):
        LedgerError: the log does not add up.
    """

    def __init__(self, pool: str = "default", begin: LedgerState | None = None) -> None:
        self.state = copy(begin) if begin is not None else LedgerState(pool=pool)
        self.decisions = 0
        self.differences: list[Difference] = []
        self._placers: dict[str, Placer] = {}

    def take(self, commit: Commit, sequence: int) -> None:
        """The next commit."""
        check_chain(self.state, commit, sequence)
        for group in _groups(self.state, commit.records):
            decided = [record for record in group if isinstance(record, Reserved)]
            self._decide(decided, sequence)
            for record in group:
                apply_record(self.state, record, sequence)
        seal(self.state, commit, sequence)

    def result(self) -> Replayed:
        """So far."""
        return Replayed(decisions=self.decisions, differences=tuple(self.differences))

    def _decide(self, logged: Sequence[Reserved], sequence: int) -> None:
        if not logged:
            return
        again = self._again(logged)
        self.decisions += len(logged)
        for record in logged:
            other = again.get(record.uid)
            if other is None or encode(other) != encode(record):
                self.differences.append(Difference(sequence=sequence, logged=record, again=other))

    def _again(self, logged: Sequence[Reserved]) -> dict[RequestUid, Reserved]:
        placer = self._placer(logged[0].rationale.policy)
        members = [self.state.requests[record.uid] for record in logged]
        if members[0].request.gang is None:
            placed = placer.place(members[0])
            return {placed.uid: placed} if placed is not None else {}
        return {placed.uid: placed for placed in placer.place_gang(members) or ()}

    def _placer(self, policy: str) -> Placer:
        if policy not in self._placers:
            self._placers[policy] = Placer(self.state, policy)
        return self._placers[policy]


def replay(commits: Iterable[tuple[Commit, int]], pool: str = "default") -> Replayed:
    """A whole log."""
    again = Replay(pool)
    for commit, sequence in commits:
        again.take(commit, sequence)
    return again.result()


def _groups(state: LedgerState, records: Iterable[Record]) -> Iterator[list[Record]]:
    """Records one by one; those that place members of one gang together."""
    gang: list[Record] = []
    owner: tuple[str, str] | None = None
    for record in records:
        found = _gang_of(state, record)
        if gang and found != owner:
            yield gang
            gang = []
        if found is None:
            yield [record]
        else:
            gang.append(record)
        owner = found
    if gang:
        yield gang


def _gang_of(state: LedgerState, record: Record) -> tuple[str, str] | None:
    if not isinstance(record, Reserved):
        return None
    request = state.requests[record.uid]
    gang = request.request.gang
    return (request.accepted.namespace, gang.name) if gang is not None else None
