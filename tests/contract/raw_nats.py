"""NATS below any client library: a raw connection that sends any bytes, and servers that misbehave on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable


class RawClient:
    """A logged-in socket. `send` is a barrier: it returns when the server has read what was sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data + b"PING\r\n")
        await self.until(b"PONG")

    async def publish(self, subject: bytes, payload: bytes, header: bytes = b"") -> None:
        size = len(header) + len(payload)
        if header:
            await self.send(b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(header), size, header, payload))
        else:
            await self.send(b"PUB %b %d\r\n%b\r\n" % (subject, size, payload))

    async def until(self, start: bytes) -> bytes:
        """The next line that begins so."""
        async with asyncio.timeout(5):
            while not (line := await self.reader.readline()).startswith(start):
                if not line:
                    raise EOFError("the server closed the raw connection")
        return line


@contextlib.asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = RawClient(reader, writer)
    await client.send(b'CONNECT {"headers":true,"no_responders":true,"verbose":false}\r\n')
    try:
        yield client
    finally:
        writer.close()
        await writer.wait_closed()


INFO = (
    b"INFO " + json.dumps({"server_id": "fake", "version": "2.15.1", "headers": True, "max_payload": 1048576}).encode()
)


@contextlib.asynccontextmanager
async def fake_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that says what `talk` says; the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await talk(reader, writer)
        writer.close()

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def log_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """INFO, CONNECT, PING, PONG."""
    writer.write(INFO + b"\r\n")
    await reader.readuntil(b"PING\r\n")
    writer.write(b"PONG\r\n")
