"""A proxy before a real API server that answers as broken ones do: frozen, as a load balancer without a back end, busy.

async with ApiProxy(plane) as proxy:
    client = kube.connect(url=proxy.url)     # no credentials: the proxy adds the administrator's
    await proxy.turn("html")                 # from now on: 502 and a page of HTML
    proxy.asked(since_s)                     # how often it was asked since then

well       passed on
frozen     taken and never answered; watches that are open say nothing more
html       502 with a page; watches that are open are cut
throttled  429 in plain text with Retry-After: 1, as flow control writes it; watches that are open go on
too-old    lists are passed on, every watch is answered with an ERROR of code 410
slow       each call is passed on after `slow_s`
down       connections are refused; watches that are open are cut
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Literal, NamedTuple, Self

import aiohttp
from aiohttp import web

from tests.servers.control_plane import ControlPlane
from tests.servers.ports import reserve_port

__all__ = ["ApiProxy", "Asked", "Mood"]

Mood = Literal["well", "frozen", "html", "throttled", "too-old", "slow", "down"]
CUTS = ("html", "too-old", "down")
"""Moods that end the watches which are open."""
_TOO_OLD = b'{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410,"message":"too old"}}\n'


class Asked(NamedTuple):
    """One request that reached it."""

    at_s: float
    method: str
    path: str


class ApiProxy:
    """Listens on loopback, without TLS."""

    def __init__(self, plane: ControlPlane, *, slow_s: float = 0.5) -> None:
        self.log: list[Asked] = []
        self._plane, self._slow_s, self._port = plane, slow_s, reserve_port()
        self._mood: Mood = "well"
        self._turned = asyncio.Event()
        self._open: set[asyncio.Transport | None] = set()
        """Connections of answers that are on their way, watches above all."""
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.number}"

    @property
    def mood(self) -> Mood:
        return self._mood

    async def turn(self, mood: Mood) -> None:
        """Be like that from now on."""
        was, self._mood = self._mood, mood
        self._turned.set()
        self._turned = asyncio.Event()
        for transport in self._open if mood in CUTS else ():
            if transport is not None:
                transport.abort()
        if mood == "down" and self._site is not None:
            await self._site.stop()
        elif was == "down":
            await self._listen()

    def asked(self, since_s: float) -> int:
        """Requests since then, on `time.monotonic`."""
        return sum(one.at_s >= since_s for one in self.log)

    async def _listen(self) -> None:
        assert self._runner is not None
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port.number, reuse_address=True)
        await self._site.start()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        self._session = aiohttp.ClientSession(read_bufsize=2 * 1024 * 1024)
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turned.set()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()
        self._port.release()

    # --- answering ---------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.log.append(Asked(time.monotonic(), request.method, request.path))
        watching = request.query.get("watch") == "1"
        if self._mood == "frozen":
            await self._until_it_turns()
        if self._mood == "slow":
            await asyncio.sleep(self._slow_s)
        if self._mood in ("html", "down"):
            return web.Response(status=502, text="<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")
        if self._mood == "throttled":
            text = "Too many requests, please try again later.\n"
            return web.Response(status=429, text=text, headers={"Retry-After": "1"})
        if self._mood == "too-old" and watching:
            return web.Response(body=_TOO_OLD, content_type="application/json")
        return await self._pass_on(request)

    async def _until_it_turns(self) -> None:
        while self._mood == "frozen":
            await self._turned.wait()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        kept = ("Content-Type", "Accept")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        headers["Authorization"] = f"Bearer {self._plane.admin_token}"
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method,
            self._plane.url + request.raw_path,
            data=await request.read() or None,
            headers=headers,
            ssl=self._plane.tls,
            timeout=timeout,
        ) as answer:
            found = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]})
            await found.prepare(request)
            self._open.add(request.transport)
            try:
                async for chunk in answer.content.iter_any():
                    await self._until_it_turns()
                    await found.write(chunk)
            finally:
                self._open.discard(request.transport)
        return found
