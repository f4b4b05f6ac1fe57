"""`gpubus withdraw`: take a request back."""

from __future__ import annotations

from rich.text import Text

from gpubus.cli.common import Common, Format, Namespace, address, connected, run, show, show_json, traced
from gpubus.cli.exits import Exit
from gpubus.render import tables
from gpubus.settings import ClientSettings


def withdraw(
    name: str,
    /,
    *,
    namespace: Namespace = None,
    reason: str = "",
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Take a request back.

    A pending one leaves the queue. A placed one's pod is deleted, and its slice is free once the pod is gone.

    Try:

    ```
    gpubus withdraw train
    gpubus withdraw team/train --reason "wrong data"
    ```

    Args:
        name: NAME or NAMESPACE/NAME.
        namespace: Namespace of the request.
        reason: Kept in the ledger.
        output: table or json.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    space, name = address(name, namespace, settings)
    return run(_withdraw(space, name, reason, settings, as_json=output == "json"))


async def _withdraw(namespace: str, name: str, reason: str, settings: ClientSettings, *, as_json: bool) -> Exit:
    with traced(settings):
        async with connected(settings) as client:
            reply = await client.withdraw(name, namespace=namespace, reason=reason)
    if as_json:
        show_json(reply)
    elif reply.accepted:
        show(Text(f"{namespace}/{name}  withdrawn at ledger sequence {reply.ledger_sequence}"))
    else:
        show(Text(f"{namespace}/{name}  refused", style="red"), tables.refusals(reply.refusals))
    return Exit.OK if reply.accepted else Exit.NO
