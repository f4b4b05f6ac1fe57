"""`gpubus get requests|cards|nodes|quotas|functions|jobs|limits`: the ledger, workloads, limits, as tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from contracts.answers import CardView
from contracts.shares import CardEnforcement
from contracts.usage import CardUsage
from gpubus import limits, use
from gpubus.cli.common import Common, Everywhere, Format, Namespace, connected, run, show, show_json
from gpubus.cli.exits import Exit
from gpubus.client import Client
from gpubus.errors import UsageError
from gpubus.functions import functions
from gpubus.hearing import LISTEN_S, Hearing
from gpubus.render import scaling, tables
from gpubus.render.enforced import by_card, of_card
from gpubus.render.limits import limits as of_limits
from gpubus.render.quotas import quotas
from gpubus.render.use import cards_columns
from gpubus.settings import ClientSettings
from gpubus.workloads import jobs

What = Literal["requests", "cards", "nodes", "quotas", "functions", "jobs", "limits"]


def get(
    what: What,
    /,
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Show requests, cards, nodes or quotas as the ledger has them, how functions and jobs stand, or limits.

    Limits follow use and are heard from the autoscaler: within a second where somebody asks for them, else within 16.

    Try:

    ```
    gpubus get requests
    gpubus get requests -A -o wide
    gpubus get cards
    gpubus get cards -o wide
    gpubus get nodes -o json
    gpubus get quotas
    gpubus get functions
    gpubus get jobs -o wide
    gpubus get limits
    ```

    Args:
        what: requests, cards, nodes, quotas, functions, jobs or limits.
        namespace: Namespace of the requests, functions, jobs or limits.
        everywhere: Those of all namespaces.
        output: table, wide or json.
        common: Connection.
    """
    if what not in ("requests", "functions", "jobs", "limits") and (namespace or everywhere):
        raise UsageError(f"{what} are in no namespace")
    settings = (common or Common()).loaded().settings
    space = "" if everywhere else namespace or settings.gpubus.namespace
    return run(_get(what, space, settings, output))


async def _get(what: What, namespace: str, settings: ClientSettings, output: str) -> Exit:
    async with connected(settings) as client:
        rows = await _rows(client, what, namespace)
        used = await _used(client, rows) if what == "cards" and output == "wide" else {}
        enforced = by_card(await client.enforcement()) if what == "cards" and output != "json" else {}
    if output == "json":
        show_json(rows)
    elif rows:
        show(_table(what, rows, used, enforced, wide=output == "wide"))
    else:
        show(Text("(none)", style="dim"))
    return Exit.OK


async def _rows(client: Client, what: What, namespace: str) -> Sequence[Any]:
    if what == "requests":
        return await client.requests(namespace=namespace)
    if what in ("functions", "jobs"):
        return await (functions if what == "functions" else jobs)(client, namespace)
    if what == "quotas":
        return await client.quotas()
    if what == "limits":
        nodes = {node.node for node in await client.nodes()}
        return limits.rows(await limits.heard(client.bus, nodes), namespace)
    return await (client.cards() if what == "cards" else client.nodes())


async def _used(client: Client, rows: Sequence[CardView]) -> Mapping[str, CardUsage]:
    """What each card does now, as its monitor says it within a few seconds."""
    hearing = Hearing(client.bus)
    async with hearing.listening():
        await hearing.heard({row.node for row in rows}, LISTEN_S)
    return use.cards(hearing.usage)


def _table(
    what: What,
    rows: Sequence[Any],
    used: Mapping[str, CardUsage],
    enforced: dict[str, CardEnforcement],
    *,
    wide: bool,
) -> Table:
    if what == "requests":
        return tables.requests(rows, now_ms=time.time_ns() // 1_000_000, wide=wide)
    if what == "quotas":
        return quotas(rows)
    if what in ("functions", "jobs"):
        return (scaling.functions if what == "functions" else scaling.jobs)(rows, wide=wide)
    if what == "limits":
        return of_limits(rows, wide=wide)
    if what == "nodes":
        return tables.nodes(rows, wide=wide)
    now_ms = time.time_ns() // 1_000_000
    extra = cards_columns(used) if wide else ()
    return tables.cards(rows, wide=wide, now_ms=now_ms, enforced=lambda c: of_card(c, enforced), extra=extra)
