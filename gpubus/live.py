"""Watching a cluster: what `gpubus top` and the demo draw, asked for at a steady pace.

In: a client. Out: `View`s for `gpubus.render.top`, with rates between two looks and the use as monitors tell it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import msgspec

from bus.protocol import Received
from contracts import subjects
from contracts.answers import Summary
from contracts.usage import NodeUsage
from gpubus.client import Client
from gpubus.render.top import Rates, View


class Watcher:
    """Remembers the last look and the last words of each monitor."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._used: dict[str, int] = {}
        self._spoke: set[str] = set()
        self._news = asyncio.Event()
        self._last: tuple[float, Summary] | None = None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear the monitors while the context is open."""
        async with self._client.bus.subscribe(subjects.USAGE.wildcard, self._hear):
            yield

    async def heard(self, timeout_s: float) -> None:
        """Wait until every node's monitor has spoken, or the time is up: a silent one is shown as unknown."""
        nodes = {node.node for node in await self._client.nodes()}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not nodes <= self._spoke:
                    self._news.clear()
                    await self._news.wait()

    async def look(self) -> View:
        """The state now. Raises NoAnswer."""
        cards = await self._client.cards()
        summary = await self._client.summary()
        pending = [r for r in await self._client.requests() if r.phase == "pending"] if summary.pending else []
        now = time.monotonic()
        rates = rates_between(self._last, (now, summary))
        self._last = (now, summary)
        return View(cards=cards, summary=summary, used=dict(self._used), pending=pending, rates=rates)

    async def _hear(self, message: Received) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            usage = msgspec.json.decode(message.data, type=NodeUsage)
            self._spoke.add(usage.node)
            self._news.set()
            for card in usage.cards:
                if card.compute_percent is None:
                    self._used.pop(card.uuid, None)
                else:
                    self._used[card.uuid] = card.compute_percent


def rates_between(before: tuple[float, Summary] | None, after: tuple[float, Summary]) -> Rates:
    """Per second between two looks; a request counts as placed when it left the queue and was not withdrawn."""
    if before is None or after[0] <= before[0]:
        return Rates()
    seconds = after[0] - before[0]
    old, new = before[1], after[1]
    return Rates(
        accepted=max(0, new.accepted - old.accepted) / seconds,
        placed=max(0, (new.placed + new.ended) - (old.placed + old.ended)) / seconds,
        ended=max(0, new.ended - old.ended) / seconds,
    )
