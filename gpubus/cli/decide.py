"""`gpubus decide --at SEQUENCE`: decide again, from the log before it, and tell whether the bytes are equal."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from bus.ledger.rules import LedgerError
from gpubus.cli.common import Common, connected, run, show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.decideagain import Again, decide_again
from gpubus.errors import UsageError
from gpubus.ledgerfile import Log
from gpubus.ledgers import log_of, saved
from gpubus.render.again import again as drawn
from gpubus.settings import ClientSettings

Quiet = Parameter(show_default=False)


def decide(
    *,
    at: int,
    ledger: Annotated[str | None, Quiet] = None,
    pool: str = "default",
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
    common: Common | None = None,
) -> int:
    """Decide again what the commit at a sequence of the ledger decided.

    The state is rebuilt from the commits before it, each decision is made once more with the policy that it names, and
    both records are compared byte for byte. `gpubus explain NAME` tells the sequence of a request's decision.
    Also places that are kept for those who wait are looked for once more. Exit status 1 when one comes out otherwise.

    Try:

    ```
    gpubus decide --at 4711
    gpubus decide --at 4711 --ledger incident.ledger -o json
    ```

    Args:
        at: Sequence of the commit.
        ledger: A file of `gpubus ledger save` instead of the bus.
        pool: The pool of nodes whose ledger it is.
        output: table or json.
        common: Connection.
    """
    if ledger is not None:
        return int(_told(_again(saved(ledger), at), output))
    return run(_live(at, pool, (common or Common()).loaded().settings, output))


async def _live(at: int, pool: str, settings: ClientSettings, output: str) -> Exit:
    async with connected(settings) as client:
        log = await log_of(client, pool)
    return _told(_again(log, at), output)


def _again(log: Log, at: int) -> Again:
    first, last = (log.stored[0][0], log.stored[-1][0]) if log.stored else (0, 0)
    if at not in dict(log.stored):
        raise UsageError(f"--at {at}: this ledger has commits from {first} to {last}")
    try:
        return decide_again(log, at)
    except LedgerError as error:
        raise UsageError(f"this log does not add up: {error}") from error


def _told(found: Again, output: str) -> Exit:
    if output == "json":
        show_json(found)
    else:
        show_all(drawn(found))
    return Exit.OK if all(each.equal or each.unknown for each in found.decisions) else Exit.NO
