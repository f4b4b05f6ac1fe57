"""The thin HTTP shell of the embedded API: connections, streaming, and the ways a server can be away.

Requests become `Call`s, watches are streamed from the store's history. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from gpubus.local.kube.calls import Call, Calls, is_watch, watch_query
from gpubus.local.kube.discovery import describe
from gpubus.local.kube.faults import Fault, Faults
from gpubus.local.kube.resources import parse_path
from gpubus.local.kube.status import StatusError
from gpubus.local.kube.watching import bookmark, error_line, initial_lines, line_of, next_bookmark_s

if TYPE_CHECKING:
    from gpubus.local.kube.history import Change
    from gpubus.local.kube.store import Store
    from gpubus.local.kube.watching import WatchQuery

__all__ = ["KubeHttp"]

_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_BODY_BYTES = 3 * 1024 * 1024


class KubeHttp:
    """One listening address over one store. `token`: the bearer token every call needs, None for an open door."""

    def __init__(self, store: Store, *, token: str | None = None) -> None:
        self._store, self._token = store, token
        self._calls = Calls(store)
        self.faults = Faults()
        self._runner: web.AppRunner | None = None
        self._connections: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._moved = asyncio.Event()
        self._thawed = asyncio.Event()
        self._thawed.set()

    def notice(self, _change: Change) -> None:
        """A write has happened: wake the watches."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def listen(self, host: str, port: int) -> int:
        """Begin to serve; the port, also when 0 was asked for."""
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        # A watch whose client is gone must not live on until its time is up: hence the cancellation.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handle_signals=False, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop at once: connections are reset, as by SIGKILL. The store keeps its state."""
        for transport in list(self._connections):
            transport.abort()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def forget(self) -> None:
        """Lose what a restart loses: the history of watches and the moments of paged lists."""
        self._store.history.forget()
        self._calls.lister.forget()

    def freeze(self) -> None:
        """Accept connections and answer nothing."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Answer again, beginning with what has waited."""
        self._thawed.set()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self._connections.add(request.transport)
        await self._thawed.wait()
        fault = self.faults.take(request.method, request.path)
        if fault is None:
            return await self._serve(request)
        return await self._meet(fault, request)

    async def _meet(self, fault: Fault, request: web.Request) -> web.StreamResponse:
        if fault.kind == "answer":
            return web.Response(status=fault.status, text=fault.body, headers=fault.headers)
        if fault.kind == "delay":
            await asyncio.sleep(fault.delay_s)
            return await self._serve(request)
        if fault.kind == "lose_answer":
            await self._serve(request)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path in _HEALTH:
            return web.Response(text="ok")
        if self._token is not None and request.headers.get("Authorization") != f"Bearer {self._token}":
            return _refused(StatusError(401, "Unauthorized", "Unauthorized"))
        if (about := describe(request.path)) is not None:
            return _json(200, msgspec.json.encode(about))
        if request.path == _ACCESS_REVIEW and request.method == "POST":
            return _json(201, _allowed(await request.read()))
        target = parse_path(request.path)
        if target is None:
            message = "the server could not find the requested resource"
            return _refused(StatusError(404, "NotFound", message, {}))
        call = Call(
            method=request.method,
            target=target,
            query=dict(request.query),
            content_type=request.content_type,
            body=await request.read(),
        )
        return await self._watch(request, call) if is_watch(call) else self._answer(call)

    def _answer(self, call: Call) -> web.Response:
        reply = self._calls.serve(call)
        return _json(reply.status, reply.body)

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        try:
            query = watch_query(call)
        except StatusError as error:
            return _refused(error)
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        with contextlib.suppress(ConnectionError):
            await self._stream(stream, query)
            await stream.write_eof()
        return stream

    async def _stream(self, stream: web.StreamResponse, query: WatchQuery) -> None:
        """Lines until the time is up, the history is gone or the client is."""
        clock = asyncio.get_running_loop().time
        end = clock() + query.timeout_s
        mark_at = next_bookmark_s(clock(), end) if query.bookmarks else float("inf")
        version = query.version
        if version is None:
            version = self._store.version
            await _send(stream, initial_lines(query, self._store.entries(query.resource, query.namespace), version))
        while clock() < end:
            moved = self._moved
            try:
                changes = self._store.history.since(version)
            except StatusError as error:
                await _send(stream, error_line(error))
                return
            if changes:
                version = changes[-1].version
                await _send(stream, b"".join(line_of(query, change) for change in changes))
            elif clock() >= mark_at:
                await _send(stream, bookmark(query.resource, version))
                mark_at = next_bookmark_s(clock(), end)
            else:
                await _wait(moved, min(end, mark_at) - clock())
                await self._thawed.wait()


async def _wait(moved: asyncio.Event, at_most_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(moved.wait(), max(at_most_s, 0.0))


async def _send(stream: web.StreamResponse, lines: bytes) -> None:
    if lines:
        await stream.write(lines)


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _refused(error: StatusError) -> web.Response:
    return _json(error.code, msgspec.json.encode(error.body()))


def _allowed(body: bytes) -> bytes:
    """Everything is allowed here."""
    spec = msgspec.json.decode(body).get("spec", {})
    review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}}
    return msgspec.json.encode({**review, "spec": spec, "status": {"allowed": True}})
