"""Is this process alive, is it ready, and what are its numbers: /healthz, /readyz and /metrics over HTTP.

What flows in: named checks, small functions that return why something is wrong, or an empty string.
What flows out: 200 or 503 with every check and its reason as JSON, and the metrics as Prometheus text.
/healthz says "restart me": the event loop is late, the watchdog gave up. /readyz says "not now": catching up, bus away.
Readiness is never used for correctness.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
from aiohttp import web

Check = Callable[[], str]
"""Why it is not so, or an empty string. Called on each probe: it must not block."""

CONTENT_TYPE_METRICS = "text/plain; version=0.0.4; charset=utf-8"
CLOSE_S = 0.2


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One check as it came out."""

    ok: bool
    reason: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of one kind; `ok` when each is."""

    ok: bool
    checks: dict[str, Condition]


class Health:
    """The checks of one process. Services add theirs by name; a name is used once."""

    def __init__(self) -> None:
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}

    def live(self, name: str, check: Check) -> None:
        """Add to /healthz: while it fails, somebody should restart this process."""
        _add(self._live, name, check)

    def ready(self, name: str, check: Check) -> None:
        """Add to /readyz: while it fails, this process should not be sent work."""
        _add(self._ready, name, check)

    def liveness(self) -> Report:
        """The answer of /healthz."""
        return _report(self._live)

    def readiness(self) -> Report:
        """The answer of /readyz; what is not alive is not ready."""
        return _report({**self._live, **self._ready})


def _add(checks: dict[str, Check], name: str, check: Check) -> None:
    if name in checks:
        raise ValueError(f"there is a check called {name!r} already")
    checks[name] = check


def _report(checks: Mapping[str, Check]) -> Report:
    found = {name: _run(check) for name, check in checks.items()}
    return Report(ok=all(c.ok for c in found.values()), checks=found)


def _run(check: Check) -> Condition:
    try:
        reason = check()
    except Exception as error:  # noqa: BLE001 - a check that raises is a failed check, not a failed probe
        reason = f"the check itself failed: {type(error).__name__}: {error}"
    return Condition(ok=not reason, reason=reason)


# --- over HTTP -------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(health: Health, metrics: Callable[[], bytes], host: str, port: int) -> AsyncIterator[int]:
    """Serve while the context is open; yields the port (of the system's choice when `port` is 0)."""
    runner = web.AppRunner(_app(health, metrics), access_log=None, handle_signals=False, shutdown_timeout=CLOSE_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _app(health: Health, metrics: Callable[[], bytes]) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return _response(health.liveness())

    async def readyz(_: web.Request) -> web.Response:
        return _response(health.readiness())

    async def metrics_text(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE_METRICS})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics_text)])
    return app


def _response(report: Report) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(report), status=200 if report.ok else 503, content_type="application/json"
    )
