"""Decide again: every decision of a log, from the log prefix alone, on any machine. Pure.

In: the commits of a ledger, from its first. Out: how many decisions were computed again, and those that came out
otherwise. A decision is equal when its record is: the same node, slices, scores and runner-up, byte for byte.

What is decided again is each `Reserved`: against the state that the records before it fold to, with the policy that its
rationale names; and each `Nominated`: its place, and who has to leave for it (`queue.renominate`). Members of a gang
are decided together, from the state before the first of them. A policy of a user's
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
from contracts.decisions import Commit, Nominated, Record, Reserved
from contracts.messages import Value, encode
from contracts.units import RequestUid
from scheduler.core.placer import Placer
from scheduler.core.policies import POLICIES
from scheduler.core.queue.nominate import VERSION
from scheduler.core.queue.nominees import fulfilment
from scheduler.core.queue.renominate import Renominations
from scheduler.core.queue.teams import TeamKey, team_key

Decided = Reserved | Nominated
Owner = tuple[type[Record], TeamKey]
"""A gang, and what is decided of its members together."""


class Difference(Value, frozen=True, kw_only=True):
    """A decision that comes out otherwise: as it stands in the log, and as it is computed now (None: not at all)."""

    sequence: int
    logged: Decided
    again: Decided | None


class Replayed(Value, frozen=True, kw_only=True):
    """What a replay found."""

    decisions: int
    """Placements that were computed again."""
    differences: tuple[Difference, ...]
    nominations: int = 0
    """Places in sight that were."""
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
        self.decisions = self.nominations = 0
        self.differences: list[Difference] = []
        self.unknown: Counter[str] = Counter()
        self._placers: dict[str, Placer] = {}
        self._renominations = Renominations(self.state)

    def take(self, commit: Commit, sequence: int) -> None:
        """The next commit."""
        check_chain(self.state, commit, sequence)
        self._renominations.commit()
        for group in self._groups(commit.records):
            self._decide([record for record in group if isinstance(record, Reserved)], sequence)
            self._nominate([record for record in group if isinstance(record, Nominated)], sequence)
            for record in group:
                self._renominations.coming(record)
                apply_record(self.state, record, sequence)
                self._renominations.folded(record)
        seal(self.state, commit, sequence)

    def result(self) -> Replayed:
        """So far."""
        return Replayed(
            decisions=self.decisions,
            nominations=self.nominations,
            differences=tuple(self.differences),
            unknown=dict(self.unknown),
        )

    def _decide(self, logged: Sequence[Reserved], sequence: int) -> None:
        if not logged:
            return
        unknown = [name for record in logged if (name := foreign(record))]
        if unknown:
            self.unknown.update(unknown)
            return
        again = self._again(logged)
        self.decisions += len(logged)
        self._compare([(record, _as_instead(record, again.get(record.uid))) for record in logged], sequence)

    def _nominate(self, logged: Sequence[Nominated], sequence: int) -> None:
        unknown = [name for record in logged if (name := foreign(record))]
        if unknown or not logged:
            self.unknown.update(unknown)
            return
        again = self._renominations.again(logged)
        self.nominations += len(logged)
        self._compare([(record, again.get(record.uid)) for record in logged], sequence)

    def _compare(self, found: Iterable[tuple[Decided, Decided | None]], sequence: int) -> None:
        for record, other in found:
            if other is None or encode(other) != encode(record):
                self.differences.append(Difference(sequence=sequence, logged=record, again=other))

    def _again(self, logged: Sequence[Reserved]) -> dict[RequestUid, Reserved]:
        members = [self.state.requests[record.uid] for record in logged]
        default = (record for record, each in zip(logged, members, strict=True) if each.request.policy is None)
        placer = self._placer(next(default, logged[0]).rationale.policy)  # members of a gang may name others
        if logged[0].rationale.nominated:
            promised = [fulfilment(self.state, member, logged[0].rationale.policy) for member in members]
            return {record.uid: record for record in promised if record is not None}
        if members[0].request.gang is None:
            placed = placer.place(members[0])
            return {placed.uid: placed} if placed is not None else {}
        return {placed.uid: placed for placed in placer.place_gang(members) or ()}

    def _groups(self, records: Iterable[Record]) -> Iterator[list[Record]]:
        """Records one by one; those that place, or nominate, members of one gang together."""
        gang: list[Record] = []
        owner: Owner | None = None
        for record in records:
            found = self._owner(record)
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

    def _owner(self, record: Record) -> Owner | None:
        """The gang whose members are decided together with this one."""
        if isinstance(record, Nominated):
            key = self._renominations.together(record.uid)
        elif isinstance(record, Reserved) and not record.rationale.nominated:
            key = team_key(self.state.requests[record.uid])
        else:
            key = None  # also a promise that is kept: each member of a nominated gang has a place of its own
        return (type(record), key) if key is not None else None

    def _placer(self, policy: str) -> Placer:
        if policy not in self._placers:
            self._placers[policy] = Placer(self.state, policy)
        return self._placers[policy]


def foreign(record: Decided) -> str:
    """By which rules it was decided, if those are not here: a policy, or a version; empty when they are.

    A promise that is kept was decided when it was made.
    """
    if isinstance(record, Nominated):
        return "" if record.version == VERSION else f"nominations version {record.version}"
    rationale = record.rationale
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
