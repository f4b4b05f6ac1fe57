"""The transport against servers that misbehave on the wire: what was not sent, what may have happened, and no hang.

A few lines of asyncio play the server: they say exactly what a test wants, byte by byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from reconciler import kube
from reconciler.calls import PODS, Kube
from reconciler.errors import Expired, NotSent, OutcomeUnknown, Throttled, Unauthorized
from reconciler.kube import ApiServer

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

POD = b'{"metadata":{"name":"p","namespace":"d","uid":"u","resourceVersion":"7"},"spec":{},"status":{}}'
ADDED = b'{"type":"ADDED","object":' + POD + b"}\n"


def answer(status: str, body: bytes, kind: str = "application/json", *more: str) -> bytes:
    """A whole HTTP answer."""
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(head).encode() + body


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def saying(*parts: bytes, close: bool = False, hang: bool = False) -> Play:
    """Read one request, say these bytes, then go on, close or hang."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await _request(reader):
            for part in parts:
                writer.write(part)
                await writer.drain()
            if hang:
                await asyncio.sleep(60)
            if close:
                return

    return play


async def _request(reader: asyncio.StreamReader) -> bytes:
    """One request with its body; empty at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = await reader.readline()
        if not line:
            return b""
        head += line
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line.split(b":")[1]))
    return head


@contextlib.asynccontextmanager
async def served(play: Play) -> AsyncIterator[ApiServer]:
    """A transport to a server that plays."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await play(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with kube.connect(url=f"http://127.0.0.1:{port}") as transport:
            yield transport
    finally:
        server.close()


async def events(transport: ApiServer, *, timeout_s: int = 5, into: list[str] | None = None) -> list[str]:
    """The kinds of all events of one watch."""
    found = [] if into is None else into
    async for event in Kube(transport).watch(PODS, version=1, timeout_s=timeout_s):
        found += [event.kind]
    return found


# --- calls ---------------------------------------------------------------------------------------------------------


async def test_a_refused_connection_was_not_sent() -> None:
    """Nothing listens: repeating is safe for every verb."""
    async with kube.connect(url="http://127.0.0.1:1") as transport:
        with pytest.raises(NotSent):
            await transport.call("POST", "/x", body=b"{}")


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 201 Cre", b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{", b"not http at all\r\n\r\n"],
    ids=["nothing", "half a head", "half a body", "nonsense"],
)
async def test_an_answer_that_breaks_off_leaves_the_outcome_unknown(said: bytes) -> None:
    """The server may have done it."""
    async with served(saying(said, close=True)) as transport:
        with pytest.raises(OutcomeUnknown):
            await transport.call("POST", "/x", body=b"{}")


async def test_a_server_that_hangs_is_given_up_in_time() -> None:
    """The library has no timeouts of its own: without ours this would hang for ever."""
    async with served(saying(b"", hang=True)) as transport:
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await transport.call("POST", "/x", body=b"{}", timeout_s=0.3)
        assert time.monotonic() - began < 5


async def test_retry_after_is_read() -> None:
    """From the header; the body is plain text."""
    said = answer("429 Too Many Requests", b"Too many requests\n", "text/plain", "Retry-After: 3")
    async with served(saying(said)) as transport:
        with pytest.raises(Throttled) as caught:
            await Kube(transport).bind("d", "p", b"{}")

    assert caught.value.retry_after_s == 3.0


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"metadata":[]}', b""])
async def test_a_2xx_that_cannot_be_read_leaves_the_outcome_unknown(body: bytes) -> None:
    """It was done or not: only reading back tells."""
    async with served(saying(answer("201 Created", body))) as transport:
        with pytest.raises(OutcomeUnknown):
            await Kube(transport).create("d", b"{}")


async def test_a_read_is_tried_again_and_a_write_is_not() -> None:
    """A read changes nothing; a write that may have happened is the caller's to look into."""
    calls: list[bytes] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _request(reader):
            calls.append(head.split(b" ")[0])
            if len(calls) in (1, 3):
                return
            writer.write(answer("200 OK", POD))
            await writer.drain()

    async with served(play) as transport:
        found = await Kube(transport).get("d", "p")
        with pytest.raises(OutcomeUnknown):
            await Kube(transport).create("d", b"{}")

    assert found is not None
    assert calls == [b"GET", b"GET", b"POST"]


async def test_a_token_is_sent_and_the_folder_of_the_kubeconfig_is_not_needed(tmp_path: Path) -> None:
    """Every call carries the token; the library's own raw calls would not."""
    heads: list[bytes] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _request(reader):
            heads.append(head)
            writer.write(answer("200 OK", POD))
            await writer.drain()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = tmp_path / "config"
    config.write_text(
        f'{{"apiVersion":"v1","kind":"Config","clusters":[{{"name":"c","cluster":{{"server":"http://127.0.0.1:{port}"}}}}],'
        '"users":[{"name":"u","user":{"token":"secret-token"}}],'
        '"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}',
        encoding="utf-8",
    )
    async with kube.connect(kubeconfig=str(config)) as transport:
        await Kube(transport).get("d", "p")
    server.close()

    assert b"Authorization: Bearer secret-token\r\n" in heads[0]
    assert b"User-Agent: gpubus-reconciler" in heads[0]


async def test_no_way_to_an_api_server_is_said_at_once(tmp_path: Path) -> None:
    """A kubeconfig that is not there: the operator's to mend."""
    with pytest.raises(Unauthorized, match="no way to the API server"):
        async with kube.connect(kubeconfig=str(tmp_path / "nothing")):
            pass


# --- watches -------------------------------------------------------------------------------------------------------


async def test_events_are_lines_whatever_the_chunks() -> None:
    """Cut in the middle, and several in one."""
    whole = ADDED * 3
    parts = [STREAM, chunk(whole[:50]), chunk(whole[50:]), b"0\r\n\r\n"]
    async with served(saying(*parts)) as transport:
        assert await events(transport) == ["ADDED"] * 3


async def test_a_line_of_a_mebibyte_is_read() -> None:
    """An object may be that large; the library's default buffer would end the watch."""
    large = POD.replace(b'"spec":{}', b'"spec":{"x":"' + b"y" * 1_048_576 + b'"}')
    line = b'{"type":"ADDED","object":' + large + b"}\n"
    async with served(saying(STREAM, chunk(line), b"0\r\n\r\n")) as transport:
        assert await events(transport) == ["ADDED"]


async def test_a_torn_line_is_dropped_and_the_break_is_told() -> None:
    """Kill -9 of the server in the middle of an event."""
    found: list[str] = []
    async with served(saying(STREAM, chunk(ADDED), chunk(ADDED[:40]), close=True)) as transport:
        with pytest.raises(OutcomeUnknown):
            await events(transport, into=found)

    assert found == ["ADDED"]


async def test_a_page_of_html_is_no_stream_of_events() -> None:
    """A 502 on a watch: an error, and never an endless loop of strings."""
    async with served(saying(answer("502 Bad Gateway", b"<html>", "text/html"))) as transport:
        with pytest.raises(OutcomeUnknown, match="502"):
            await events(transport)


async def test_a_version_that_is_too_old_is_said_in_a_line_or_in_the_status() -> None:
    """Both mean: list again."""
    status = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 5 (9)"}'
    line = b'{"type":"ERROR","object":' + status + b"}\n"
    async with served(saying(STREAM, chunk(line), b"0\r\n\r\n")) as transport:
        with pytest.raises(Expired):
            await events(transport)
    async with served(saying(answer("410 Gone", status))) as transport:
        with pytest.raises(Expired):
            await events(transport)


async def test_a_watch_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen server sends nothing, no end and no error: the silence itself is the sign."""
    monkeypatch.setattr("reconciler.calls.SLACK_S", 0.3)
    async with served(saying(STREAM, chunk(ADDED), hang=True)) as transport:
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await events(transport, timeout_s=0)
        assert time.monotonic() - began < 5
