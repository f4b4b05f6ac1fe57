"""What operators say of this node's cards, as far as a monitor has to know: that a card was seen to.

In: the cordons of this node, from the stream. Out: `CardWatch.repaired`. A cordon itself is between the operator and
the scheduler: the monitor goes on saying how the card is.

The stream keeps the last word on each card, and it is read again after every restart. So a word counts once, and one
that is older than the last inventory of before this life is history: the monitor of that time has heard it. Both stand
in one stream, so that its sequence tells which is older, and no clock.
"""

from __future__ import annotations

import contextlib
import logging

import msgspec

from bus.perusing import peruse
from bus.protocol import Bus, Received
from contracts.inventory import CordonCard
from contracts.subjects import CORDONS
from contracts.units import NodeName, node_token
from monitor.watch import CardWatch

log = logging.getLogger(__name__)


class Orders:
    """The operators' words on the cards of one node."""

    def __init__(self, bus: Bus, watch: CardWatch, node: NodeName) -> None:
        self.heard = 0
        """Sequence of the stream up to which words are history."""
        self._bus = bus
        self._watch = watch
        self._node = node
        self._subject = CORDONS.wildcard.replace("*", node_token(node), 1)

    async def follow(self) -> None:
        """Take every word, for ever. Raises BusError."""
        async with contextlib.aclosing(peruse(self._bus, CORDONS.stream, self._subject)) as batches:
            async for batch in batches:
                for message in batch.messages:
                    self._take(message)

    def _take(self, message: Received) -> None:
        if message.sequence <= self.heard:
            return
        self.heard = message.sequence
        try:
            order = msgspec.json.decode(message.data, type=CordonCard)
        except msgspec.MsgspecError as error:
            log.warning("an operator's word cannot be read", extra={"reason": str(error)})
            return
        if order.repaired and order.node == self._node:
            log.warning("an operator says that a card was seen to", extra={"card": order.card, "reason": order.reason})
            self._watch.repaired(order.card)
