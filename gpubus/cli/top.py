"""`gpubus top`: the cards as bars, live."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter
from rich.live import Live

from gpubus.cli.common import Common, Format, connected, console, run_until_interrupted, show, show_json
from gpubus.cli.exits import Exit
from gpubus.live import Watcher
from gpubus.render.top import View, frame
from gpubus.settings import ClientSettings

LISTEN_S = 2.5
"""How long a single look listens for what monitors tell: they speak every one or two seconds."""
ROOM = 8
"""Lines of the screen that are not nodes."""


def top(
    *,
    every: float = 1.0,
    once: Annotated[bool, Parameter(negative="")] = False,
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Show what is sold and used of every card, what waits, and how fast it goes, until Ctrl-C.

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
        watcher = Watcher(client)
        async with watcher.listening():
            if as_json or once:
                await watcher.heard(LISTEN_S)
            view = await watcher.look()
            if as_json:
                show_json({"summary": view.summary, "cards": view.cards, "pending": view.pending})
            elif once or not console().is_terminal:
                show(frame(view))
            else:
                await _live(watcher, view, every_s)
    return Exit.OK


async def _live(watcher: Watcher, view: View, every_s: float) -> None:
    out = console()
    with Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(frame(view, rows=max(1, out.size.height - ROOM)), refresh=True)
            await asyncio.sleep(every_s)
            view = await watcher.look()
