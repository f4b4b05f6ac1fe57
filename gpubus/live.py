"""Watching a cluster: what `gpubus top` and the demo draw, asked for at a steady pace.

In: a client. Out: `View`s for `gpubus.render.top`, with rates between two looks and the use as monitors tell it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator

from contracts.answers import Summary
from gpubus import use
from gpubus.client import Client
from gpubus.hearing import Hearing
from gpubus.local.parts import Parts
from gpubus.render.top import Rates, View


class Watcher:
    """Remembers the last look and the last words of each monitor."""

    def __init__(self, client: Client, parts: Parts | None = None) -> None:
        self._client = client
        self._hearing = Hearing(client.bus)
        self._parts = parts
        self._last: tuple[float, Summary] | None = None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear the monitors while the context is open."""
        async with self._hearing.listening():
            yield

    async def heard(self, timeout_s: float) -> None:
        """Wait until every node's monitor has spoken, or the time is up: a silent one is shown as unknown."""
        if self._parts is not None:
            self._parts.look()  # from here on their CPU is counted
        await self._hearing.heard({node.node for node in await self._client.nodes()}, timeout_s)

    async def look(self) -> View:
        """The state now. Raises NoAnswer."""
        cards = await self._client.cards()
        summary = await self._client.summary()
        pending = [r for r in await self._client.requests() if r.phase == "pending"] if summary.pending else []
        now = time.monotonic()
        rates = rates_between(self._last, (now, summary))
        self._last = (now, summary)
        heard = self._hearing.usage
        busy = {uuid: card.compute_percent for uuid, card in use.cards(heard).items()}
        return View(
            cards=cards,
            summary=summary,
            used={uuid: percent for uuid, percent in busy.items() if percent is not None},
            pending=pending,
            rates=rates,
            requests=use.request_use(heard),
            strangers=use.strangers(heard),
            parts=self._parts.look() if self._parts else (),
        )


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
