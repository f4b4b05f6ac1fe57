"""Writers of a ledger for the tests, a bus that loses answers, and a judge of what is in the log afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal

from bus.ledger.append import Ledger, LostHead, OutcomeUnknown, commit_after
from bus.ledger.follow import decode_commit, open_ledger
from bus.ledger.proof import Proof, prove
from bus.protocol import Batch, Bus, BusUnavailable, Received, Stored
from contracts.decisions import Commit, EpochStarted, HealthSet, Record
from contracts.subjects import CHECKPOINTS, LEDGER
from contracts.units import NodeName
from tests.contract.bus_worlds import collect

SUBJECT = LEDGER.subject(pool="default")
EPOCH = "e0000000"

Loss = Literal["", "before", "after", "late"]


class LossyBus:
    """A bus whose stores go as planned: answered, lost before or after they took effect, or late (`land` stores them).

    Everything else is the bus behind it.
    """

    def __init__(self, bus: Bus, plan: Sequence[Loss]) -> None:
        self._bus = bus
        self._plan = list(plan)
        self.tries = 0
        self.forgets = 0
        """As many answers of `last` come from a leader that has not heard of the last messages."""
        self._late: list[Callable[[], Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def store(self, subject: str, data: bytes, **options: Any) -> Stored:
        self.tries += 1
        loss = self._plan.pop(0) if self._plan else ""
        if loss == "late":
            self._late.append(lambda: self._bus.store(subject, data, **options))
        if loss in ("before", "late"):
            raise BusUnavailable("lost on the way there")
        stored = await self._bus.store(subject, data, **options)
        if loss == "after":
            raise BusUnavailable("lost on the way back")
        return stored

    async def land(self) -> None:
        """What was late arrives."""
        for arrive in self._late:
            await arrive()

    async def last(self, stream: str, subject: str) -> Received | None:
        found = await self._bus.last(stream, subject)
        if self.forgets:
            self.forgets -= 1
            return None
        return found

    def read(self, stream: str, **options: Any) -> AsyncGenerator[Batch, None]:
        return self._bus.read(stream, **options)


def note(author: str, index: int) -> Record:
    """A record that says who wrote it."""
    return HealthSet(node=NodeName(f"{author}-{index}"), health="suspect", reason=author)


async def begun(bus: Bus, **options: Any) -> Ledger:
    """A ledger at the end of its log, with an epoch."""
    state, _ = await open_ledger(bus)
    ledger = Ledger(bus, state, **options)
    if not state.epoch:
        await ledger.append(commit_after(state, [EpochStarted(epoch=EPOCH, reason="test")], author="a", epoch=EPOCH))
    return ledger


async def write(ledger: Ledger, author: str, *indices: int) -> Commit:
    """One commit with a note for each index."""
    commit = commit_after(ledger.state, [note(author, index) for index in indices], author=author)
    await ledger.append(commit)
    return commit


class Writer:
    """A scheduler that has nothing to decide: it writes numbered notes and remembers what was acknowledged."""

    def __init__(self, bus: Bus, name: str, *, pause_s: float = 0.0, **options: Any) -> None:
        self.name = name
        self.pause_s = pause_s
        """At most, after each commit: who catches up while another one writes without a pause never gets its turn."""
        self.acknowledged: dict[int, int] = {}
        """Index of the note -> sequence of its commit."""
        self.lost = self.unknown = 0
        self._bus = bus
        self._options = options

    async def run(self, count: int, stop: asyncio.Event | None = None) -> None:
        """Until so many notes are acknowledged, or until told to stop."""
        state, _ = await open_ledger(self._bus)
        ledger = Ledger(self._bus, state, **self._options)
        index = 0
        while len(self.acknowledged) < count and not (stop and stop.is_set()):
            commit = commit_after(ledger.state, [note(self.name, index)], author=self.name)
            try:
                self.acknowledged[index] = await ledger.append(commit)
            except LostHead:
                self.lost += 1
                await self._again(ledger)
            except OutcomeUnknown:
                self.unknown += 1
                index += 1
                await self._again(ledger)
            else:
                index += 1
                await asyncio.sleep(random.uniform(0.0, self.pause_s))

    async def _again(self, ledger: Ledger) -> None:
        while True:
            with contextlib.suppress(BusUnavailable):
                await ledger.catch_up()
                return
            await asyncio.sleep(0.05)


async def judge(bus: Bus, *writers: Writer) -> Proof:
    """The log is proved, and holds every acknowledged note at the sequence that was acknowledged, once."""
    messages = await collect(bus, LEDGER.stream, subject=SUBJECT)
    proof = prove(messages)
    assert proof.holds, str(proof)
    at = {message.sequence: decode_commit(message) for message in messages}
    for writer in writers:
        for index, sequence in writer.acknowledged.items():
            assert at[sequence].records == (note(writer.name, index),), f"{writer.name} {index} at {sequence}"
    written = [record for commit in at.values() for record in commit.records]
    assert len(written) == len({str(record) for record in written}), "a note is in the log twice"
    return proof


async def stored_checkpoints(bus: Bus) -> list[Received]:
    """Heads and chunks as they are."""
    return await collect(bus, CHECKPOINTS.stream, subject=CHECKPOINTS.subject(pool="default"))
