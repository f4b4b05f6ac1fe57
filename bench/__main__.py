"""`make bench`: run every table and print it. `python -m bench ledger decide` runs the ones that are named.

Machines are noisy: read ratios to the floor of the same run before absolute numbers.
"""

from __future__ import annotations

import importlib
import platform
import sys
import time

from rich.console import Console
from rich.table import Table

from bench.rows import Row

TABLES = {
    "decide": "placement decisions in memory, 1,000 nodes x 8 cards",
    "constraints": "decisions with spread, neighbours and preferences, 5,000 nodes with 40,000 residents",
    "fleet": "heartbeats of a fleet: CPU of the scheduler; a failing card: how soon it is out of the pool",
    "simulate": "one seed of the arrival protocol, about 11,000 pods on 1,200 nodes",
    "queue": "the queue in memory: ten thousand pending, five thousand nodes full of lower priority",
    "training": "elastic jobs: the dry run over 5,000 nodes, and the published experiment on virtual time",
    "ledger": "the ledger on a real nats-server, every write synced to disk",
    "line": "requests decided and committed by a scheduler process; submit to committed",
    "stages": "what one request costs the scheduler, stage by stage, 5,000 nodes",
    "functions": "functions: load to decision, waking up, calls lost while workers are killed",
    "monitor": "measuring on a node: cost of a period, age of a message, pods that come and go",
    "enforce": "a desired state in the kernel of a node, on a real nats-server (needs root and cgroups)",
    "vertical": "limits that follow use: load change to quota in the kernel; cards saved by stretching (root, cgroups)",
    "reconciler_start": "a reconciler that starts with 5,000 nodes and 20,000 pods on a real API server",
    "reconcile": "pods created and bound on a real API server (needs tests/cluster/build.sh)",
}


def main(names: list[str]) -> int:
    """Run the tables named, or all; a table that cannot run says why and the others go on."""
    console = Console(width=150)
    if {"-h", "--help"} & set(names):
        console.print("python -m bench [TABLE ...]: all tables, or the ones that are named\n")
        for name, what in TABLES.items():
            console.print(f"  {name:<18}{what}", highlight=False)
        return 0
    console.print(f"{platform.platform()}, Python {platform.python_version()}", style="dim")
    failed = 0
    for name in names or list(TABLES):
        if name not in TABLES:
            console.print(f"no table {name!r}; there are {', '.join(TABLES)}", style="red")
            return 2
        began = time.monotonic()
        try:
            rows = importlib.import_module(f"bench.{name}").run()
        except Exception as error:  # noqa: BLE001 - one table that cannot run must not hide the others
            console.print(f"{name}: {type(error).__name__}: {error}", style="red")
            failed += 1
            continue
        console.print(_table(name, rows))
        console.print(f"{time.monotonic() - began:.0f} s\n", style="dim")
    return 1 if failed else 0


def _table(name: str, rows: list[Row]) -> Table:
    table = Table(title=f"{name}: {TABLES[name]}", title_justify="left")
    for column, justify in (("what", "left"), ("measured", "right"), ("floor", "right"), ("of floor", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]  # the four are rich's own words
    for column in ("goal", "how"):
        table.add_column(column)
    for row in rows:
        floor = "" if row.floor is None else f"{_number(row.floor)} {row.unit}"
        ratio = f"{row.value / row.floor:.0%}" if row.floor else ""
        table.add_row(row.name, f"{_number(row.value)} {row.unit}", floor, ratio, row.goal, row.note)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
