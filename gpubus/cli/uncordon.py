"""`gpubus uncordon`: give a card back."""

from __future__ import annotations

from rich.text import Text

from gpubus import cardname
from gpubus.cli.common import Common, Format, connected, run, show
from gpubus.cli.cordon import tell, until, wall_ms
from gpubus.cli.exits import Exit
from gpubus.settings import ClientSettings


def uncordon(
    node: str,
    card: str,
    /,
    *,
    repaired: bool = False,
    reason: str = "",
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Give a card back that was cordoned. It is offered when its monitor calls it healthy.

    Also for a card that failed and was never cordoned: with --repaired its monitor believes that it was reset or
    exchanged, watches it for the usual time, and offers it again.

    Try:

    ```
    gpubus uncordon node-01 2
    gpubus uncordon node-01 2 --repaired --reason "reset by hand"
    ```

    Args:
        node: Name of the node.
        card: Index of the card, its UUID, or how that begins; of a card that is not there its whole UUID.
        repaired: The card was seen to; do not wait for evidence of a reset.
        reason: Kept with the order.
        output: table or json.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    return run(_uncordon(node, card, settings, repaired=repaired, reason=reason, as_json=output == "json"))


async def _uncordon(
    node: str, card: str, settings: ClientSettings, *, repaired: bool, reason: str, as_json: bool
) -> Exit:
    async with connected(settings) as client:
        meant = cardname.find(await client.cards(), node, card)
        uuid = meant.card.uuid if meant else card
        await client.uncordon(node, uuid, repaired=repaired, reason=reason, at_ms=wall_ms())
        if meant is None:
            show(Text(f"{node} card {card}  given back; it is not there at present"))
            return Exit.OK
        row = await until(client, meant, cordoned=False, within_s=settings.gpubus.answer_timeout_s)
    waits = "" if row.health == "healthy" else f"; its monitor says {row.health}: {row.reason or 'no reason given'}"
    tell(row, f"given back{waits}", as_json=as_json)
    return Exit.OK
