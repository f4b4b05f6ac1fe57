"""Opening and closing a connection, each within its deadline.

nats-py with unlimited reconnects tries its first connect for ever and may return without a login; closing waits for
a peer that may be frozen. Here both end in time: connected, or BusUnavailable with the last reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from bus.nats_client import SafeClient
from bus.protocol import BusUnavailable

log = logging.getLogger(__name__)

PING_EVERY_S = 1.0
"""Two unanswered pings and a half: a frozen or black-holed server is noticed after 3 s."""

LAST_WORDS_S = 0.5
"""How long closing waits for the server to have taken what was sent."""


async def open_client(client: SafeClient, closed: asyncio.Event, *, timeout_s: float, options: dict[str, Any]) -> None:
    """Connect. `closed` is set when the connection ends for good. Raises BusUnavailable."""
    connecting = asyncio.create_task(
        client.connect(
            error_cb=client.on_error,
            reconnected_cb=client.on_reconnected,
            closed_cb=_guarded(closed.set),
            connect_timeout=1,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0,  # SafeClient waits between tries
            ping_interval=PING_EVERY_S,  # type: ignore[arg-type]  # annotated int, used as seconds for sleep
            max_outstanding_pings=2,
            pending_size=1024 * 1024,
            flush_timeout=1.0,
            **options,
        ),
        name=f"connect {options['name']}",
    )
    try:
        await asyncio.wait({connecting}, timeout=timeout_s)
    except BaseException:
        await _abandon(client, connecting)
        raise
    if connecting.done() and not connecting.cancelled() and connecting.exception() is not None:
        client.troubles.append(str(connecting.exception()))
    if not client.is_connected:
        await _abandon(client, connecting)
        reason = "; ".join(client.troubles) or client.last_error or "no answer"
        raise BusUnavailable(f"not connected within {timeout_s:g} s: {reason}")


async def shut_client(client: SafeClient) -> None:
    """Let the last frames out if the server reads, then close without waiting for anybody."""
    if client.is_connected and client.reading:
        await client.echo(LAST_WORDS_S)
    await client.close()


async def _abandon(client: SafeClient, connecting: asyncio.Task[None]) -> None:
    """End an attempt that may swallow its cancellation."""
    client.options["allow_reconnect"] = False
    while not connecting.done():
        connecting.cancel()
        await asyncio.wait({connecting}, timeout=0.2)
    await shut_client(client)


def _guarded(callback: Callable[[], Any]) -> Callable[[], Awaitable[None]]:
    """A nats-py callback that runs `callback` and never raises."""

    async def run() -> None:
        try:
            callback()
        except Exception:
            log.exception("a connection callback failed")

    return run
