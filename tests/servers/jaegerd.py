"""A real Jaeger: OTLP over HTTP in, the query API out, traces in memory.

async with Jaeger() as jaeger:
...                                       # export to jaeger.otlp_url
trace = await jaeger.wait_for_trace(trace_id, spans=7)
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.servers.binaries import program
from tests.servers.http import call
from tests.servers.ports import reserve_port
from tests.servers.process import Opened, ServerProcess, wait_until

__all__ = ["Jaeger"]

# Only what is used listens, and only there; the batch processor would add 200 ms to each look-up.
_CONFIG = """\
service:
  extensions: [jaeger_storage, jaeger_query, healthcheckv2]
  pipelines:
    traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry:
    metrics: {{level: none}}
    logs: {{level: warn}}
extensions:
  jaeger_storage: {{backends: {{memory: {{memory: {{max_traces: 100000}}}}}}}}
  jaeger_query:
    storage: {{traces: memory}}
    http: {{endpoint: "{host}:{query}"}}
    grpc: {{endpoint: "{host}:{query_grpc}"}}
  healthcheckv2:
    use_v2: true
    http: {{endpoint: "{host}:{health}"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: "{host}:{otlp}"}}}}}}
exporters:
  jaeger_storage_exporter: {{trace_storage: memory}}
"""

_PORTS = ("otlp", "query", "query_grpc", "health")


class Jaeger(Opened):
    """One Jaeger on free ports of an address of this machine; its traces end with it."""

    def __init__(self, *, host: str = "127.0.0.1") -> None:
        self._host = host
        self._temporary = tempfile.TemporaryDirectory(prefix="gpubus-jaeger-")
        self.folder = Path(self._temporary.name)
        self._ports = {name: reserve_port() for name in _PORTS}
        config = self.folder / "jaeger.yaml"
        numbers = {name: port.number for name, port in self._ports.items()}
        config.write_text(_CONFIG.format(host=host, **numbers), encoding="utf-8")
        command: list[str | Path] = [program("jaeger"), "--config", config]
        self.process = ServerProcess("jaeger", command, self.folder / "jaeger.log")

    @property
    def otlp_url(self) -> str:
        """Base for OTEL_EXPORTER_OTLP_ENDPOINT; traces go to <base>/v1/traces."""
        return f"http://{self._host}:{self._ports['otlp'].number}"

    @property
    def query_url(self) -> str:
        return f"http://{self._host}:{self._ports['query'].number}"

    async def start(self) -> None:
        self.process.launch()
        await self.process.ready(self._answers, timeout_s=30.0)

    async def close(self) -> None:
        await self.process.stop(grace_s=5.0)
        for port in self._ports.values():
            port.release()
        self._temporary.cleanup()

    async def services(self) -> list[str]:
        """Names of the services that have sent spans."""
        answer = await call("GET", f"{self.query_url}/api/services", timeout_s=5.0)
        return sorted(answer.body.get("data") or []) if answer.status == 200 else []

    async def traces(
        self, service: str | None = None, *, trace_id: str | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Traces of a service (newest `limit`), or the one with this id; empty when there is none.

        Each as the query API gives it: {"traceID", "spans": [{"operationName", "references", "tags",
        "logs", ...}], "processes": {"p1": {"serviceName"}}}.
        """
        if (service is None) == (trace_id is None):
            raise ValueError("give a service or a trace id")
        path = f"/api/traces/{trace_id}" if trace_id else "/api/traces"
        query = None if trace_id else {"service": service, "limit": limit}
        answer = await call("GET", self.query_url + path, query=query, timeout_s=5.0)
        return list(answer.body.get("data") or []) if answer.status == 200 else []

    async def wait_for_trace(self, trace_id: str, *, spans: int = 1, timeout_s: float = 15.0) -> dict[str, Any]:
        """The trace, once it holds at least so many spans."""
        found: list[dict[str, Any]] = []

        async def complete() -> bool:
            found[:] = await self.traces(trace_id=trace_id)
            return bool(found) and len(found[0]["spans"]) >= spans

        await wait_until(complete, what=f"trace {trace_id} with {spans} spans", timeout_s=timeout_s)
        return found[0]

    async def _answers(self) -> bool:
        health = await call("GET", f"http://{self._host}:{self._ports['health'].number}/status", timeout_s=1.0)
        query = await call("GET", f"{self.query_url}/api/services", timeout_s=1.0)
        return health.status == 200 and query.status == 200
