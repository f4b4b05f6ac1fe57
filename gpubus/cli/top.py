"""`gpubus top`: the cards as bars, live."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from cyclopts import Parameter
from rich.console import Group
from rich.live import Live

from gpubus.cli.common import Common, Format, connected, console, run_until_interrupted, show, show_json
from gpubus.cli.exits import Exit
from gpubus.hearing import LISTEN_S
from gpubus.live import Watcher
from gpubus.local import runfile
from gpubus.local.parts import Parts
from gpubus.render.top import STRANGERS, View, frame
from gpubus.settings import ClientSettings

ROOM = 8
"""Lines of the screen that are not nodes or requests."""
BUSIEST = 20
"""Requests that a single look shows."""
SMALLEST = 4
"""Rows of each table on the smallest screen."""


def top(
    *,
    every: float = 1.0,
    once: Annotated[bool, Parameter(negative="")] = False,
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Show what is sold and used of every card and by whom, what waits, and how fast it goes, until Ctrl-C.

    The CPU of pods is what the kernel has counted for them; against a `gpubus local` cards and pods are simulated, and
    a line of its own shows what the processes of the installation really use of this machine.

    Try:

    ```
    gpubus top
    gpubus top --once
    ```

    Args:
        every: Seconds between two looks.
        once: Look once and end.
        output: table or json (implies --once).
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    return run_until_interrupted(_top(settings, max(0.2, every), once=once, as_json=output == "json"))


async def _top(settings: ClientSettings, every_s: float, *, once: bool, as_json: bool) -> Exit:
    async with connected(settings) as client:
        watcher = Watcher(client, _parts(settings))
        async with watcher.listening():
            if as_json or once:
                await watcher.heard(LISTEN_S)
            view = await watcher.look()
            if as_json:
                show_json(
                    {
                        "summary": view.summary,
                        "cards": view.cards,
                        "pending": view.pending,
                        "requests": view.requests,
                        "strangers": view.strangers,
                        "this_machine": view.parts,
                    }
                )
            elif once or not console().is_terminal:
                show(frame(view, busiest=BUSIEST))
            else:
                await _live(watcher, view, every_s)
    return Exit.OK


def _fitting(view: View, height: int) -> Group:
    """Half of the room for requests where there are any, the rest for nodes."""
    room = max(SMALLEST, height - ROOM - min(STRANGERS, len(view.strangers)) - 2 * bool(view.parts))
    busiest = min(len(view.requests), room // 2)
    return frame(view, rows=max(1, room - busiest - 3 * bool(busiest)), busiest=busiest)


def _parts(settings: ClientSettings) -> Parts | None:
    """The processes of the `gpubus local` that this command speaks to, if it is one of this machine and user."""
    running = runfile.find(os.environ)
    return Parts(running.pid) if running and running.nats_url in settings.nats.urls else None


async def _live(watcher: Watcher, view: View, every_s: float) -> None:
    out = console()
    with Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_fitting(view, out.size.height), refresh=True)
            await asyncio.sleep(every_s)
            view = await watcher.look()
