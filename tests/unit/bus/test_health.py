"""Health over real HTTP: what each path answers, and how a check that fails or raises is told."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp
import pytest

from bus.runtime import telemetry
from bus.runtime.health import Health, serving
from bus.runtime.looplag import LoopLag
from bus.runtime.settings import TelemetrySettings


async def get(port: int, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, response.content_type, await response.text()


async def ask(health: Health, path: str) -> tuple[int, dict]:
    async with serving(health, lambda: b"", "127.0.0.1", 0) as port:
        status, kind, text = await get(port, path)
    assert kind == "application/json"
    return status, json.loads(text)


async def test_all_is_well():
    """Without a failing check both answer 200; every check is listed."""
    health = Health()
    health.live("watchdog", lambda: "")
    health.ready("bus", lambda: "")

    assert await ask(health, "/healthz") == (200, {"ok": True, "checks": {"watchdog": {"ok": True, "reason": ""}}})
    status, report = await ask(health, "/readyz")
    assert status == 200
    assert {"watchdog", "bus"} == report["checks"].keys()


async def test_not_ready_is_not_dead():
    """A service that is catching up answers 503 on /readyz with the reason, and 200 on /healthz."""
    health = Health()
    reason = ["at 7 of 9"]
    health.ready("ledger", lambda: reason[0])

    assert await ask(health, "/readyz") == (
        503,
        {"ok": False, "checks": {"ledger": {"ok": False, "reason": "at 7 of 9"}}},
    )
    assert (await ask(health, "/healthz"))[0] == 200

    reason[0] = ""
    assert (await ask(health, "/readyz"))[0] == 200


async def test_dead_is_not_ready():
    """A failing liveness check fails both."""
    health = Health()
    health.live("watchdog", lambda: "no answer for 12 s")

    assert (await ask(health, "/healthz"))[0] == 503
    assert (await ask(health, "/readyz"))[0] == 503


async def test_a_check_that_raises_is_a_failed_check():
    """The probe is answered, with the error as the reason."""
    health = Health()
    health.live("odd", lambda: 1 / 0)

    status, report = await ask(health, "/healthz")

    assert status == 503
    assert report["checks"]["odd"]["reason"] == "the check itself failed: ZeroDivisionError: division by zero"


def test_a_name_is_used_once():
    """Two checks of one name would hide one another."""
    health = Health()
    health.ready("bus", lambda: "")

    with pytest.raises(ValueError, match="'bus' already"):
        health.ready("bus", lambda: "")


async def test_metrics_are_prometheus_text():
    """Instruments of the meter appear with unit and suffix, without labels nobody asked for."""
    tele = telemetry.start(TelemetrySettings(), "scheduler", "i")
    tele.meter.create_counter("gpubus.decisions", unit="1", description="made").add(3, {"outcome": "placed"})
    async with serving(Health(), tele.metrics_text, "127.0.0.1", 0) as port:
        status, kind, text = await get(port, "/metrics")
    tele.shutdown()

    assert (status, kind) == (200, "text/plain")
    assert 'gpubus_decisions_total{outcome="placed"} 3.0' in text.splitlines()


async def test_other_paths_and_methods_are_refused():
    """There is nothing else on this port."""
    async with serving(Health(), lambda: b"", "127.0.0.1", 0) as port:
        assert (await get(port, "/"))[0] == 404
        async with aiohttp.ClientSession() as session, session.post(f"http://127.0.0.1:{port}/healthz") as response:
            assert response.status == 405


async def test_closing_does_not_wait_for_idle_connections():
    """A kubelet keeps its connection open; the end of the process must not wait for it."""
    async with aiohttp.ClientSession() as session:
        async with serving(Health(), lambda: b"", "127.0.0.1", 0) as port:
            async with session.get(f"http://127.0.0.1:{port}/healthz") as response:
                await response.read()
            began = time.monotonic()
        assert time.monotonic() - began < 10.0  # the default of aiohttp is a minute


# --- the lag of the event loop ---------------------------------------------------------------------------------------


@pytest.fixture
async def lag():
    """Being watched, with a short period."""
    lag = LoopLag(period_s=0.01)
    task = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)
    yield lag
    task.cancel()


async def test_a_free_loop_is_not_late(lag):
    """After some periods the check is quiet."""
    await asyncio.sleep(0.05)

    assert lag.check(0.2) == ""


async def test_a_blocked_loop_is_late_and_recovers(lag):
    """Blocking for 0.3 s shows at once, also before the measurement itself has run; after a good period it is over."""
    time.sleep(0.3)  # noqa: ASYNC251 - this is what is measured

    assert 0.25 < lag.now_s() < 3.0
    assert "the limit is 0.2 s" in lag.check(0.2)
    await asyncio.sleep(0.1)
    assert lag.check(0.2) == ""


async def test_the_gauge_keeps_the_worst_until_it_is_scraped(lag):
    """A spike between two scrapes is not lost, and is not told twice."""
    tele = telemetry.start(TelemetrySettings(), "scheduler", "i")
    lag.export(tele.meter)
    time.sleep(0.3)  # noqa: ASYNC251 - this is what is measured
    await asyncio.sleep(0.1)

    def scrape() -> float:
        (line,) = (line for line in tele.metrics_text().decode().splitlines() if line.startswith("gpubus_loop_lag_s"))
        return float(line.split()[-1])

    assert scrape() > 0.25
    assert scrape() < 0.25
    tele.shutdown()


def test_before_the_first_measurement_there_is_no_lag():
    """A process that has just begun is alive."""
    assert LoopLag().check(0.0) == ""
