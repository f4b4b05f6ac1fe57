"""From settings to a connection: what every service does first.

A server that is not up yet is waited for, with its reason in the log; a connection that ends for good ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bus.client import NatsBus, connect
from bus.runtime.exits import ExitCode
from bus.runtime.retry import retrying
from bus.runtime.settings import NatsSettings

if TYPE_CHECKING:  # it imports the OpenTelemetry SDK, 150 ms that a command which only needs `options_of` can spare
    from bus.runtime.process import Process

PATIENCE_S = 60.0
"""How long a service waits for its first connection; then it ends, and whoever supervises it starts it again."""


@contextlib.asynccontextmanager
async def connected(settings: NatsSettings, process: Process) -> AsyncIterator[NatsBus]:
    """The bus of a service, for as long as it runs.

    Raises:
        GaveUp: no server could be reached for a minute.
    """
    async with contextlib.AsyncExitStack() as stack:
        options = options_of(settings)

        async def enter() -> NatsBus:
            return await stack.enter_async_context(connect(settings.urls, name=process.instance, **options))

        async with process.until_stop():
            bus = await retrying("connect to NATS", deadline_s=PATIENCE_S)(enter)
        gone = asyncio.Event()
        watching = process.spawn("connection-watch", _tell(bus.closed, gone), may_end=True)
        process.end_when(gone, ExitCode.BUS_CLOSED, lambda: f"the connection to NATS is gone for good: {bus}")
        process.health.ready("nats", lambda: "" if bus.connected else "no answer from NATS")
        renewing = process.spawn("login-renewal", _renew(bus, settings), may_end=True)
        try:
            yield bus
        finally:
            renewing.cancel()
            watching.cancel()  # from here on we close it; the reason to end is another, and must not be covered by this


async def _tell(first: asyncio.Event, then: asyncio.Event) -> None:
    await first.wait()
    then.set()


async def _renew(bus: NatsBus, settings: NatsSettings) -> None:
    """Log in again before the server ends what a token was granted: at its end nats-py closes for good."""
    while settings.token_file:
        await asyncio.sleep(settings.renew_s)
        await bus.log_in_again()


def options_of(settings: NatsSettings) -> dict[str, Any]:
    """The arguments of `bus.client.connect` that settings stand for. Reads the files they name."""
    seed = Path(settings.nkey_seed_file).read_text(encoding="utf-8").strip() if settings.nkey_seed_file else None
    return {
        "connect_timeout_s": settings.connect_timeout_s,
        "token": _token(settings),
        "identity": settings.identity,
        "credentials_file": settings.credentials_file or None,
        "nkey_seed": seed,
        "tls": _tls(settings),
    }


def _token(settings: NatsSettings) -> str | Callable[[], str] | None:
    """A projected token is replaced on disk within its life: it is read at each login."""
    if settings.token_file:
        return lambda: Path(settings.token_file).read_text(encoding="utf-8").strip()
    return settings.token or None


def _tls(settings: NatsSettings) -> ssl.SSLContext | None:
    if not (settings.tls_ca_file or settings.tls_cert_file or any(u.startswith("tls://") for u in settings.urls)):
        return None
    context = ssl.create_default_context(cafile=settings.tls_ca_file or None)
    if settings.tls_cert_file:
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
    return context
