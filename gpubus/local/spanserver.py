"""The span store over HTTP: OTLP at /v1/traces, Jaeger's query API at /api, both on one loopback port.

Enough for the services' exporter and for `gpubus trace`; a real Jaeger takes its place by configuration alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gpubus.errors import LocalFailure
from gpubus.jaeger import ApiError, Page
from gpubus.local.spanstore import SpanStore

PROTOBUF = "application/x-protobuf"
MAX_BODY = 16 * 1024 * 1024


@contextlib.asynccontextmanager
async def serving(store: SpanStore, *, port: int = 0) -> AsyncIterator[str]:
    """Serve on 127.0.0.1 while the context is open; yields the base URL.

    Raises:
        LocalFailure: the port is taken.
    """
    runner = web.AppRunner(application(store), access_log=None, handle_signals=False, shutdown_timeout=0.2)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        except OSError as error:
            raise LocalFailure("span store", f"port {port} cannot be used: {error.strerror or error}") from error
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def application(store: SpanStore) -> web.Application:
    """The routes."""

    async def take(request: web.Request) -> web.Response:
        return await _take(store, request)

    async def one(request: web.Request) -> web.Response:
        trace_id = request.match_info["trace_id"]
        trace = store.trace(trace_id)
        if trace is None:
            return _json(Page(errors=(ApiError(code=404, msg=f"trace {trace_id} is not here"),)), status=404)
        return _json(Page(data=(trace,), total=1))

    async def many(request: web.Request) -> web.Response:
        limit = request.query.get("limit", "20")
        found = store.traces(request.query.get("service", ""), int(limit) if limit.isdecimal() else 20)
        return _json(Page(data=tuple(found), total=len(found)))

    async def services(_: web.Request) -> web.Response:
        return _json({"data": store.services()})

    app = web.Application(client_max_size=MAX_BODY)
    app.add_routes(
        [
            web.post("/v1/traces", take),
            web.get("/api/traces/{trace_id}", one),
            web.get("/api/traces", many),
            web.get("/api/services", services),
        ]
    )
    return app


async def _take(store: SpanStore, request: web.Request) -> web.Response:
    if request.content_type != PROTOBUF:
        return web.Response(status=415, text=f"content type {request.content_type}; this takes {PROTOBUF}\n")
    try:
        store.add(ExportTraceServiceRequest.FromString(await request.read()))
    except DecodeError as error:
        return web.Response(status=400, text=f"not OTLP: {error}\n")
    return web.Response(body=b"", content_type=PROTOBUF)


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
