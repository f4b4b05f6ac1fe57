"""The end of a replay as text: the numbers, a picture of the allocation over time, and the same as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from rich.text import Text

from contracts.units import WHOLE_CARD
from gpubus.render.audit import line
from gpubus.render.plot import plot
from gpubus.simulate.replay import Outcome, Sample

COLUMNS = ("at_s", "arrived", "placed", "pending", "ended", "sold_milli", "cards", "sold_percent")


def outcome(found: Outcome) -> Iterator[Text]:
    """Numbers, picture, audit."""
    s = found.summary
    peak = max((sample.percent for sample in found.samples), default=0.0)
    yield Text(
        f"{found.pods} pods that ask for {found.demand_milli / WHOLE_CARD:.1f} cards in all: placed {s.placed}, "
        f"pending {s.pending}, ended {s.ended}, refused {found.report.counts.refused}"
    )
    yield Text(f"at most {peak:.1f} % of the cards were sold; the last request came {found.late_s:.1f} s late")
    yield Text()
    yield Text("cards sold, % of all", style="dim")
    yield from (Text(row, style="cyan") for row in plot([(p.at_s, p.percent) for p in found.samples]))
    yield Text()
    yield line(found.report)


def as_csv(samples: tuple[Sample, ...]) -> str:
    """One line a sample, with a header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for p in samples:
        row = (p.at_s, p.arrived, p.placed, p.pending, p.ended, p.sold_milli, p.cards, f"{p.percent:.3f}")
        writer.writerow(row)
    return out.getvalue()
