"""`gpubus watch`: the life of requests as it happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.text import Text

from bus.protocol import Received
from contracts.outcomes import RequestEvent
from gpubus.cli.common import Common, Everywhere, Format, Namespace, connected, run_until_interrupted, show
from gpubus.cli.exits import Exit
from gpubus.client import Client, event_pattern
from gpubus.errors import UsageError
from gpubus.quantities import BadQuantity, seconds
from gpubus.render import tables
from gpubus.settings import ClientSettings


def watch(
    what: str = "",
    /,
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    since: Annotated[str | None, Parameter(show_default=False)] = None,
    count: Annotated[int | None, Parameter(show_default=False)] = None,
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Show events as they happen, until Ctrl-C.

    Begins at the end of the stream unless --since is given. With -o json each line is one event.

    Try:

    ```
    gpubus watch
    gpubus watch team/train --since 1h
    gpubus watch -A -o json
    ```

    Args:
        what: NAME, NAMESPACE/NAME or NAMESPACE/ for all of a namespace. Default: the whole namespace.
        namespace: Namespace to watch.
        everywhere: All namespaces.
        since: Begin with events of the last 10m, 2h, 1d.
        count: End after so many events.
        output: table or json (one line an event).
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    space, name = _scope(what, namespace, settings, everywhere=everywhere)
    try:
        since_s = None if since is None else seconds(since)
    except BadQuantity as error:
        raise UsageError(f"--since {error}") from error
    pattern = event_pattern(space, name)
    return run_until_interrupted(_watch(pattern, since_s, count, settings, as_json=output == "json"))


def _scope(what: str, namespace: str | None, settings: ClientSettings, *, everywhere: bool) -> tuple[str, str]:
    if everywhere:
        if what or namespace:
            raise UsageError("--all-namespaces and a namespace or name: give one or the other")
        return "", ""
    before, slash, after = what.partition("/")
    if slash:
        return before, after
    return namespace or settings.gpubus.namespace, what


async def _watch(
    pattern: str, since_s: float | None, count: int | None, settings: ClientSettings, *, as_json: bool
) -> Exit:
    async with connected(settings) as client:
        head = await client.event_head() if since_s is None else 1
        seen = 0
        async with contextlib.aclosing(_recent(client, pattern, head, since_s)) as events:
            async for message in events:
                _show(message, as_json=as_json)
                seen += 1
                if seen == count:
                    break
    return Exit.OK


async def _recent(client: Client, pattern: str, head: int, since_s: float | None) -> AsyncGenerator[Received, None]:
    oldest = 0.0 if since_s is None else time.time() - since_s
    async with contextlib.aclosing(client.stored_events(pattern, head)) as events:
        async for message in events:
            if message.stored_at >= oldest or not message.stored_at:
                yield message


def _show(message: Received, *, as_json: bool) -> None:
    if as_json:
        print(message.data.decode("utf-8", "replace"), flush=True)
        return
    clock = datetime.fromtimestamp(message.stored_at).astimezone().strftime("%H:%M:%S.%f")[:-3]
    try:
        line = tables.event_line(msgspec.json.decode(message.data, type=RequestEvent))
    except msgspec.MsgspecError as error:
        line = Text(f"{message.subject}: cannot be read: {error}", style="red")
    show(Text(f"{clock}  ", style="dim").append(line))
