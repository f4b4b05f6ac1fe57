"""The cards as one task sees them: looks at every seat once a period and keeps what the others publish.

In: a provider behind a runner, and what it says by itself. Out: `book` (the cards as we hold them), the samples since
they were last taken, and two events: `changed` when the inventory is another one, `alarm` when a card's health is. A
card that hangs turns suspect while the others go on; a driver that fails turns into suspect cards and missing samples;
the task itself never waits longer than a period for anybody, except for the wiring, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from contracts.inventory import Card, NodeInventory
from contracts.units import CardUuid
from monitor import health, past
from monitor.cards.listener import Listener
from monitor.cards.protocol import (
    CardProvider,
    DriverError,
    DriverInfo,
    DriverLost,
    DriverMissing,
    Look,
    Place,
    Sign,
    Warns,
)
from monitor.cards.runner import Runner
from monitor.health import Book, Round
from monitor.settings import MonitoringSettings
from monitor.standing import At
from monitor.ticks import Ticks
from monitor.usage import Sample
from monitor.visits import Visits

log = logging.getLogger(__name__)

CLOSE_S = 0.5
"""A driver that hangs at the end is left behind."""
REOPEN_AFTER_S = 10.0
"""With a failed card a new session is begun so often: some drivers do not show a card that came back to an old one."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class CardWatch:
    """Made inside the event loop. Its attributes are for reading, its events are cleared by who waits for them."""

    def __init__(
        self,
        provider: CardProvider,
        runner: Runner,
        settings: MonitoringSettings,
        *,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self.provider = provider
        self.book = Book()
        self.driver = DriverInfo()
        self.known = False
        """Cards have been seen or remembered: there is an inventory to publish."""
        self.trouble = "the driver has not been asked yet"
        """Why the driver is not heard at present, or an empty string."""
        self.changed = asyncio.Event()
        self.alarm = asyncio.Event()
        self._still = asyncio.Event()
        """No round is under way."""
        self._still.set()
        self._runner = runner
        self._visits = Visits(runner, deadline_s=settings.driver_deadline_s)
        self._settings = settings
        self._rules = settings.health_rules()
        self._wall_ms = wall_ms
        self._samples: list[Sample] = []
        self._failure: type[DriverError] | None = None
        self._places: Mapping[int, Place] = {}
        self._wired: tuple[tuple[int, CardUuid], ...] = ()
        """The seats and cards whose wiring has been asked for."""
        self._failed_from_s: float | None = None
        self._listener: Listener | None = None

    @property
    def driver_version(self) -> str:
        """As inventories say it."""
        return self.driver.version

    @property
    def hanging(self) -> tuple[str, ...]:
        """Who is left behind in a call that does not come back: `driver`, or a seat."""
        return tuple(map(str, self._visits.hanging))

    async def run(self) -> None:
        """Look for ever. Raises DriverMissing: there is no driver to look at, as configured."""
        ticks = Ticks(self._settings.sample_s)
        if isinstance(self.provider, Warns):
            self._listener = Listener(self.provider, self._warned)
        while True:
            self._still.clear()
            await self._look()
            self._still.set()
            await ticks.next()

    async def settled(self, patience_s: float) -> None:
        """Until the round that is under way, or due at this very moment, has ended; or the time is up."""
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._still.wait()

    async def close(self) -> None:
        """Let go of the driver, if it lets go of us: a session does not end while somebody hangs in it."""
        if self._listener is not None:
            self._listener.stop()
        if self._visits.out:
            log.warning("the driver was not closed", extra={"hanging": self._visits.out})
        else:
            await asyncio.wait({self._runner.start("driver", self.provider.close)}, timeout=CLOSE_S)
        self._runner.stop()

    def take_samples(self) -> list[Sample]:
        """The samples since the last call."""
        taken, self._samples = self._samples, []
        return taken

    def remember(self, last: NodeInventory | None, boot_id: str) -> None:
        """Join what an earlier monitor published to what has been seen since the start."""
        at = self._at()
        held = past.remember(last, boot_id=boot_id, provider=self.provider.name, at=at, rules=self._rules)
        if held.cards:
            self._hold(past.adopt(self.book, held, at, self._rules))

    def repaired(self, card: CardUuid) -> None:
        """An operator says that the card was seen to: a failed one may be believed again, in time."""
        self._hold(health.released(self.book, [card]))

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """One round. What cannot be asked within the period is asked for again at the next one."""
        try:
            seats = await self._visits.ask("driver", self.provider.seats, patience_s=self._settings.sample_s)
            if seats is None:
                return
            seen = await self._visits.round(seats, self.provider.look, patience_s=self._settings.sample_s)
            await self._learn(seen)
        except DriverMissing:
            raise
        except DriverError as error:
            self._missed(error)
            return
        self._heard(seen)
        if seen.waiting and not self.known:
            return  # the first words are of all cards: those that are missing in them would be taken for lost
        self._samples.append(tuple(usage for look in seen.looks.values() for usage in look.usage))
        seen = replace(seen, looks={seat: self._placed(seat, look) for seat, look in seen.looks.items()})
        self._hold(health.observe(self.book, seen, self._at(), self._rules), seen=not seen.waiting)
        await self._reopen()

    async def _learn(self, seen: Round) -> None:
        """Versions, once; the wiring, once for a set of cards, and waited for: groups must not come after the cards."""
        cards = tuple((seat, card.parent or card.uuid) for seat, look in seen.looks.items() for card in look.cards)
        if not self.driver.version:
            self.driver = await self._visits.ask("driver", self.provider.info) or self.driver
        if seen.waiting or set(cards) <= set(self._wired):
            return
        self._wired = cards
        seats = tuple(sorted(seen.looks))
        try:
            self._places = await self._visits.ask("wiring", lambda: self.provider.places(seats)) or {}
        except DriverError as error:
            log.warning("how the cards are wired is not known", extra={"reason": str(error)})
            self._places = {}

    def _placed(self, seat: int, look: Look) -> Look:
        place = self._places.get(seat)
        return look if place is None else replace(look, cards=tuple(_placed(card, place) for card in look.cards))

    async def _reopen(self) -> None:
        failed = any(card.health == "failed" for card in self.book.cards)
        now = _now()
        if not failed or self._failed_from_s is None:
            self._failed_from_s = now if failed else None
        elif now - self._failed_from_s >= REOPEN_AFTER_S and not self._visits.out:
            self._failed_from_s = now
            await self._visits.ask("driver", self.provider.reopen)

    # --- what follows -----------------------------------------------------------------------------------------------

    def _warned(self, signs: tuple[Sign, ...]) -> None:
        """What the driver says by itself is news at once, not at the next look."""
        self._hold(health.warned(self.book, signs, self._at(), self._rules))

    def _heard(self, seen: Round) -> None:
        if self._failure is not None:
            log.info("the driver is heard again", extra={"seats": len(seen.looks)})
        self._failure, self.trouble = None, ""

    def _missed(self, error: DriverError) -> None:
        """The reason is that of the first miss of its kind: one that counts seconds would be news at every look."""
        if type(error) is not self._failure:
            log.error("the driver is not heard", extra={"reason": str(error), "cards": len(self.book.cards)})
            self._failure, self.trouble = type(error), str(error)[:1024]
        book = health.silent(self.book, self.trouble, self._at(), self._rules)
        unloaded = isinstance(error, DriverLost) and error.unloaded
        self.driver = DriverInfo() if unloaded else self.driver
        self._hold(health.released(book) if unloaded else book)

    def _hold(self, book: Book, *, seen: bool = False) -> None:
        before, self.book = self.book, book
        news = book.cards != before.cards or (seen and not self.known)
        self.known = self.known or seen or bool(book.cards)
        if news:
            self.changed.set()
        if [(c.uuid, c.health) for c in book.cards] != [(c.uuid, c.health) for c in before.cards]:
            self.alarm.set()
            _tell(before, book)

    def _at(self) -> At:
        return At(now_ms=round(_now() * 1000), wall_ms=self._wall_ms())


def _placed(card: Card, place: Place) -> Card:
    """Instances of MIG have no NVLink: they cannot reach each other's memory."""
    nvlink_group = None if card.isolation == "mig" else place.nvlink_group
    return replace(card, nvlink_group=nvlink_group, pcie_group=place.pcie_group, numa_node=place.numa_node)


def _tell(before: Book, after: Book) -> None:
    """One line a transition, with its reason."""
    old = {card.uuid: card.health for card in before.cards}
    for card in after.cards:
        if card.health != old.get(card.uuid, "healthy"):
            extra = {"card": card.uuid, "health": card.health, "reason": card.health_reason, "needs": card.health_needs}
            log.warning("a card's health has changed", extra=extra)


def _now() -> float:
    """The event loop's clock, so that it can be virtual."""
    return asyncio.get_running_loop().time()
