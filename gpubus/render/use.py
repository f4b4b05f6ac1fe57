"""What requests use, what belongs to nobody, and the processes of a local installation, as tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from contracts.answers import CardView
from contracts.usage import CardUsage
from gpubus.local.parts import PartUse
from gpubus.render.tables import Column, table
from gpubus.render.words import UNKNOWN, csv_words, mib, share
from gpubus.use import Listed, RequestUse, Stranger


def requests(rows: Iterable[RequestUse], indices: Mapping[str, int]) -> Table:
    """What was granted and what is used of it; `indices` tells the number of a card on its node."""
    columns: list[Column[RequestUse]] = [
        ("NAMESPACE", lambda r: r.namespace or "-"),
        ("POD", lambda r: r.pod or r.uid),
        ("NODE", lambda r: r.node),
        ("CARD", lambda r: _index(r.card, indices)),
        ("SHARE", lambda r: "-" if r.share_milli is None else share(r.share_milli)),
        ("GPU", lambda r: percent(r.compute_percent) if r.card else "-"),
        ("GPU AVG", lambda r: tenths(r.average_milli) if r.card else "-"),
        ("GPU MEMORY", lambda r: f"{_plain(r.memory_used_mib)}/{mib(r.limit_mib)}" if r.card else "-"),
        ("CPU", _cpu),
        ("HELD BACK", lambda r: tenths(r.throttled_permille) if r.cpu_limited is not False else "-"),
        ("MEMORY", lambda r: mib(r.host_memory_mib)),
    ]
    return table(columns, rows)


def cards_columns(used: Mapping[str, CardUsage]) -> list[Column[CardView]]:
    """What a wide table of cards shows beside what is sold."""
    return [
        ("GPU", lambda c: percent(_of(c, used).compute_percent)),
        ("USED", lambda c: mib(_of(c, used).memory_used_mib)),
        ("NOBODY'S", lambda c: mib(_of(c, used).unmanaged_mib)),
        ("BY", lambda c: by_whom(_of(c, used))),
    ]


def by_whom(card: CardUsage) -> str:
    """`team/train-abcde 20 % 3000 MiB, …`; `?` where it is not known."""
    if card.slices is None:
        return UNKNOWN
    return csv_words(
        f"{s.namespace}/{s.pod} {percent(s.compute_percent)} {mib(s.memory_used_mib)}" for s in card.slices
    )


def strangers(rows: Iterable[Stranger]) -> Table:
    """The processes that belong to nobody."""
    columns: list[Column[Stranger]] = [
        ("NODE", lambda s: s.node),
        ("CARD", lambda s: s.card),
        ("PID", lambda s: str(s.pid)),
        ("PROGRAM", lambda s: s.command or UNKNOWN),
        ("MEMORY", lambda s: mib(s.memory_mib)),
        ("OF", lambda s: f"request {s.request}, which has no share of this card" if s.request else "-"),
    ]
    return table(columns, rows, lambda _: "yellow")


def processes(found: Listed) -> Text:
    """One line: whose the processes on the cards are."""
    line = Text("on cards ", style="dim").append(f"{found.ours} processes of requests, {found.nobodys} of nobody")
    if found.unknown:
        line.append(f", {found.unknown} unknown", style="yellow")
    return line.append(f"  (as {found.heard} monitors said)", style="dim")


def parts(found: Sequence[PartUse]) -> Text:
    """One line: what the processes of a local installation really use of this machine."""
    text = Text("this machine, real: ", style="dim")
    text.append("   ".join(f"{p.name} {tenths(p.cpu_milli)} {mib(p.memory_mib)}" for p in found))
    return text.append("   (cards and pods are simulated)", style="dim")


def percent(value: int | None) -> str:
    """`20 %`."""
    return UNKNOWN if value is None else f"{value} %"


def tenths(milli: int | None) -> str:
    """Thousandths as percent: `12.5 %`."""
    return UNKNOWN if milli is None else f"{milli // 10}.{milli % 10} %"


def _cpu(row: RequestUse) -> str:
    used = UNKNOWN if row.cpu_used_milli is None else f"{row.cpu_used_milli}"
    limit = {True: f"/{_plain(row.cpu_limit_milli)}m", False: "m", None: "m"}[row.cpu_limited]
    return used if used == UNKNOWN else used + limit


def _plain(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _index(card: str, indices: Mapping[str, int]) -> str:
    return "-" if not card else str(indices.get(card, card))


def _of(card: CardView, used: Mapping[str, CardUsage]) -> CardUsage:
    return used.get(card.card.uuid) or CardUsage(uuid=card.card.uuid)
