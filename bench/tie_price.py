"""Draws a picture for docs/placement.md with the functions that price in production.

    python -m bench.tie_price docs/images/tie-price.svg

Needs matplotlib (`gpubus[plot]`). Equal code makes equal bytes: no date, and fixed names inside the SVG.
"""

from __future__ import annotations

import sys

from matplotlib import rc_context
from matplotlib.figure import Figure

from scheduler.core.menu.demand import Demand, Idle, tie_prices
from scheduler.core.menu.terms import DEPARTURES, MICRO
from scheduler.core.menu.ties import ONE, Ties

CARDS = 100_000
"""Milli of all cards in the example."""

TENTH = Demand(ties=Ties(groups=(0, 1), count=2, sets=((0b10, ONE // 9),)))
"""A tenth of the demand is tied to the second group."""

IDLE_PERCENT = 20
"""Of the other nodes' cards."""


def price(part: float, idle: float) -> float:
    """Of a milli on the nodes that hold this part of the cards, of which so much is idle."""
    inside = round(CARDS * part)
    left = round(inside * idle), (CARDS - inside) * IDLE_PERCENT // 100
    room = Idle(
        milli=sum(left),
        cpu_milli=0,
        slots=(),
        by_group=(left[1], left[0], 0),
        cards_by_group=(CARDS - inside, inside, 0),
    )
    return tie_prices(TENTH, room, DEPARTURES)[0][1] / MICRO


def ratio(part: float, demand: float) -> float:
    """T of a set with this part of the cards, and so many times as much of the demand."""
    tied = demand * part
    return tied * (1 - part) / (part * (1 - tied))


def draw(file: str) -> None:
    """Left: the price while nodes fill. Right: what odds do to sets of every size."""
    idle = [step / 200 for step in range(201)]
    with rc_context({"svg.hashsalt": "gpubus", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11.0, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for part in (0.05, 0.1, 0.14, 0.2):
            prices = [price(part, each) for each in idle]
            left.plot([100 * each for each in idle], prices, label=f"{part:.0%} of the cards")
        left.set_xlabel("idle on the nodes that they need, %")
        left.set_ylabel("price of a milli of them")
        left.set_title("a tenth of the demand fits few nodes only; elsewhere 20 % idle", fontsize=9)
        left.legend(fontsize=8, loc="center right")
        for color, demand, most in (("C0", 0.85, 98), ("C3", 1.2, 80)):
            sizes = range(1, most)
            right.axhline(demand, color=color, linestyle=":", label=f"demand / room = {demand:g}")
            odds = [ratio(size / 100, demand) for size in sizes]
            right.plot(list(sizes), odds, color=color, label="the same sets, odds ratio")
        right.axhline(DEPARTURES.tie_threshold / 1000, color="0.6", linestyle="--", linewidth=1.0, label="threshold")
        right.set_xlabel("part of the cluster in the set, %")
        right.set_ylim(0, 3)
        right.set_title("why not demand over room: large sets would always be priced", fontsize=9)
        right.legend(fontsize=8)
        figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    draw(sys.argv[1])
