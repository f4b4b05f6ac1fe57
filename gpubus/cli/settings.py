"""`gpubus settings`: what this command would use, and where each value comes from."""

from __future__ import annotations

from bus.runtime.config import render
from gpubus.cli.common import Common
from gpubus.cli.exits import Exit


def settings(*, docs: bool = False, common: Common | None = None) -> int:
    """Show the effective settings as TOML, each with its origin; secrets are masked.

    The services show theirs with `python -m scheduler --print-settings`, and so on.

    Try:

    ```
    gpubus settings
    gpubus settings --docs > gpubus.toml
    ```

    Args:
        docs: Say before each setting what it is.
        common: Connection.
    """
    loaded = (common or Common()).loaded()
    print(render(loaded.settings, loaded.origins, docs=docs), end="")
    return int(Exit.OK)
