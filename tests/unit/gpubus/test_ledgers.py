"""Where a ledger comes from: the bus gives the same log and state that were written, or says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.ledger import snapshot
from bus.ledger.shelf import write_checkpoint
from bus.memory import InMemoryBus, MemoryServer
from contracts.subjects import LEDGER
from gpubus.client import Client
from gpubus.errors import NoAnswer, UsageError
from gpubus.ledgers import log_of, saved, state_of
from tests.builders import history
from tests.builders.ledger import node


async def written(bus: InMemoryBus) -> history.Log:
    """Three commits, stored."""
    log = history.Log()
    log.write(*node("n1").gpus(2).records())
    log.write(history.accepted("e0000000-3-0", "a"))
    await bus.ensure_streams()
    for message in log.messages:
        await bus.store(LEDGER.subject(pool="default"), bytes(message.data))
    return log


@pytest.mark.asyncio
async def test_the_bus_gives_what_was_written() -> None:
    """The bytes of every commit, and the state that they add up to."""
    bus = InMemoryBus(MemoryServer(), "test")
    log = await written(bus)
    client = Client(bus)
    found = await log_of(client)

    assert found.begin is None
    assert found.stored == tuple((m.sequence, bytes(m.data)) for m in log.messages)
    assert snapshot.digest(found.state()) == snapshot.digest(log.state)
    assert snapshot.digest(await state_of(client)) == snapshot.digest(log.state)


@pytest.mark.asyncio
async def test_a_checkpoint_that_is_not_needed_is_not_used() -> None:
    """The whole log is there: it begins at its first commit."""
    bus = InMemoryBus(MemoryServer(), "test")
    log = await written(bus)
    await write_checkpoint(bus, log.replay(2))
    found = await log_of(Client(bus))

    assert (found.begin, len(found.stored)) == (None, 3)


@pytest.mark.asyncio
async def test_a_ledger_that_is_not_there_is_told() -> None:
    """By the name of the pool."""
    bus = InMemoryBus(MemoryServer(), "test")
    await bus.ensure_streams()

    for asking in (log_of(Client(bus), "other"), state_of(Client(bus), "other")):
        with pytest.raises(NoAnswer, match="pool other has none yet"):
            await asking


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(UsageError, match=r"none\.ledger: No such file"):
        saved(str(tmp_path / "none.ledger"))
