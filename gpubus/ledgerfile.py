"""A ledger in a file: the log as it is stored, so that an incident can be looked at elsewhere. Pure: bytes in and out.

    {"format":"gpubus.ledger.1","pool":"default","state_lines":0}
    (as many lines of a state, when the first commits have aged out: `bus.ledger.snapshot`)
    17 {"type":"ledger.commit.v1",...}
    18 {"type":"ledger.commit.v1",...}

Each commit is its sequence and the very bytes of the message, so that what is checked here is what was stored there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from bus.ledger import snapshot
from bus.ledger.fold import apply
from bus.ledger.rules import LedgerError
from bus.ledger.state import LedgerState
from contracts.decisions import Commit
from gpubus.errors import UsageError

FORMAT = "gpubus.ledger.1"

Stored = tuple[int, bytes]
"""Sequence and message of one commit."""


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line."""

    format: str
    pool: str
    state_lines: int = 0


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """A log: the state it goes on from, None = from its beginning; and its commits."""

    pool: str
    begin: LedgerState | None
    stored: tuple[Stored, ...]

    def commits(self) -> Iterator[tuple[Commit, int]]:
        """Each commit and its sequence.

        Raises:
            UsageError: one that cannot be read.
        """
        for sequence, data in self.stored:
            try:
                yield _commit(data), sequence
            except msgspec.MsgspecError as error:
                raise UsageError(f"the commit at {sequence} cannot be read: {error}") from error

    def start(self) -> LedgerState:
        """A state of one's own to go on from."""
        return snapshot.copy(self.begin) if self.begin is not None else LedgerState(pool=self.pool)

    def state(self, before: int | None = None) -> LedgerState:
        """What the commits before that sequence add up to; None: all of them.

        Raises:
            UsageError: the log does not add up.
        """
        state = self.start()
        try:
            for commit, sequence in self.commits():
                if before is not None and sequence >= before:
                    break
                apply(state, commit, sequence)
        except LedgerError as error:
            raise UsageError(f"this log does not add up: {error}") from error
        return state


def write(log: Log) -> Iterator[bytes]:
    """The lines of the file, each with its end."""
    state = snapshot.dump(log.begin).split(b"\n") if log.begin is not None else []
    head = Head(format=FORMAT, pool=log.pool, state_lines=len(state))
    yield msgspec.json.encode(head) + b"\n"
    for line in state:
        yield line + b"\n"
    for sequence, data in log.stored:
        yield b"%d %s\n" % (sequence, data)


def read(data: bytes, source: str) -> Log:
    """What was written.

    Raises:
        UsageError: it is no such file; with the line.
    """
    lines = data.split(b"\n")
    try:
        head = msgspec.json.decode(lines[0], type=Head)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{source} line 1: no saved ledger: {error}") from error
    if head.format != FORMAT:
        raise UsageError(f"{source} line 1: format {head.format!r}, this reads {FORMAT!r}")
    begin = _begin(lines[1 : 1 + head.state_lines], source)
    return Log(pool=head.pool, begin=begin, stored=tuple(_stored(lines, 1 + head.state_lines, source)))


def _begin(lines: list[bytes], source: str) -> LedgerState | None:
    try:
        return snapshot.load(b"\n".join(lines)) if lines else None
    except LedgerError as error:
        raise UsageError(f"{source}: its state cannot be read: {error}") from error


def _stored(lines: list[bytes], first: int, source: str) -> Iterable[Stored]:
    for number, line in enumerate(lines[first:], first + 1):
        if not line:
            continue
        sequence, _, data = line.partition(b" ")
        if not sequence.isdigit() or not data:
            raise UsageError(f"{source} line {number}: no sequence and commit")
        yield int(sequence), data


_commit = msgspec.json.Decoder(Commit).decode
