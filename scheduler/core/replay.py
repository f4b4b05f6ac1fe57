"""Decide again: every decision of a log, from the log prefix alone, on any machine. Pure.

In: the commits of a ledger, from its first. Out: how many decisions were computed again, and those that came out
otherwise. A decision is equal when its record is: the same node, slices, scores and runner-up, byte for byte.

What is decided again is each `Reserved`: against the state that the records before it fold to, with the policy that its
rationale names. Members of a gang are decided together, from the state before the first of them. A policy of a user's
own that was not loaded here, and a version of ours that is no longer here, are counted and passed over: what they would
have decided cannot be told any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from bus.ledger.fold import apply_record, check_chain, seal
from bus.ledger.snapshot import copy
from bus.ledger.state import LedgerState
from contracts.decisions import Commit, Rationale, Record, Reserved
from contracts.messages import Value, encode
from contracts.units import RequestUid
from scheduler.core.placer import Placer
from scheduler.core.policies import POLICIES
from scheduler.core.queue.nominees import fulfilment


class Difference(Value, frozen=True, kw_only=True):
    """A decision that comes out otherwise: as it stands in the log, and as it is computed now (None: not at all)."""

    sequence: int
    logged: Reserved
    again: Reserved | None


class Replayed(Value, frozen=True, kw_only=True):
    """What a replay found."""

    decisions: int
    differences: tuple[Difference, ...]
    unknown: dict[str, int] = {}
    """Decisions by policies that are not known here (a user's own, or another version of ours), which could not be made
    again; by policy."""


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
        self.unknown: Counter[str] = Counter()
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
        return Replayed(decisions=self.decisions, differences=tuple(self.differences), unknown=dict(self.unknown))

    def _decide(self, logged: Sequence[Reserved], sequence: int) -> None:
        if not logged:
            return
        unknown = [name for record in logged if (name := _foreign(record.rationale))]
        if unknown:
            self.unknown.update(unknown)
            return
        again = self._again(logged)
        self.decisions += len(logged)
        for record in logged:
            other = _as_instead(record, again.get(record.uid))
            if other is None or encode(other) != encode(record):
                self.differences.append(Difference(sequence=sequence, logged=record, again=other))

    def _again(self, logged: Sequence[Reserved]) -> dict[RequestUid, Reserved]:
        placer = self._placer(logged[0].rationale.policy)
        members = [self.state.requests[record.uid] for record in logged]
        if logged[0].rationale.nominated:
            promised = [fulfilment(self.state, member, logged[0].rationale.policy) for member in members]
            return {record.uid: record for record in promised if record is not None}
        if members[0].request.gang is None:
            placed = placer.place(members[0])
            return {placed.uid: placed} if placed is not None else {}
        return {placed.uid: placed for placed in placer.place_gang(members) or ()}

    def _placer(self, policy: str) -> Placer:
        if policy not in self._placers:
            self._placers[policy] = Placer(self.state, policy)
        return self._placers[policy]


def _foreign(rationale: Rationale) -> str:
    """The policy by name, and version if only that is not here; empty when it is here.

    A promise that is kept was decided when it was made.
    """
    policy = POLICIES.get(rationale.policy)
    if policy is None:
        return rationale.policy
    if policy.version == rationale.version or rationale.nominated:
        return ""
    return f"{rationale.policy} version {rationale.version}"


def _as_instead(logged: Reserved, again: Reserved | None) -> Reserved | None:
    """Why a policy could not decide is no part of what is decided again; the policy that did is."""
    if again is None or not logged.rationale.instead_of:
        return again
    return replace(again, rationale=replace(again.rationale, instead_of=logged.rationale.instead_of))


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
    if not isinstance(record, Reserved) or record.rationale.nominated:
        return None  # each member of a nominated gang has a place of its own
    request = state.requests[record.uid]
    gang = request.request.gang
    return (request.accepted.namespace, gang.name) if gang is not None else None
