"""`gpubus ledger save FILE`: the log in a file, for `gpubus whatif` and `gpubus decide` elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.text import Text

from gpubus import ledgerfile
from gpubus.cli.common import Common, connected, run, show
from gpubus.cli.exits import Exit
from gpubus.errors import UsageError
from gpubus.ledgers import log_of
from gpubus.settings import ClientSettings


def ledger(action: Literal["save"], file: str, /, *, pool: str = "default", common: Common | None = None) -> int:
    """Save the ledger to a file.

    The file holds every commit that is still stored, as it is stored, after the checkpoint that it goes on from once
    the first ones have aged out. It is all that decisions depended on: `gpubus whatif --ledger FILE` and `gpubus decide
    --ledger FILE` need no bus and no cluster.

    Try:

    ```
    gpubus ledger save incident.ledger
    gpubus decide --ledger incident.ledger --at 4711
    ```

    Args:
        action: save.
        file: Where to.
        pool: The pool of nodes whose ledger it is.
        common: Connection.
    """
    del action  # there is one
    return run(_save(file, pool, (common or Common()).loaded().settings))


async def _save(file: str, pool: str, settings: ClientSettings) -> Exit:
    async with connected(settings) as client:
        log = await log_of(client, pool)
    _write(file, b"".join(ledgerfile.write(log)))
    first, last = log.stored[0][0], log.stored[-1][0]
    show(Text(f"{file}: {len(log.stored)} commits, sequence {first} to {last}"))
    return Exit.OK


def _write(file: str, data: bytes) -> None:
    try:
        Path(file).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
