"""`gpubus audit`: does it all add up?"""

from __future__ import annotations

from gpubus.audit.collect import audit as audited
from gpubus.cli.common import Common, Format, connected, run, show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.errors import UsageError
from gpubus.quantities import BadQuantity, seconds
from gpubus.render.audit import report
from gpubus.settings import ClientSettings


def audit(*, pool: str = "default", settle: str = "5s", output: Format = "table", common: Common | None = None) -> int:
    """Compare the ledger with itself, with Kubernetes and with the monitors.

    The whole log is folded again and every invariant checked at every sequence; each pod that holds a card must be a
    placement and the other way round; cards that are sold must be there; and the pods alone must not oversell a card.
    A difference counts when it stays for --settle. The processes on the cards are counted as the monitors say them, and
    those that belong to nobody are named. The last line says how many requests are where.
    Exit status 1 when something does not add up.

    Try:

    ```
    gpubus audit
    gpubus audit -o json | jq .findings
    ```

    Args:
        pool: The pool of nodes whose ledger is audited.
        settle: How long a difference must stay to count.
        output: table or json.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    try:
        settle_s = seconds(settle)
    except BadQuantity as error:
        raise UsageError(f"--settle {error}") from error
    return run(_audit(settings, pool, settle_s, as_json=output == "json"))


async def _audit(settings: ClientSettings, pool: str, settle_s: float, *, as_json: bool) -> Exit:
    async with connected(settings) as client:
        found = await audited(client, pool=pool, settle_s=settle_s)
    if as_json:
        show_json(found)
    else:
        show_all(report(found))
    return Exit.OK if found.sound else Exit.NO
