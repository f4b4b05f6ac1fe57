"""Following requests through their events until each is as far as wanted, or never will be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from contracts.outcomes import RequestEvent
from gpubus.client import Client
from gpubus.waiting import Goal, reached


class Followed:
    """One request that somebody waits for: known by its uid, or (when it was only stored) by its sequence."""

    def __init__(self, name: str, *, uid: str = "", request_sequence: int = 0) -> None:
        self.name = name
        self.uid = uid
        self.request_sequence = request_sequence
        self.last: RequestEvent | None = None
        self.verdict: bool | None = None

    def takes(self, event: RequestEvent) -> bool:
        """Whether the event is about this request; a fired one learns its uid from its first event."""
        if event.name != self.name:
            return False
        if not self.uid and event.request_sequence == self.request_sequence:
            self.uid = event.uid
            return True
        return bool(self.uid) and event.uid == self.uid


async def follow(
    client: Client,
    namespace: str,
    followed: list[Followed],
    *,
    goal: Goal,
    from_sequence: int,
    timeout_s: float | None,
    told: Callable[[RequestEvent], None],
) -> bool:
    """Whether all of them came as far as `goal` within `timeout_s`; `told` sees each of their events."""
    waiting = {f.name: f for f in followed}
    name = next(iter(waiting)) if len(waiting) == 1 else ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            async with contextlib.aclosing(client.events(namespace, name, from_sequence=from_sequence)) as events:
                async for event in events:
                    one = waiting.get(event.name)
                    if one is None or not one.takes(event):
                        continue
                    told(event)
                    one.last, one.verdict = event, reached(goal, event)
                    if all(f.verdict is not None for f in followed):
                        break
    return all(f.verdict for f in followed)
