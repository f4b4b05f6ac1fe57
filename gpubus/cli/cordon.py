"""`gpubus cordon`: take one card out of the pool."""

from __future__ import annotations

import asyncio
import time

from rich.text import Text

from contracts.answers import CardView
from gpubus import cardname
from gpubus.cli.common import Common, Format, connected, run, show, show_json
from gpubus.cli.exits import Exit
from gpubus.client import Client
from gpubus.errors import AnswerIsNo, NoAnswer
from gpubus.settings import ClientSettings

LOOK_EVERY_S = 0.1


def cordon(node: str, card: str, /, *, reason: str, output: Format = "table", common: Common | None = None) -> int:
    """Take a card out of the pool: its pods stay, no new ones come.

    It holds until `gpubus uncordon`: over restarts of everything, over reboots of the node, and for a card that is
    taken out and put back. How the card is goes on being shown beside it.

    Try:

    ```
    gpubus cordon node-01 2 --reason "fan is loud"
    gpubus get cards
    ```

    Args:
        node: Name of the node.
        card: Index of the card, its UUID, or how that begins.
        reason: Shown to whoever asks why the card is not offered.
        output: table or json.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    return run(_cordon(node, card, reason, settings, as_json=output == "json"))


async def _cordon(node: str, card: str, reason: str, settings: ClientSettings, *, as_json: bool) -> Exit:
    async with connected(settings) as client:
        meant = cardname.find(await client.cards(), node, card)
        if meant is None:
            raise AnswerIsNo(f"{node} has no card {card}; `gpubus get cards -o wide` shows the UUIDs")
        await client.cordon(node, meant.card.uuid, reason=reason, at_ms=wall_ms())
        row = await until(client, meant, cordoned=True, within_s=settings.gpubus.answer_timeout_s)
    tell(row, f"cordoned: {reason}", as_json=as_json)
    return Exit.OK


async def until(client: Client, card: CardView, *, cordoned: bool, within_s: float) -> CardView:
    """The card as the ledger has it, once it has the order. Raises NoAnswer: not in time; the order is kept."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                rows = await client.cards()
                now = next((r for r in rows if (r.node, r.card.uuid) == (card.node, card.card.uuid)), None)
                if now is None or now.cordoned == cordoned:
                    return now or card
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError as error:
        raise NoAnswer("the scheduler", f"the order is kept, and not in the ledger after {within_s:g} s") from error


def tell(row: CardView, what: str, *, as_json: bool) -> None:
    """One line about the card, and who is on it."""
    if as_json:
        show_json(row)
        return
    line = Text(f"{row.node} card {row.card.index} ({row.card.uuid})  {what}")
    show(line, *([Text(f"stay on it: {', '.join(row.residents)}", style="dim")] if row.residents else []))


def wall_ms() -> int:
    """Now, for people."""
    return time.time_ns() // 1_000_000
