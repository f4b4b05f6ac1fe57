"""What the nodes have prepared and enforce, as their monitors last said it.

In: the enforcement reports of the facts stream. Out: the newest of each node, and the nodes whose report changed, so
that pods which wait for one are looked at again. A report that cannot be read counts as none: pods then wait.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import msgspec

from bus.protocol import Bus, BusError, Received
from bus.runtime.retry import GaveUp, retrying
from contracts.shares import NodeEnforcement
from contracts.subjects import ENFORCEMENT

TRY_S = 30.0

_log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(NodeEnforcement).decode


class Readiness:
    """Follows the reports. `news` is called with a node's name after each of its reports."""

    def __init__(self, bus: Bus, news: Callable[[str], None]) -> None:
        self._bus = bus
        self._news = news
        self._reports: dict[str, NodeEnforcement] = {}

    def of(self, node: str) -> NodeEnforcement | None:
        """The newest report; None = the node has said nothing that could be read."""
        return self._reports.get(node)

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                await retrying("read the enforcement reports", on=BusError, deadline_s=TRY_S)(self._read)
            except GaveUp as error:
                _log.error("still trying", extra={"reason": str(error)})

    async def _read(self) -> None:
        batches = self._bus.read(ENFORCEMENT.stream, subject=ENFORCEMENT.wildcard)
        async with contextlib.aclosing(batches):
            async for batch in batches:
                for message in batch.messages:
                    self._take(message)

    def _take(self, message: Received) -> None:
        try:
            report = _decode(message.data)
        except msgspec.MsgspecError as error:
            _log.warning("%s cannot be read", message.subject, extra={"reason": str(error)})
            return
        self._reports[report.node] = report
        self._news(report.node)
