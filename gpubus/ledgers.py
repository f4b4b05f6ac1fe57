"""Where a ledger comes from: the bus, whole or as the state at its end; or a file that was saved.

In: a client, or the name of a file. Out: a `Log`, or a `LedgerState`. Nothing is written to the bus.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from bus.ledger.follow import messages, open_ledger
from bus.ledger.rules import LedgerError
from bus.ledger.shelf import checkpoints
from bus.ledger.state import LedgerState
from bus.protocol import BusError
from contracts import subjects
from gpubus import ledgerfile
from gpubus.client import Client
from gpubus.errors import NoAnswer, UsageError
from gpubus.ledgerfile import Log

PATIENCE_S = 60.0
"""A hundred thousand commits take some seconds."""


async def log_of(client: Client, pool: str = "default") -> Log:
    """The whole log as it is now, or, once its first commits have aged out, from the oldest checkpoint that reaches.

    Raises:
        NoAnswer: it cannot be read, or there is none.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            last = await client.bus.last(subjects.LEDGER.stream, subjects.LEDGER.subject(pool=pool))
            if last is None:
                raise NoAnswer("the ledger", f"pool {pool} has none yet")
            begin = await _beginning(client, pool)
            stored = []
            first = begin.sequence + 1 if begin is not None else 1
            async with contextlib.aclosing(messages(client.bus, pool, first)) as found:
                async for message in found:
                    stored.append((message.sequence, bytes(message.data)))
                    if message.sequence >= last.sequence:
                        break
    except (BusError, LedgerError, TimeoutError) as error:
        raise NoAnswer("the ledger", str(error) or f"not read within {PATIENCE_S:.0f} s") from error
    return Log(pool=pool, begin=begin, stored=tuple(stored))


async def _beginning(client: Client, pool: str) -> LedgerState | None:
    first = await client.bus.first_sequence(subjects.LEDGER.stream)
    found: LedgerState | None = None
    if first > 1:
        async with contextlib.aclosing(checkpoints(client.bus, pool)) as kept:
            async for state in kept:
                if state.sequence + 1 < first:
                    break
                found = state
    return found


async def state_of(client: Client, pool: str = "default") -> LedgerState:
    """The state at the end of the log.

    Raises:
        NoAnswer: it cannot be read, or there is none.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            state, _ = await open_ledger(client.bus, pool)
    except (BusError, LedgerError, TimeoutError) as error:
        raise NoAnswer("the ledger", str(error) or f"not read within {PATIENCE_S:.0f} s") from error
    if not state.epoch:
        raise NoAnswer("the ledger", f"pool {pool} has none yet")
    return state


def saved(file: str) -> Log:
    """A log that was saved.

    Raises:
        UsageError: there is no such file, or it is something else.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    return ledgerfile.read(data, file)
