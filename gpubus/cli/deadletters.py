"""`gpubus dead-letters`: what could not be understood."""

from __future__ import annotations

from rich.text import Text

from gpubus.cli.common import Common, Format, connected, run, show, show_json
from gpubus.cli.exits import Exit
from gpubus.render import tables
from gpubus.settings import ClientSettings


def dead_letters(*, output: Format = "table", common: Common | None = None) -> int:
    """Show messages that no part could understand, with the reason; json shows the raw bytes too.

    Try:

    ```
    gpubus dead-letters
    gpubus dead-letters -o json
    ```

    Args:
        output: table or json.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    return run(_dead_letters(settings, as_json=output == "json"))


async def _dead_letters(settings: ClientSettings, *, as_json: bool) -> Exit:
    async with connected(settings) as client:
        letters = await client.dead_letters()
    if as_json:
        show_json(letters)
    else:
        show(tables.dead_letters(letters) if letters else Text("(none)", style="dim"))
    return Exit.OK
