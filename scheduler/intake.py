"""Where inputs come from while this scheduler is the active one: streams, heartbeats, callers.

Requests are read from the committed position on; facts and outcomes from the beginning, because each stream keeps only
the last of its subject and to see one twice changes nothing. What cannot be decoded is a dead letter and is passed by.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import msgspec

from bus.codec import Malformed, decode
from bus.deadletter import keep
from bus.protocol import Bus, Received
from bus.runtime.retry import retrying
from contracts import subjects
from contracts.inventory import CordonCard, Heartbeat, NodeFacts, NodeInventory
from contracts.messages import Message, encode
from contracts.outcomes import Outcome
from contracts.quotas import NamespaceQuota
from contracts.subjects import Channel
from contracts.units import CardUuid, NodeName, card_token, node_token
from scheduler.core.freshness import Freshness
from scheduler.inbox import Fact, FromCaller, FromStream, Inbox
from scheduler.replies import submit_reply

SWEEP_S = 0.25
BURY_DEADLINE_S = 60.0

_log = logging.getLogger(__name__)
_heartbeats = msgspec.json.Decoder(Heartbeat)
_BEFORE, _BEHIND = subjects.HEARTBEATS.wildcard.split("*")
"""Of a heartbeat's subject. Compared and not parsed: five thousand nodes send as many a second."""


class Intake:
    """Feeds one inbox during one term."""

    def __init__(self, bus: Bus, inbox: Inbox, freshness: Freshness) -> None:
        self.bus = bus
        self.inbox = inbox
        self.freshness = freshness
        self._orders: dict[NodeName, dict[CardUuid, CordonCard]] = {}
        """The last word of operators on each card, by node, in this term."""
        self._aside: dict[NodeName, NodeInventory] = {}
        """Inventories of monitors that are no more, as it seems; they count when those are heard again."""

    # --- streams ---------------------------------------------------------------------------------------------------

    async def requests(self, after: int) -> None:
        """Everything published to the requests subject behind the committed position."""
        reading = self.bus.read(subjects.REQUESTS.stream, from_sequence=after + 1)
        async with contextlib.aclosing(reading) as batches:
            async for batch in batches:
                for message in batch.messages:
                    self._request(message)
                await self.inbox.room()

    def _request(self, message: Received) -> None:
        where = subjects.REQUESTS.parse(message.subject)
        namespace = where["namespace"] if where else ""
        self.inbox.put(FromStream(namespace=namespace, message=message))

    async def facts(self) -> None:
        """Inventory, node facts, cordons and quotas."""
        channels = (subjects.INVENTORY, subjects.NODE_FACTS, subjects.CORDONS, subjects.NAMESPACE_QUOTAS)
        async for message in self._messages(subjects.INVENTORY.stream):
            for channel in channels:
                if channel.parse(message.subject) is not None:
                    await self._fact(channel, message)

    async def outcomes(self) -> None:
        """What the reconciler saw."""
        async for message in self._messages(subjects.OUTCOMES.stream):
            await self._fact(subjects.OUTCOMES, message)

    async def _messages(self, stream: str) -> AsyncIterator[Received]:
        async with contextlib.aclosing(self.bus.read(stream)) as batches:
            async for batch in batches:
                for message in batch.messages:
                    yield message
                await self.inbox.room()

    async def _fact(self, channel: Channel, message: Received) -> None:
        seen = decode(channel, message)
        if not isinstance(seen, Malformed) and (fault := _of_another(channel, message, seen)):
            seen = Malformed(reason=fault)
        if isinstance(seen, Malformed):
            await retrying("store a dead letter", deadline_s=BURY_DEADLINE_S)(
                keep, self.bus, stream=channel.stream, received=message, reason=str(seen)
            )
        elif isinstance(seen, NodeInventory):
            self._inventory(seen)
        elif isinstance(seen, CordonCard):
            self._orders.setdefault(seen.node, {})[seen.card] = seen
            self.inbox.put(Fact(seen=seen))
        elif isinstance(seen, Outcome | NodeFacts | NamespaceQuota):
            self.inbox.put(Fact(seen=seen))

    def _inventory(self, seen: NodeInventory) -> None:
        """Cards, and at once behind them what operators say of these: an order may have come before its node did.

        The word of a monitor whose successor is heard is left aside: it lay in the stream, or somebody repeats it.
        """
        if self.freshness.former(seen.node, seen.incarnation):
            _log.warning("an inventory of a monitor that is no more", extra={"node": seen.node, "by": seen.incarnation})
            self._aside[seen.node] = seen
            return
        self._aside.pop(seen.node, None)
        self.inbox.put(Fact(seen=seen))
        for order in self._orders.get(seen.node, {}).values():
            self.inbox.put(Fact(seen=order))

    # --- life signs ------------------------------------------------------------------------------------------------

    async def heartbeats(self) -> None:
        """Heartbeats in; a sweep four times a second says who fell silent. Never judges while the bus is away."""
        async with self.bus.subscribe(subjects.HEARTBEATS.wildcard, self._heartbeat):
            while True:
                await asyncio.sleep(SWEEP_S)
                if self.bus.connected:
                    for change in self.freshness.sweep(asyncio.get_running_loop().time()):
                        self.inbox.put(Fact(seen=change))

    async def _heartbeat(self, message: Received) -> None:
        try:
            beat = _heartbeats.decode(message.data)
        except msgspec.MsgspecError as error:
            _log.warning("unreadable heartbeat", extra={"subject": message.subject, "reason": str(error)})
            return
        if message.subject != f"{_BEFORE}{node_token(beat.node)}{_BEHIND}":
            _log.warning("heartbeat of another node", extra={"subject": message.subject, "node": beat.node})
            return
        change = self.freshness.beat(beat, asyncio.get_running_loop().time())
        if change is not None:
            self.inbox.put(Fact(seen=change))
        aside = self._aside.get(beat.node)
        if aside is not None and aside.incarnation == beat.incarnation:
            self._inventory(aside)

    # --- callers ---------------------------------------------------------------------------------------------------

    async def submit(self, message: Received) -> bytes:
        """A submit: answered when the commit that accepts it is stored."""
        where = subjects.SUBMIT.parse(message.subject)
        if where is None or self.inbox.full:
            return encode(submit_reply(busy=len(self.inbox)))
        answer = asyncio.get_running_loop().create_future()
        self.inbox.put(FromCaller(namespace=where["namespace"], message=message, answer=answer))
        return encode(submit_reply(await answer))


def _of_another(channel: Channel, message: Received, seen: Message) -> str:
    """Why a message does not belong on its subject, or an empty string.

    Rights are given by subject: whoever may speak for one node must not be able to speak of another in the payload.
    """
    where = channel.parse(message.subject) or {}
    if isinstance(seen, Outcome):
        said = {"namespace": seen.namespace, "name": seen.name}
    elif isinstance(seen, NamespaceQuota):
        said = {"namespace": seen.namespace}
    elif isinstance(seen, CordonCard):
        said = {"node": node_token(seen.node), "card": card_token(seen.card)}
    elif isinstance(seen, NodeInventory | NodeFacts):
        said = {"node": node_token(seen.node)}
    else:
        return ""
    return "" if where == said else f"the payload speaks of {said}, the subject of {where}"
