"""The cards as one task sees them: looks at the provider once a period and keeps what the others publish.

In: a provider behind a runner. Out: `book` (the cards as we hold them), the samples since they were last taken, and two
events: `changed` when the inventory is another one, `alarm` when a card's health is. A driver that hangs or fails turns
into suspect cards and missing samples; the task itself never waits longer than its deadline.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from contracts.inventory import Card, NodeInventory
from monitor import health
from monitor.cards.protocol import CardProvider, DriverError, DriverMissing
from monitor.cards.runner import Runner
from monitor.health import Book
from monitor.settings import MonitoringSettings
from monitor.ticks import Ticks
from monitor.usage import Sample

log = logging.getLogger(__name__)

CLOSE_S = 0.5
"""A driver that hangs at the end is left behind."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one visit to the driver's thread brings back."""

    cards: tuple[Card, ...]
    sample: Sample
    driver_version: str


class CardWatch:
    """Made inside the event loop. Its attributes are for reading, its events are cleared by who waits for them."""

    def __init__(self, provider: CardProvider, runner: Runner, settings: MonitoringSettings) -> None:
        self.provider = provider
        self.book = Book()
        self.driver_version = ""
        self.known = False
        """Cards have been seen or remembered: there is an inventory to publish."""
        self.trouble = "the driver has not been asked yet"
        """Why the driver is not heard at present, or an empty string."""
        self.changed = asyncio.Event()
        self.alarm = asyncio.Event()
        self._runner = runner
        self._settings = settings
        self._samples: list[Sample] = []
        self._failure: type[DriverError] | None = None

    async def run(self) -> None:
        """Look for ever. Raises DriverMissing: there is no driver to look at, as configured."""
        ticks = Ticks(self._settings.sample_s)
        while True:
            await self._look()
            await ticks.next()

    async def close(self) -> None:
        """Let go of the driver, if it lets go of us."""
        try:
            await self._runner.call(self.provider.close, deadline_s=CLOSE_S)
        except DriverError as error:
            log.warning("the driver was not closed", extra={"reason": str(error)})
        self._runner.stop()

    def take_samples(self) -> list[Sample]:
        """The samples since the last call."""
        taken, self._samples = self._samples, []
        return taken

    def remember(self, last: NodeInventory | None, boot_id: str) -> None:
        """Join what an earlier monitor published to what has been seen since the start."""
        past = health.remember(last, boot_id=boot_id, provider=self.provider.name)
        if past.cards:
            self._hold(health.adopt(self.book, past, now_ms=_now_ms(), hold_ms=self._hold_ms))

    async def _look(self) -> None:
        try:
            look = await self._runner.call(self._visit, deadline_s=self._settings.driver_deadline_s)
        except DriverMissing:
            raise
        except DriverError as error:
            self._missed(error)
            return
        if self._failure is not None:
            log.info("the driver is heard again", extra={"cards": len(look.cards)})
        self._failure, self.trouble, self.driver_version = None, "", look.driver_version
        self._samples.append(look.sample)
        self._hold(health.observe(self.book, look.cards, now_ms=_now_ms(), hold_ms=self._hold_ms), seen=True)

    def _visit(self) -> Look:
        """In the driver's thread."""
        cards, sample = self.provider.inventory(), self.provider.usage()
        return Look(cards=cards, sample=sample, driver_version=self.driver_version or self.provider.driver_version())

    def _missed(self, error: DriverError) -> None:
        """The reason is that of the first miss of its kind: one that counts seconds would be news at every look."""
        if type(error) is not self._failure:
            log.error("the driver is not heard", extra={"reason": str(error), "cards": len(self.book.cards)})
            self._failure, self.trouble = type(error), str(error)[:1024]
        self._hold(health.silent(self.book, self.trouble))

    def _hold(self, book: Book, *, seen: bool = False) -> None:
        before, self.book = self.book, book
        news = book.cards != before.cards or (seen and not self.known)
        self.known = self.known or seen or bool(book.cards)
        if news:
            self.changed.set()
        if [(c.uuid, c.health) for c in book.cards] != [(c.uuid, c.health) for c in before.cards]:
            self.alarm.set()

    @property
    def _hold_ms(self) -> int:
        return round(self._settings.recover_after_s * 1000)


def _now_ms() -> int:
    """Monotonic; the event loop's clock, so that it can be virtual."""
    return round(asyncio.get_running_loop().time() * 1000)
