"""The last word on each subject: what should stand there, and bringing it there.

What flows in: a message for a subject, as often as anybody likes. What flows out: at most one store in flight per
subject, only of what differs from what stands there already, and always the newest; what was overtaken while it waited
is never sent. A bus that is away only delays it. On start the board reads what stands, so that a new process does not
say everything again.

Node shares carry a ledger sequence and must not go back: they are stored with the subject's last sequence expected, and
a writer that lost looks at what stands there before it tries again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import islice

import msgspec

from bus.protocol import Bus, BusError, BusUnavailable, Outgoing, Received, SequenceConflict, Stored
from contracts.inventory import NodeFacts
from contracts.messages import encode
from contracts.outcomes import NodeShares, Outcome
from contracts.subjects import NODE_FACTS, OUTCOMES, SHARES, Channel
from reconciler.backoff import Backoff
from reconciler.shares import keep_ports, same_shares

Word = Outcome | NodeFacts | NodeShares
BATCH = 256
"""Words that go out together: each costs a disk sync, and the server syncs together what comes together."""
GATHER_S = 0.01
"""Words gather this long: sixteen together cost a fifth of the CPU time of sixteen alone."""
REFUSED_S = 10.0
"""Pause before a word is tried again that the server refused: the others do not wait for it."""

_log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(Word).decode


class Standing(msgspec.Struct):
    """One subject."""

    stored: Word | None = None
    sequence: int = 0
    """Of the stored one, as far as we know."""
    wanted: Word | None = None
    """None = what is stored is right."""
    headers: dict[str, str] = {}
    message_id: str = ""


class Board:
    """All subjects that the reconciler speaks on.

    Args:
        bus: where they are stored.
        incarnation: unique to this process; message ids are made of it.
        rng: for the jitter of pauses.
    """

    def __init__(self, bus: Bus, incarnation: str, *, rng: random.Random) -> None:
        self._bus = bus
        self._incarnation = incarnation
        self._standing: dict[str, Standing] = {}
        self._waiting: dict[str, None] = {}
        self._some = asyncio.Event()
        self._pause = Backoff(base_s=0.1, cap_s=5.0, rng=rng)
        self._count = 0

    def __repr__(self) -> str:
        return f"<Board of {len(self._standing)} subjects, {self.behind} to store>"

    @property
    def behind(self) -> int:
        """Subjects on which something else should stand than does."""
        return sum(one.wanted is not None for one in self._standing.values())

    def last(self, subject: str) -> Word | None:
        """What stands there, or will as soon as the bus takes it."""
        one = self._standing.get(subject)
        return (one.wanted or one.stored) if one else None

    def say(self, subject: str, word: Word, headers: dict[str, str] | None = None) -> bool:
        """Let it stand there; False when it does already."""
        one = self._standing.setdefault(subject, Standing())
        if _same(one.wanted or one.stored, word):
            return False
        one.wanted, one.headers, one.message_id = word, headers or {}, ""
        self._wait(subject)
        return True

    def forget(self, subject: str) -> None:
        """It is of no interest any more; what stands there goes on standing, and what is on its way arrives."""
        one = self._standing.get(subject)
        if one is not None and one.wanted is None:
            del self._standing[subject]

    async def load(self) -> None:
        """Read what stands on all subjects now. Raises BusError."""
        for channel in (OUTCOMES, NODE_FACTS, SHARES):
            async for message in _standing_messages(self._bus, channel):
                self._learn(message)

    def words(self) -> list[tuple[str, Word]]:
        """Every subject with its last word."""
        return [(subject, word) for subject in self._standing if (word := self.last(subject)) is not None]

    # --- storing -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Store until cancelled: what has gathered goes out together, and the next batch gathers meanwhile."""
        while True:
            await self._some.wait()
            await asyncio.sleep(GATHER_S)
            self._some.clear()
            batch = [subject for subject in islice(self._waiting, BATCH) if self._standing[subject].wanted]
            for subject in list(islice(self._waiting, BATCH)):
                del self._waiting[subject]
            if self._waiting:
                self._some.set()
            if batch:
                await self._store(batch)

    def _wait(self, subject: str) -> None:
        self._waiting[subject] = None
        self._some.set()

    async def _store(self, batch: list[str]) -> None:
        words = [self._standing[subject].wanted for subject in batch]
        results = await self._bus.store_many([self._outgoing(subject) for subject in batch])
        troubles = [
            await self._settle(subject, word, result)
            for subject, word, result in zip(batch, words, results, strict=True)
        ]
        await self._rest([trouble for trouble in troubles if trouble is not None])

    def _outgoing(self, subject: str) -> Outgoing:
        one = self._standing[subject]
        word = one.wanted
        if word is None:
            raise AssertionError(f"{subject}: nothing to store")
        if not one.message_id:  # a word keeps its id until it is known to be stored; another word gets another
            self._count += 1
            one.message_id = f"{self._incarnation}-{self._count}"
        return Outgoing(
            subject=subject,
            data=encode(word),
            headers=one.headers,
            message_id=one.message_id,
            expected_last=one.sequence if isinstance(word, NodeShares) else None,
            stream=OUTCOMES.stream if isinstance(word, Outcome) else NODE_FACTS.stream,
        )

    async def _settle(self, subject: str, word: Word | None, result: Stored | BusError) -> BusError | None:
        """What became of one word; why it must be said again, if it must."""
        one = self._standing[subject]
        if isinstance(result, Stored):
            one.stored, one.sequence = word, result.sequence
            if one.wanted is word:
                one.wanted, one.message_id = None, ""
            return None
        if isinstance(result, SequenceConflict | BusUnavailable):
            self._wait(subject)
            return await self._look(subject) if isinstance(result, SequenceConflict) else result
        _log.error("%s is refused", subject, extra={"reason": f"{type(result).__name__}: {result}"})
        asyncio.get_running_loop().call_later(REFUSED_S, self._wait, subject)
        return None

    async def _rest(self, troubles: list[BusError]) -> None:
        """One pause and one line in the log for all subjects alike, not one for each of thousands."""
        if not troubles:
            self._pause.reset()
            return
        pause_s = self._pause()
        why = {"reason": f"{type(troubles[0]).__name__}: {troubles[0]}", "pause_s": round(pause_s, 3)}
        _log.warning("%d words are not stored yet", len(troubles), extra=why)
        await asyncio.sleep(pause_s)

    async def _look(self, subject: str) -> BusError | None:
        """Somebody else wrote: what stands there now, and whether ours is still news."""
        one = self._standing[subject]
        one.message_id = ""
        try:
            message = await self._bus.last(SHARES.stream, subject)
        except BusError as error:
            return error
        if message is None:
            one.sequence = 0
            return None
        self._learn(message)
        ours, theirs = one.wanted, one.stored
        if isinstance(ours, NodeShares) and isinstance(theirs, NodeShares):
            one.wanted = None if _outdated(ours, theirs) else keep_ports(ours, theirs)
        return None

    def _learn(self, message: Received) -> None:
        one = self._standing.setdefault(message.subject, Standing())
        one.sequence = message.sequence
        try:
            one.stored = _decode(message.data)
        except msgspec.MsgspecError:
            one.stored = None


def _outdated(ours: NodeShares, theirs: NodeShares) -> bool:
    """Theirs was taken from a later state of the same log."""
    return ours.epoch == theirs.epoch and ours.ledger_sequence <= theirs.ledger_sequence


def _same(standing: Word | None, word: Word) -> bool:
    if isinstance(word, NodeShares):
        return isinstance(standing, NodeShares) and same_shares(standing, word)
    return standing == word


async def _standing_messages(bus: Bus, channel: Channel) -> AsyncIterator[Received]:
    batches = bus.read(channel.stream, subject=channel.wildcard)
    async with aclosing(batches):
        async for batch in batches:
            for message in batch.messages:
                yield message
            if batch.caught_up:
                return
