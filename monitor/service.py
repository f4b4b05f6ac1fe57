"""The monitor: says over the bus what `CardWatch` holds, at a steady pace and at once when it is news.

In: a bus, the watched cards, the host's /proc, the settings. Out, in tasks that do not wait for each other:

    heartbeats   core, every `heartbeat_s`, and at once when a card's health changes; also while the driver hangs
    usage        core, every `usage_s`; what is not known is absent
    inventory    stored, at start and on every change, until the stream has it; the newest wins
    verify       looks now and then whether the stream still has it
    shares       reads what is sold on this node, and to whom
    orders       reads what operators say of its cards

Nothing here tells freshness by a wall clock: receivers go by their own clocks, by `sequence` within an `incarnation`.
A publish that fails is dropped, the next one is newer; only inventories are tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from bus.perusing import peruse
from bus.protocol import Bus, BusError
from bus.runtime.retry import GaveUp, retrying
from contracts.inventory import NodeInventory
from contracts.messages import encode
from contracts.outcomes import NodeShares
from contracts.subjects import INVENTORY, SHARES
from monitor import report, unmanaged
from monitor.cards.protocol import TakesShares
from monitor.cards.runner import Runner
from monitor.enforce.modes import with_modes
from monitor.measuring import Measuring, of_shares
from monitor.orders import Orders
from monitor.report import Identity
from monitor.settings import MonitoringSettings
from monitor.ticks import Ticks
from monitor.watch import CardWatch

log = logging.getLogger(__name__)

TRY_S = 30.0
"""After so long of trying one thing in vain it is said as an error, and tried on."""


SAMPLE_WAIT_S = 0.1
"""For so long a usage message waits for the look at the cards that began with its period: what it says is then some
milliseconds old, and not half a second. A driver that hangs keeps it no longer."""


class Monitor:
    """One life of one node's monitor; made inside the event loop."""

    def __init__(
        self,
        bus: Bus,
        watch: CardWatch,
        who: Identity,
        settings: MonitoringSettings,
        *,
        runner: Runner | None = None,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        """`beside` runs along, and ends with it."""
        self.stored: NodeInventory | None = None
        """The last inventory that the stream has acknowledged."""
        self._bus = bus
        self._watch = watch
        self._who = who
        self._settings = settings
        self._beside = beside
        self._subjects = report.subjects_of(who.node)
        self._heard = True
        self._told = 0
        """Inventories made so far: their sequence."""
        self._begun = asyncio.Event()
        self._orders = Orders(bus, watch, who.node)
        self.measuring = Measuring(who, settings, runner)
        """What is used, and by whom; its last word is there for metrics."""

    async def run(self, stop: asyncio.Event) -> None:
        """Publish until `stop` is set. Raises (in a group) DriverMissing: there is nothing to watch, as configured."""
        works = [self._watch.run, self._heartbeats, self._usage, self._inventories, self._verify, self._shares]
        works.append(self._follow_orders)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(), name=f"monitor {work.__name__.strip('_')}") for work in works]
                tasks += [group.create_task(work(), name="monitor beside") for work in self._beside]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await self._watch.close()

    # --- may be lost ------------------------------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        clock = asyncio.get_running_loop().time
        began, sequence = clock(), 0
        ticks = Ticks(self._settings.heartbeat_s, self._watch.alarm)
        while True:
            sequence += 1
            uptime_ms = round((clock() - began) * 1000)
            beat = report.heartbeat(self._who, self._watch.book, sequence=sequence, uptime_ms=uptime_ms)
            await self._say(self._subjects.heartbeat, beat)
            await ticks.next()

    async def _usage(self) -> None:
        ticks, measuring = Ticks(self._settings.usage_s), self.measuring
        await measuring.start()
        while True:
            await ticks.next()
            await self._watch.settled(min(SAMPLE_WAIT_S, self._settings.sample_s))
            message = await measuring.period(self._watch.book.cards, self._watch.take_samples(), self._watch.provider)
            if measuring.strangers(message):
                self._watch.changed.set()
            await self._say(self._subjects.usage, message)

    async def _say(self, subject: str, message: msgspec.Struct) -> None:
        """Publish and forget; an outage is logged when it begins and when it ends."""
        try:
            await self._bus.publish(subject, encode(message))
        except BusError as error:
            if self._heard:
                log.warning("the bus does not take our messages", extra={"reason": str(error)})
            self._heard = False
            return
        if not self._heard:
            log.info("the bus takes our messages again")
        self._heard = True

    # --- must arrive ------------------------------------------------------------------------------------------------

    async def _inventories(self) -> None:
        """First learn what an earlier monitor of this boot has published, then keep the stream up to date."""
        await _persist("read the last inventory", self._remember)
        while True:
            await self._watch.changed.wait()
            await _persist("store the inventory", self._store)

    async def _remember(self) -> None:
        last, self._orders.heard = await self._last_inventory()
        self._watch.remember(last, self._who.boot_id)
        self._begun.set()
        if last is not None and last.boot_id == self._who.boot_id:
            self.measuring.remember(last.cards)

    async def _store(self) -> None:
        """Each try takes the newest inventory; a change during the try makes another one."""
        self._watch.changed.clear()
        self._told += 1
        inventory = self._inventory()
        await self._bus.store(self._subjects.inventory, encode(inventory), stream=INVENTORY.stream)
        self.stored = inventory
        log.info("inventory stored", extra={"cards": len(inventory.cards), "unhealthy": self._watch.book.unhealthy})

    async def _verify(self) -> None:
        """A bus that lost its disk has lost our inventory, and an old monitor of this node may have spoken last."""
        ticks = Ticks(self._settings.verify_s)
        while True:
            await ticks.next()
            with contextlib.suppress(BusError):  # the next look is soon enough
                found, _ = await self._last_inventory()
                if self.stored is not None and not self._ours(found):
                    speaker = found.incarnation if found else "nobody"
                    log.warning("the stream does not hold our inventory", extra={"last_spoke": speaker})
                    self._watch.changed.set()

    def _ours(self, found: NodeInventory | None) -> bool:
        """Whether the stream's last word is ours, and no copy of an older one."""
        held = self.stored
        if found is None or held is None or found.incarnation != self._who.incarnation:
            return False
        return found.sequence >= held.sequence

    async def _last_inventory(self) -> tuple[NodeInventory | None, int]:
        """The stream's last word on this node, and its sequence; nothing when there is none or it cannot be read."""
        last = await self._bus.last(INVENTORY.stream, self._subjects.inventory)
        if last is None:
            return None, 0
        try:
            return msgspec.json.decode(last.data, type=NodeInventory), last.sequence
        except msgspec.MsgspecError as error:
            log.warning("the last inventory cannot be read", extra={"reason": str(error)})
            return None, last.sequence

    def _inventory(self) -> NodeInventory:
        watch, chosen = self._watch, self._settings.enforce
        found = report.inventory(
            self._who, watch.book, driver_version=watch.driver_version, provider=watch.provider.name
        )
        return msgspec.structs.replace(
            found,
            sequence=self._told,
            cuda_version=watch.driver.cuda,
            cards=with_modes(unmanaged.overlaid(found.cards, self.measuring.unmanaged), chosen.mode, chosen.cards),
        )

    # --- what operators say -----------------------------------------------------------------------------------------

    async def _follow_orders(self) -> None:
        """After the past is known: what is older than that has been heard."""
        await self._begun.wait()
        while True:
            await _persist("read what operators say", self._orders.follow)

    # --- what is sold here ------------------------------------------------------------------------------------------

    async def _shares(self) -> None:
        """Whose pods these are, for who measures; and for simulated cards, what they behave by."""
        while True:
            await _persist("read the shares", self._follow_shares)

    async def _follow_shares(self) -> None:
        batches = peruse(self._bus, SHARES.stream, self._subjects.shares)
        newest: NodeShares | None = None
        async with contextlib.aclosing(batches):
            async for batch in batches:
                for message in batch.messages:
                    newest = self._take_shares(message.data, newest)
                if newest is not None or batch.caught_up:
                    self.measuring.told = of_shares(newest)

    def _take_shares(self, data: bytes, newest: NodeShares | None) -> NodeShares | None:
        """A snapshot of the same epoch that is older than the newest is refused; garbage is logged and skipped."""
        try:
            shares = msgspec.json.decode(data, type=NodeShares)
        except msgspec.MsgspecError as error:
            log.warning("a shares message cannot be read", extra={"reason": str(error)})
            return newest
        if newest and shares.epoch == newest.epoch and shares.ledger_sequence < newest.ledger_sequence:
            return newest
        if isinstance(self._watch.provider, TakesShares):
            self._watch.provider.assign(shares)
        return shares


async def _persist(what: str, step: Callable[[], Awaitable[None]]) -> None:
    """Try until it works, and say so loudly now and then."""
    while True:
        try:
            return await retrying(what, on=BusError, deadline_s=TRY_S)(step)
        except GaveUp as error:
            log.error("still trying", extra={"reason": str(error)})  # noqa: TRY400 - the reason is the whole story
