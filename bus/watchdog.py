"""Is the connection alive? Round trips judged by counting, since a dead read loop still calls itself connected.

`Pulse` is the decision: what a miss means, and three and six in a row. `watch` is the loop around it. While the
client itself knows that it is not connected and works on it, nothing is counted: a server may be away for an hour.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from bus.nats_client import SafeClient

log = logging.getLogger(__name__)

EVERY_S = 2.0
ANSWER_S = 1.0
RECONNECT_AFTER = 3
CLOSE_AFTER = 6

Step = Literal["nothing", "reconnect", "close"]


class Pulse:
    """Misses in a row, and what to do about them."""

    def __init__(self) -> None:
        self.misses = 0
        self.generation = 0
        """The connection that was looked at last; misses on an old one say nothing about the new."""

    @property
    def alive(self) -> bool:
        """Whether the last round trip succeeded."""
        return self.misses == 0

    def beat(self, *, answered: bool, reading: bool = True) -> Step:
        """Count one round trip. The third miss in a row asks for a new connection, the sixth gives up.

        When the tasks at the socket are dead (`reading` is false) there is nothing to wait for.
        """
        self.misses = 0 if answered and reading else self.misses + 1
        if self.misses >= CLOSE_AFTER:
            return "close"
        return "reconnect" if self.misses == RECONNECT_AFTER or not reading else "nothing"


async def watch(client: SafeClient, pulse: Pulse) -> None:
    """Probe until the client is closed. A process without a live connection must end, not linger."""
    while not client.is_closed:
        await asyncio.sleep(EVERY_S)
        if client.is_reconnecting and not client.reconnect_stuck:
            continue
        if pulse.generation != client.generation:
            pulse.misses, pulse.generation = 0, client.generation
        reading = client.reading
        step = pulse.beat(answered=reading and await client.echo(ANSWER_S), reading=reading)
        if pulse.misses:
            client.counts["echo-missed"] += 1
            log.warning("no round trip (%d in a row), tasks at the socket alive: %s", pulse.misses, reading)
        if step == "reconnect":
            await client.force_reconnect()
        elif step == "close":
            await client.close()
