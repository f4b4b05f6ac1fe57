"""A device plugin for a bed's kubelet: cards that are names, given out by the real Allocate.

    async with DevicePlugin(bed, "gpu-1", ["GPU-a", "GPU-b"]) as plugin:
        await plugin.stop()      # as if its pod had died
        await plugin.start()     # and was back

In: the socket folder of one node's kubelet, seen from outside the bed. Out: the resource `nvidia.com/gpu`, with
`NVIDIA_VISIBLE_DEVICES` in the containers that ask for it. A kubelet that starts takes every socket in the folder away
and knows no plugin any more; as a good plugin must, this one watches for that and registers again.

The messages of the device plugin API (v1beta1) are strings and lists of messages, so their wire format is written and
read here in twenty lines instead of by generated code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from tests.bed.bed import Bed

__all__ = ["RESOURCE", "DevicePlugin"]

RESOURCE = "nvidia.com/gpu"
ENDPOINT = "bed.sock"
EVERY_S = 0.1
"""How often the folder is looked at."""


def text(number: int, value: str) -> bytes:
    """A field that holds a string."""
    return part(number, value.encode())


def part(number: int, value: bytes) -> bytes:
    """A field that holds a message."""
    return bytes([number << 3 | 2]) + _size(len(value)) + value


def parts(message: bytes, number: int) -> Iterator[bytes]:
    """What stands in a repeated field; other fields of strings and messages are passed over."""
    at = 0
    while at < len(message):
        tag, at = message[at], at + 1
        size, at = _read_size(message, at)
        if tag == number << 3 | 2:
            yield message[at : at + size]
        at += size


def _size(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _size(value >> 7)


def _read_size(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


class DevicePlugin:
    """Of one node. Args: whose, and the names of its cards."""

    def __init__(self, bed: Bed, node: str, cards: Sequence[str]) -> None:
        self.folder = bed.folder / node / "hidden/var/lib/kubelet/device-plugins"
        self.cards = dict.fromkeys(cards, "Healthy")
        self.registered = 0
        """How often a kubelet took it."""
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve and register, and again whenever the kubelet begins anew."""
        self._watching = asyncio.create_task(self._watch(), name="device plugin")

    async def stop(self) -> None:
        """Gone, as after a kill: the kubelet's stream of devices ends."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        self._watching = None
        await self._close()

    async def ill(self, card: str, *, healthy: bool = False) -> None:
        """A card fails, or is well again."""
        async with self._changed:
            self.cards[card] = "Healthy" if healthy else "Unhealthy"
            self._changed.notify_all()

    # --- serving -----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        known: tuple[int, float] | None = None
        while True:
            found = _identity(self.folder / "kubelet.sock")
            if found is not None and (found != known or not (self.folder / ENDPOINT).exists()):
                with contextlib.suppress(grpc.RpcError):  # the socket of a kubelet that was killed is still there
                    await self._close()
                    await self._serve()
                    await self._register()
                    known = found
            await asyncio.sleep(EVERY_S)

    async def _serve(self) -> None:
        """Before registering: the kubelet asks for options within a millisecond."""
        (self.folder / ENDPOINT).unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_handlers(self),))
        server.add_insecure_port(f"unix:{self.folder / ENDPOINT}")
        await server.start()
        self._server = server

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
        self._server = None

    async def _register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix:{self.folder / 'kubelet.sock'}") as channel:
            call = channel.unary_unary("/v1beta1.Registration/Register")
            await call(text(1, "v1beta1") + text(2, ENDPOINT) + text(3, RESOURCE), timeout=5.0)
        self.registered += 1

    async def options(self, _request: bytes, _context: Any) -> bytes:
        """Nothing special."""
        return b""

    async def list_and_watch(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        """All cards with their health, again after each change."""
        while True:
            yield b"".join(part(1, text(1, card) + text(2, health)) for card, health in self.cards.items())
            async with self._changed:
                await self._changed.wait()

    async def allocate(self, request: bytes, _context: Any) -> bytes:
        """For each container, its cards in its environment."""
        answers = []
        for container in parts(request, 1):
            cards = ",".join(sorted(each.decode() for each in parts(container, 1)))
            answers.append(part(1, part(1, text(1, "NVIDIA_VISIBLE_DEVICES") + text(2, cards))))
        return b"".join(answers)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def _handlers(plugin: DevicePlugin) -> grpc.GenericRpcHandler:
    """Bytes in, bytes out."""
    unary = grpc.unary_unary_rpc_method_handler
    methods = {
        "GetDevicePluginOptions": unary(plugin.options),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(plugin.list_and_watch),
        "Allocate": unary(plugin.allocate),
    }
    return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)


def _identity(path: Path) -> tuple[int, float] | None:
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        return found.st_ino, found.st_ctime
    return None
