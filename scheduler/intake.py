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
from contracts.subjects import Channel
from contracts.units import node_token
from scheduler.core.freshness import Freshness
from scheduler.inbox import Fact, FromCaller, FromStream, Inbox
from scheduler.replies import submit_reply

SWEEP_S = 0.25
BURY_DEADLINE_S = 60.0

_log = logging.getLogger(__name__)
_heartbeats = msgspec.json.Decoder(Heartbeat)


class Intake:
    """Feeds one inbox during one term."""

    def __init__(self, bus: Bus, inbox: Inbox, freshness: Freshness) -> None:
        self.bus = bus
        self.inbox = inbox
        self.freshness = freshness

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
        """Inventory, node facts and cordons."""
        channels = (subjects.INVENTORY, subjects.NODE_FACTS, subjects.CORDONS)
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
        elif isinstance(seen, Outcome | NodeInventory | NodeFacts | CordonCard):
            self.inbox.put(Fact(seen=seen))

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
        where = subjects.HEARTBEATS.parse(message.subject)
        if where is None or where["node"] != node_token(beat.node):
            _log.warning("heartbeat of another node", extra={"subject": message.subject, "node": beat.node})
            return
        change = self.freshness.beat(beat, asyncio.get_running_loop().time())
        if change is not None:
            self.inbox.put(Fact(seen=change))

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
    elif isinstance(seen, CordonCard):
        said = {"node": node_token(seen.node), "card": seen.card}
    elif isinstance(seen, NodeInventory | NodeFacts):
        said = {"node": node_token(seen.node)}
    else:
        return ""
    return "" if where == said else f"the payload speaks of {said}, the subject of {where}"
