"""Writing the ledger: one commit at a time, compare-and-set on the head, and a certain answer.

In: a commit made on the committed state. Out: its sequence, with the committed state folded up to it; or `LostHead`:
somebody wrote first, nothing of the commit is in the log, and whoever decided it catches up and decides again.
Between the two lies the unknown outcome of a timeout or a broken connection. It is asked again with the same bytes, the
same id and the same expected head until the server says which: stored, stored already, or another one was first. What
stands first after the predecessor tells: ours if its bytes are ours, for nobody writes the same bytes.

    LedgerError
    └── LostHead            another commit follows the predecessor
    BusUnavailable
    └── OutcomeUnknown      no answer until the deadline: it may be stored, now or a little later; catch up to see
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterable

import msgspec

from bus.ledger.fold import apply
from bus.ledger.follow import fold_to, last_commit, messages
from bus.ledger.rules import ChainBroken, LedgerError, check_chain, check_gangs
from bus.ledger.state import LedgerState
from bus.protocol import Bus, BusUnavailable, SequenceConflict
from bus.runtime.retry import GaveUp, retrying
from contracts.decisions import Commit, Record
from contracts.messages import encode
from contracts.subjects import LEDGER

DEADLINE_S = 15.0
"""An election of a replicated stream takes 4 to 9 s; a commit in flight should survive it."""

TRY_S = 2.0

BEHIND_S = 3.0
"""A leader that was frozen and thawed answers from its past until it hears of the new one, about a second."""


class LostHead(LedgerError):  # noqa: N818 - named by what is the case
    """Somebody else wrote after `predecessor`; nothing of the commit is in the log."""

    def __init__(self, commit: Commit) -> None:
        super().__init__(f"commit {commit.number} of {commit.author}: another one follows {commit.predecessor}")
        self.predecessor = commit.predecessor


class OutcomeUnknown(BusUnavailable):
    """Whether `commit` is or will be in the log cannot be said; `last` is why."""

    def __init__(self, commit: Commit, last: BaseException) -> None:
        super().__init__(f"commit {commit.number} of {commit.author}: outcome unknown: {last}")
        self.commit = commit
        self.last = last


class Written(msgspec.Struct):
    """What one ledger has appended so far, for whoever decides when a checkpoint is due."""

    commits: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, commit: Commit, size: int) -> None:
        """One commit of `size` bytes more."""
        self.commits += 1
        self.records += len(commit.records)
        self.bytes += size


def commit_after(
    state: LedgerState,
    records: Iterable[Record],
    *,
    author: str,
    term: int = 0,
    policy_version: str = "",
    requests_through: int | None = None,
    at_ms: int = 0,
    causes: tuple[str, ...] = (),
    epoch: str | None = None,
) -> Commit:
    """The commit that follows `state`. Pure. `requests_through` and `epoch` are as before unless given."""
    return Commit(
        pool=state.pool,
        epoch=state.epoch if epoch is None else epoch,
        number=state.number + 1,
        predecessor=state.sequence,
        author=author,
        term=term,
        policy_version=policy_version,
        requests_through=state.requests_through if requests_through is None else requests_through,
        at_ms=at_ms,
        records=tuple(records),
        causes=causes,
    )


class Ledger:
    """The committed state and the way to move it.

    Args:
        state: as `open_ledger` returned it. From here on it changes by `append` and `catch_up` only.
        deadline_s: how long an unknown outcome is asked again before `OutcomeUnknown`.
    """

    def __init__(self, bus: Bus, state: LedgerState, *, deadline_s: float = DEADLINE_S, try_s: float = TRY_S) -> None:
        self.state = state
        self.written = Written()
        self._bus = bus
        self._deadline_s = deadline_s
        self._try_s = try_s
        self._busy = False

    def __repr__(self) -> str:
        return (
            f"<Ledger {self.state.pool} epoch={self.state.epoch!r} number={self.state.number} at {self.state.sequence}>"
        )

    async def append(self, commit: Commit) -> int:
        """Store the commit and fold it; the sequence it has.

        Raises:
            LostHead: somebody else wrote, or the commit was made on another head; call `catch_up`, decide again.
            OutcomeUnknown: no answer until the deadline; call `catch_up`, decide again.
            ChainBroken: the commit does not follow the committed state; nothing was sent.
            InvariantBroken: a part of a gang, or requests handed back; nothing was sent. Any other: it is stored and
                must not be, because whoever decided it did not fold it first.
            StreamFull, PayloadTooLarge, NotPermitted: the server refused it; nothing is stored.
            StreamMismatch: the log was made again meanwhile.
        """
        if commit.predecessor != self.state.sequence:
            raise LostHead(commit)
        check_chain(self.state, commit, commit.predecessor + 1)
        check_gangs(self.state, commit.records, commit.predecessor + 1)
        if self._busy:
            raise ChainBroken(f"commit {commit.number} while another one is in flight")
        self._busy = True
        try:
            data = encode(commit)
            sequence = await self._store(_Writing(self._bus, commit, data, self._try_s))
            apply(self.state, commit, sequence)
        finally:
            self._busy = False
        self.written.add(commit, len(data))
        return sequence

    async def _store(self, writing: _Writing) -> int:
        what = f"store commit {writing.commit.number}"
        try:
            return await retrying(what, deadline_s=self._deadline_s)(writing.attempt)
        except GaveUp as error:
            raise OutcomeUnknown(writing.commit, error.last) from error

    async def catch_up(self) -> int:
        """Fold what others wrote, up to the end of the log as it is now; the number of commits.

        Raises:
            ChainBroken: the log ends before what is folded, and goes on doing so: it is another one. Stop, start anew.
            LedgerError: a commit that cannot be read or does not add up.
            BusUnavailable, StreamMismatch: the log could not be read.
        """
        state = self.state
        try:
            last = await retrying("find the end of the log", on=_Behind, deadline_s=BEHIND_S)(self._last)
        except GaveUp as error:
            raise ChainBroken(f"{error.last}: it is another log") from error
        if last is not None and last[0].predecessor == state.sequence:
            apply(state, *last)  # the usual case, in one round trip; a reader needs several, 40 ms of them on R3
            return 1
        return await fold_to(self._bus, state, last[1] if last else 0)

    async def _last(self) -> tuple[Commit, int] | None:
        last = await last_commit(self._bus, self.state.pool)
        end = last[1] if last else 0
        if end < self.state.sequence:
            raise _Behind(f"the log ends at {end}, {self.state.sequence} is folded")
        return last


class _Behind(Exception):  # noqa: N818 - named by what is the case
    """The log seems to end before what was folded from it."""


class _Writing:
    """One commit on its way in: the same bytes, id and expected head at every attempt."""

    def __init__(self, bus: Bus, commit: Commit, data: bytes, try_s: float) -> None:
        self.commit = commit
        self._bus = bus
        self._data = data
        self._try_s = try_s
        # By content, not by number: a commit that was given up may still arrive, and another one may have its number.
        self._id = f"{commit.epoch}-{commit.number}-{hashlib.sha256(data).hexdigest()[:32]}"
        self._unknown = False

    async def attempt(self) -> int:
        """Raises BusUnavailable when the outcome is unknown (again)."""
        try:
            stored = await self._bus.store(
                LEDGER.subject(pool=self.commit.pool),
                self._data,
                message_id=self._id,
                expected_last=self.commit.predecessor,
                stream=LEDGER.stream,
                timeout_s=self._try_s,
            )
        except BusUnavailable:
            self._unknown = True
            raise
        except SequenceConflict as conflict:
            if not self._unknown:
                raise LostHead(self.commit) from conflict
            return await self._who_was_first()
        return stored.sequence

    async def _who_was_first(self) -> int:
        """A conflict after an unknown outcome: what is in, or on its way in, is an earlier attempt of ours or not."""
        after = messages(self._bus, self.commit.pool, self.commit.predecessor + 1)
        try:
            async with contextlib.aclosing(after), asyncio.timeout(self._try_s):
                first = await anext(after)
        except TimeoutError:
            raise BusUnavailable(f"something is in flight after {self.commit.predecessor}, and not there yet") from None
        if first.data != self._data:
            raise LostHead(self.commit)
        return first.sequence
