"""What every command shares: its flags, its connection, its output, and the one place where async begins."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from rich.console import Console, RenderableType

from bus.runtime.config import Loaded
from bus.runtime.connection import options_of
from contracts.messages import encode
from gpubus import client
from gpubus.cli.exits import Exit
from gpubus.client import Client
from gpubus.errors import UsageError
from gpubus.local import runfile
from gpubus.settings import ClientSettings, effective

Format = Annotated[Literal["table", "wide", "json"], Parameter(name=["--output", "-o"])]
Namespace = Annotated[str | None, Parameter(name=["--namespace", "-n"])]
Everywhere = Annotated[bool, Parameter(name=["--all-namespaces", "-A"], negative="")]

WIDE = 240
"""Columns when the output is no terminal: a pipe has no width, and what is cut there is lost."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Flags of every command that talks to the bus."""

    nats: Annotated[str | None, Parameter(show_default=False)] = None
    """Server, as nats://127.0.0.1:4222. Else GPUBUS_NATS_URL, the settings file, a running gpubus local."""
    config: Annotated[Path | None, Parameter(show_default=False)] = None
    """Settings file (TOML)."""
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """On an error show where in the program it came from."""

    def loaded(self) -> Loaded[ClientSettings]:
        """The settings of this call, each with its origin."""
        return effective(env=os.environ, file=self.config, nats=self.nats, running=runfile.find(os.environ))


@contextlib.asynccontextmanager
async def connected(settings: ClientSettings) -> AsyncIterator[Client]:
    """A client over the bus that the settings name."""
    options = {
        "timeout_s": settings.gpubus.answer_timeout_s,
        "name": f"gpubus-cli-{os.getpid()}",
        **options_of(settings.nats),
    }
    async with client.connect(settings.nats.urls, **options) as opened:
        yield opened


@contextlib.contextmanager
def traced(settings: ClientSettings) -> Iterator[None]:
    """Record spans of this call when somebody collects them. Imports the SDK (some 150 ms) only then."""
    if not settings.telemetry.otlp_endpoint:
        yield
        return
    from bus.runtime import telemetry  # noqa: PLC0415 - expensive, and most commands have no span

    recording = telemetry.start(settings.telemetry, "client", f"client-{os.getpid()}")
    try:
        yield
    finally:
        recording.shutdown(1.0)


def run(work: Coroutine[Any, Any, Exit]) -> int:
    """The one event loop of a command."""
    return int(asyncio.run(work))


def run_until_interrupted(work: Coroutine[Any, Any, Exit]) -> int:
    """As `run`, for what goes on until Ctrl-C: that is its regular end."""
    try:
        return int(asyncio.run(work))
    except KeyboardInterrupt:
        return int(Exit.OK)


def console(*, stderr: bool = False) -> Console:
    """Where things are printed; as wide as it takes when that is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else WIDE, soft_wrap=False)


def show(*parts: RenderableType) -> None:
    """Print for people; without the blanks that pad tables when the reader is a program."""
    out = console()
    if out.is_terminal:
        for part in parts:
            out.print(part)
        return
    with out.capture() as captured:
        for part in parts:
            out.print(part)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


def show_all(parts: Iterable[RenderableType]) -> None:
    """Print for people, one after the other."""
    show(*parts)


def show_json(value: Any) -> None:
    """Print one JSON document, indented, with the encoding of the messages."""
    data = encode(value) if isinstance(value, msgspec.Struct) else msgspec.json.encode(value)
    print(msgspec.json.format(data, indent=2).decode())


def address(name: str, namespace: str | None, settings: ClientSettings) -> tuple[str, str]:
    """Namespace and name of `NAME` or `NAMESPACE/NAME`.

    Raises:
        UsageError: two namespaces that differ.
    """
    before, slash, after = name.partition("/")
    if not slash:
        return namespace or settings.gpubus.namespace, name
    if namespace and namespace != before:
        raise UsageError(f"{name} is in namespace {before}, --namespace says {namespace}")
    return before, after
