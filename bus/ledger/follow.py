"""Reading the ledger: from nothing to the present state, and on with every commit that comes.

In: the bus. Out: a folded state, or commits as they are folded. A message that is no commit, or that the fold refuses,
ends the reading with an error that names its sequence: nobody may skip a commit and go on.
Checkpoints only make it fast. One that does not fit the log (another epoch, another number at its sequence, the log
lost or begun again) is passed over, and the one before it is tried; without any, the log is folded from the oldest
epoch that it holds.

    LedgerError
    ├── Unreadable        a stored message is no commit
    └── RefusesToStart    the log does not reach back to any checkpoint: what is missing must come from elsewhere
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import AsyncGenerator, Iterator

import msgspec

from bus.ledger.fold import apply
from bus.ledger.rules import LedgerError
from bus.ledger.shelf import checkpoints
from bus.ledger.state import LedgerState
from bus.protocol import Bus, Received
from contracts.decisions import Commit, EpochStarted
from contracts.subjects import LEDGER

_log = logging.getLogger(__name__)
_read_commit = msgspec.json.Decoder(Commit).decode


class Unreadable(LedgerError):  # noqa: N818 - named by what is the case
    """The message at `sequence` is no commit."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"the message at {sequence} is no commit: {why}")
        self.sequence = sequence


class RefusesToStart(LedgerError):  # noqa: N818 - named by what is the case
    """The oldest commit kept is at `oldest`, the newest sound checkpoint at `checkpoint`; None = there is none."""

    def __init__(self, pool: str, oldest: int | None, checkpoint: int | None) -> None:
        log = "holds no commit" if oldest is None else f"begins at {oldest}, in the middle of an epoch"
        known = "there is no sound checkpoint" if checkpoint is None else f"the newest checkpoint is at {checkpoint}"
        super().__init__(f"ledger {pool}: refuses to start: the log {log}, and {known}")
        self.oldest = oldest
        self.checkpoint = checkpoint


def decode_commit(message: Received) -> Commit:
    """The commit in a stored message.

    Raises:
        Unreadable: there is none.
    """
    if message.malformed:
        raise Unreadable(message.sequence, message.malformed)
    try:
        return _read_commit(message.data)
    except msgspec.MsgspecError as error:
        raise Unreadable(message.sequence, str(error)) from error


async def open_ledger(bus: Bus, pool: str = "default") -> tuple[LedgerState, int]:
    """The state at the end of the log as it is now, and the sequence to read on from.

    A log without any commit (and without a checkpoint) is a new one: the state is empty, at sequence 0.

    Raises:
        RefusesToStart: commits are missing and nothing replaces them.
        LedgerError: the log does not add up.
        BusUnavailable: the log could not be asked for its end.
    """
    with _uncollected():
        return await _open(bus, pool)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: a start makes a million objects and all of them stay; looking doubles its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def _open(bus: Bus, pool: str) -> tuple[LedgerState, int]:
    end = await end_of_log(bus, pool)
    newest: int | None = None
    async with contextlib.aclosing(checkpoints(bus, pool)) as found:
        async for state in found:
            newest = max(newest or 0, state.sequence)
            if await _from_checkpoint(bus, state, end.sequence):
                return state, state.sequence + 1
            _log.warning("checkpoint does not fit the log", extra={"checkpoint": state.sequence, "end": end.sequence})
    if not end.sequence and newest is None:
        return end, 1
    state = await _from_epoch(bus, pool, end.sequence, newest)
    return state, state.sequence + 1


async def end_of_log(bus: Bus, pool: str = "default") -> LedgerState:
    """An empty state at the end of the log: what a new epoch begins with when everything is rebuilt from elsewhere."""
    last = await last_commit(bus, pool)
    if last is None:
        return LedgerState(pool=pool)
    commit, sequence = last
    return LedgerState(pool=pool, epoch=commit.epoch, sequence=sequence, number=commit.number)


async def last_commit(bus: Bus, pool: str) -> tuple[Commit, int] | None:
    """The newest commit and its sequence, asked from the stream's leader. Raises Unreadable, BusUnavailable."""
    last = await bus.last(LEDGER.stream, LEDGER.subject(pool=pool))
    return None if last is None else (decode_commit(last), last.sequence)


async def follow(bus: Bus, state: LedgerState) -> AsyncGenerator[tuple[Commit, int], None]:
    """Every commit after `state`, folded into it before it is handed out, for ever.

    Raises:
        LedgerError: a commit that cannot be read or does not add up; its sequence is in the text.
        StreamMismatch: it is another log than before.
    """
    async with contextlib.aclosing(messages(bus, state.pool, state.sequence + 1)) as stored:
        async for message in stored:
            commit = decode_commit(message)
            apply(state, commit, message.sequence)
            yield commit, message.sequence


async def fold_to(bus: Bus, state: LedgerState, sequence: int) -> int:
    """Fold what is stored up to `sequence` (of the pool's last commit) into `state`; the number of commits.

    Raises:
        LedgerError: a commit that cannot be read or does not add up.
    """
    count = 0
    if state.sequence < sequence:
        async with contextlib.aclosing(follow(bus, state)) as commits:
            async for _, at in commits:
                count += 1
                if at >= sequence:
                    break
    return count


async def _from_checkpoint(bus: Bus, state: LedgerState, end: int) -> bool:
    """Fold the tail into `state`; False when the log does not go on where the checkpoint ends."""
    if end < state.sequence:
        return False
    async with contextlib.aclosing(messages(bus, state.pool, state.sequence)) as stored:
        first = await anext(stored)
    if not _fits(state, decode_commit(first), first.sequence):
        return False
    await fold_to(bus, state, end)
    return True


def _fits(state: LedgerState, commit: Commit, sequence: int) -> bool:
    """Whether the oldest commit at or after the checkpoint is the one it was made at, or follows that one."""
    if sequence == state.sequence:
        return (commit.number, commit.epoch) == (state.number, state.epoch)
    starts = bool(commit.records) and isinstance(commit.records[0], EpochStarted)
    follows = (commit.predecessor, commit.number) == (state.sequence, state.number + 1)
    return follows and (starts or commit.epoch == state.epoch)


async def _from_epoch(bus: Bus, pool: str, end: int, checkpoint: int | None) -> LedgerState:
    """Fold from the oldest beginning of an epoch that the log holds: an epoch owes nothing to what was before it."""
    oldest: int | None = None
    if end:
        async with contextlib.aclosing(messages(bus, pool, 1)) as stored:
            async for message in stored:
                oldest = oldest or message.sequence
                commit = decode_commit(message)
                if commit.records and isinstance(commit.records[0], EpochStarted):
                    state = LedgerState(pool=pool, sequence=commit.predecessor, number=commit.number - 1)
                    await fold_to(bus, state, end)
                    return state
                if message.sequence >= end:
                    break
    raise RefusesToStart(pool, oldest, checkpoint)


async def messages(bus: Bus, pool: str, sequence: int) -> AsyncGenerator[Received, None]:
    """The stored messages of a pool's ledger from `sequence` on, unread, for ever; close it when done."""
    subject = LEDGER.subject(pool=pool)
    batches = bus.read(LEDGER.stream, subject=subject, from_sequence=sequence)
    async with contextlib.aclosing(batches):
        async for batch in batches:
            for message in batch.messages:
                yield message
