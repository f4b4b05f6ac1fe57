"""The cluster at a glance: a row a node, a bar a card, and one line of numbers. Pure.

    NODE   0     1     2     3     SOLD USED MODEL
    a40-01 █████ ████▏ ██▌        2.4/4 41 % A100-40G

A bar is what is sold of a card; `USED` is what the cards were last seen doing, `?` when nobody said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from contracts.answers import CardView, RequestView, Summary
from contracts.units import WHOLE_CARD
from gpubus.local.parts import PartUse
from gpubus.render import use
from gpubus.render.words import UNKNOWN, bar
from gpubus.use import RequestUse, Stranger

STRANGERS = 5
"""Processes of nobody that are shown; the audit lists them all."""
CELL = 5
"""Columns of one card's bar: eighths of these show every fortieth of a card."""

_STYLES = {"": "cyan", "healthy": "cyan", "stale": "yellow", "suspect": "yellow", "failed": "red", "missing": "red"}


class Rates(Struct, frozen=True, kw_only=True):
    """Per second, since the last look."""

    accepted: float = 0.0
    placed: float = 0.0
    ended: float = 0.0


class View(Struct, frozen=True, kw_only=True):
    """What is drawn."""

    cards: Sequence[CardView]
    summary: Summary
    used: Mapping[str, int] = {}
    """Card UUID -> percent of compute, as last heard."""
    pending: Sequence[RequestView] = ()
    rates: Rates = Rates()
    requests: Sequence[RequestUse] = ()
    """What each uses, the busiest first."""
    strangers: Sequence[Stranger] = ()
    parts: Sequence[PartUse] = ()
    """Of a local installation: its processes, as they are."""


def frame(view: View, *, rows: int = 60, waiting: int = 5, busiest: int = 0) -> Group:
    """One picture: at most `rows` nodes (the fullest), `waiting` pending requests and the `busiest` of the placed."""
    nodes = [(name, list(cards)) for name, cards in groupby(view.cards, key=lambda c: c.node)]
    shown = nodes if len(nodes) <= rows else sorted(sorted(nodes, key=_sold)[-rows:], key=lambda node: node[0])
    parts: list[RenderableType] = [numbers(view), pace(view), Text(), _grid(shown, view)]
    if len(shown) < len(nodes):
        parts.append(Text(f"… and {len(nodes) - len(shown)} nodes with less sold", style="dim"))
    if view.pending and waiting:
        parts += [Text(), _waiting(view.pending, waiting)]
    return Group(*parts, *_used_by(view, busiest))


def _used_by(view: View, busiest: int) -> list[RenderableType]:
    shown: list[RenderableType] = []
    if view.requests and busiest:
        indices: dict[str, int] = {card.card.uuid: card.card.index for card in view.cards}
        shown += [Text(), use.requests(view.requests[:busiest], indices)]
        if len(view.requests) > busiest:
            shown.append(Text(f"… and {len(view.requests) - busiest} that use less", style="dim"))
    if view.strangers:
        shown += [Text(), Text("processes of nobody:", style="yellow"), use.strangers(view.strangers[:STRANGERS])]
    if view.parts:
        shown += [Text(), use.parts(view.parts)]
    return shown


def numbers(view: View) -> Text:
    """One line: how many requests are where."""
    s = view.summary
    line = Text()
    for label, value, style in (
        ("placed", str(s.placed), "green"),
        ("running", str(s.running), "green"),
        ("pending", str(s.pending), "yellow"),
        ("ended", str(s.ended), ""),
        ("withdrawn", str(s.withdrawn), ""),
        ("over-commits", str(s.over_commits), "bold red" if s.over_commits else "green"),
    ):
        line.append(f"{label} ", style="dim").append(value, style=style).append("   ")
    return line


def pace(view: View) -> Text:
    """One line: how much is sold, how fast it goes."""
    rates = view.rates
    sold = sum(card.used_milli for card in view.cards)
    part = percent(sold, len(view.cards) * WHOLE_CARD)
    line = Text("sold ", style="dim").append(f"{sold / WHOLE_CARD:.1f} of {len(view.cards)} cards ({part})   ", "cyan")
    flow = f"{rates.accepted:.0f}/s in, {rates.placed:.0f}/s placed, {rates.ended:.0f}/s ended"
    return line.append(flow, style="dim")


def percent(part: int, whole: int) -> str:
    """`45 %`; `?` of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else UNKNOWN


def _sold(node: tuple[str, list[CardView]]) -> int:
    return sum(card.used_milli for card in node[1])


def _grid(nodes: Sequence[tuple[str, list[CardView]]], view: View) -> Table:
    most = max((len(cards) for _, cards in nodes), default=0)
    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    made.add_column("NODE", no_wrap=True)
    for index in range(most):
        made.add_column(str(index), width=CELL, no_wrap=True)
    for title in ("SOLD", "USED"):
        made.add_column(title, justify="right", no_wrap=True)
    made.add_column("MODEL", no_wrap=True)
    for name, cards in nodes:
        cells = [Text(bar(c.used_milli, WHOLE_CARD, CELL), style=_style(c)) for c in cards]
        cells += [Text()] * (most - len(cells))
        sold = f"{_sold((name, cards)) / WHOLE_CARD:.1f}/{len(cards)}"
        made.add_row(name, *cells, sold, _used(cards, view.used), cards[0].card.model)
    return made


def _style(card: CardView) -> str:
    return f"{_STYLES.get(card.health, 'magenta')} on grey15"


def _used(cards: Sequence[CardView], used: Mapping[str, int]) -> str:
    known = [used[c.card.uuid] for c in cards if c.card.uuid in used]
    return f"{sum(known) // len(known)} %" if known else UNKNOWN


def _waiting(pending: Sequence[RequestView], limit: int) -> Text:
    text = Text("waiting: ", style="dim")
    names = [f"{r.namespace}/{r.name}" for r in pending[:limit]]
    text.append(", ".join(names), style="yellow")
    return text.append(f" and {len(pending) - limit} more", style="dim") if len(pending) > limit else text
