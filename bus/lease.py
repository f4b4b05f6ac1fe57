"""Who is active: a lease on one subject, by compare-and-set, without clocks in messages and without TTL.

In: a bus, a name, and who we are. Out: `held`, `term`, and waits for both turns. A lease is a matter of speed, not
of safety: writes that matter carry their own compare-and-set.

The last message of `gpubus.v1.leases.<name>` is the present claim. Its holder replaces it every 0.4 s, expecting
the sequence of its last claim. A candidate looks at the sequence; when it has not moved for 1.2 s *on the
candidate's own clock*, it replaces the claim, expecting that sequence, so of two candidates one wins. A claim
marked released is taken at once.

Why the holder stops first: it counts 1.2 s, less a margin, from *before* it sent the renewal that succeeded last.
The candidate counts 1.2 s from when it first *saw* that renewal, which is later. So `held` turns false, by the
clock alone and even if the event loop is late, before anybody else can begin. Clocks need to run at the same speed,
not to agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Literal, Self

import msgspec

from bus.protocol import Bus, BusError, SequenceConflict
from contracts.subjects import LEASES

log = logging.getLogger(__name__)

TICK_S = 0.001
"""Timers may fire this much early: a wake-up for the end must find it reached, or it would be set again for nothing."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands on the subject: who, and the how-manieth write of that holder."""

    holder: str
    attempt: int = 0
    released: bool = False


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The claim as last looked up. `since_s`: when this sequence was first seen, on our clock."""

    sequence: int
    claim: Claim | None
    since_s: float


def look(before: Seen | None, *, sequence: int, claim: Claim | None, now_s: float) -> Seen:
    """Fold one look-up: the time counts from the first sight of a sequence."""
    if before is not None and before.sequence == sequence:
        return before
    return Seen(sequence=sequence, claim=claim, since_s=now_s)


def decide(seen: Seen, *, me: str, now_s: float, duration_s: float) -> Literal["take", "wait"]:
    """What a candidate does. A claim that cannot be read counts as somebody's."""
    if seen.sequence == 0:
        return "take"
    if seen.claim is not None and (seen.claim.released or seen.claim.holder == me):
        return "take"
    return "take" if now_s - seen.since_s >= duration_s else "wait"


class Lease:
    """One party to a lease. `holder_id` must be unique to this incarnation of the process.

    Run it: `async with lease: ...`, or `group.create_task(lease.run())`. Ending it gives the lease back.
    """

    def __init__(self, bus: Bus, name: str, holder_id: str, *, renew_s: float = 0.4, duration_s: float = 1.2) -> None:
        self.name = name
        self.holder_id = holder_id
        self.term = 0
        """Sequence of the write that acquired it: grows from holder to holder."""
        self._bus = bus
        self._subject = LEASES.subject(name=name)
        self._renew_s = renew_s
        self._duration_s = duration_s
        self._margin_s = renew_s / 4
        self._seen: Seen | None = None
        self._sequence = 0
        self._attempt = 0
        self._sent_s: dict[int, float] = {}
        self._until_s = float("-inf")
        self._holding = False
        self._acquired = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Lease {self.name} of {self.holder_id} held={self.held} term={self.term}>"

    @property
    def held(self) -> bool:
        """Whether we may act now. Ask it right before acting."""
        return self._holding and self._now() < self._until_s - TICK_S

    async def wait_acquired(self) -> int:
        """Wait until it is ours; the term."""
        await self._acquired.wait()
        return self.term

    async def wait_lost(self) -> None:
        """Wait until it is not ours (any more)."""
        await self._lost.wait()

    async def run(self) -> None:
        """Get it and keep it, for ever; cancel to give it back."""
        try:
            while True:
                started_s = self._now()
                if self._holding:
                    await self._hold()
                else:
                    await self._apply()
                await asyncio.sleep(self._next_step_s(started_s) - self._now())
        finally:
            await self._release()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name=f"lease {self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _next_step_s(self, started_s: float) -> float:
        """A holder renews at a steady pace and wakes when its time is up; a candidate looks twice as often."""
        if self._holding:
            return min(started_s + self._renew_s, self._until_s)
        return started_s + self._renew_s / 2

    # --- one step --------------------------------------------------------------------------------------------------

    async def _apply(self) -> None:
        """A candidate's step: look, and take it when that is due."""
        try:
            seen = await self._look()
            if decide(seen, me=self.holder_id, now_s=self._now(), duration_s=self._duration_s) == "take":
                await self._write(expected=seen.sequence)
        except BusError as error:
            log.debug("lease %s: %s", self.name, error)

    async def _hold(self) -> None:
        """The holder's step: renew, or stop in time."""
        try:
            async with asyncio.timeout_at(self._until_s):
                await self._renew()
        except TimeoutError:
            log.info("lease %s: a renewal takes too long", self.name)
        except BusError as error:
            log.info("lease %s: not renewed: %s", self.name, error)
        if self._holding and not self.held:
            self._lose("not renewed in time")

    async def _renew(self) -> None:
        try:
            await self._write(expected=self._sequence)
        except SequenceConflict:
            seen = await self._look()
            if seen.claim is None or seen.claim.holder != self.holder_id:
                self._lose(f"taken over by {seen.claim.holder if seen.claim else 'somebody'}")
                return
            self._confirm(seen.claim.attempt, seen.sequence)  # stored before, only the answer was lost
            await self._write(expected=self._sequence)

    async def _look(self) -> Seen:
        message = await self._bus.last(LEASES.stream, self._subject)
        sequence, claim = 0, None
        if message is not None:
            sequence, claim = message.sequence, read_claim(message.data)
        self._seen = look(self._seen, sequence=sequence, claim=claim, now_s=self._now())
        return self._seen

    async def _write(self, *, expected: int) -> None:
        self._attempt += 1
        attempt = self._attempt
        self._sent_s[attempt] = self._now()
        claim = Claim(holder=self.holder_id, attempt=attempt)
        stored = await self._bus.store(
            self._subject, msgspec.json.encode(claim), expected_last=expected, timeout_s=self._renew_s
        )
        self._confirm(attempt, stored.sequence)
        if not self._holding and self._now() < self._until_s - TICK_S:
            self._win(stored.sequence)

    def _confirm(self, attempt: int, sequence: int) -> None:
        """A write of ours is the present claim: it holds from before it was sent."""
        self._sequence = sequence
        sent_s = self._sent_s.get(attempt)
        if sent_s is not None:
            self._until_s = sent_s + self._duration_s - self._margin_s
            self._sent_s = {n: at for n, at in self._sent_s.items() if n >= attempt}

    def _win(self, term: int) -> None:
        self.term = term
        self._holding = True
        self._lost.clear()
        self._acquired.set()
        log.info("lease %s is ours, term %d", self.name, term)

    def _lose(self, why: str) -> None:
        self._holding = False
        self._seen = None
        self._sent_s.clear()
        self._acquired.clear()
        self._lost.set()
        log.warning("lease %s is lost (term %d): %s", self.name, self.term, why)

    async def _release(self) -> None:
        """Stop acting, then say so; if that is not heard, the others wait for the duration."""
        if not self._holding:
            return
        self._lose("given back")
        claim = Claim(holder=self.holder_id, attempt=self._attempt + 1, released=True)
        with contextlib.suppress(BusError):
            await self._bus.store(
                self._subject, msgspec.json.encode(claim), expected_last=self._sequence, timeout_s=self._renew_s
            )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def read_claim(data: bytes) -> Claim | None:
    """The claim, None when it cannot be read."""
    try:
        return msgspec.json.decode(data, type=Claim)
    except (msgspec.MsgspecError, ValueError):
        return None
