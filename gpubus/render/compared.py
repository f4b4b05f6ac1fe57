"""Policies side by side: what each comes to, the paired difference to the first one with its error, and a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from contracts.messages import Value
from gpubus.render.simulation import grid, percents, short
from gpubus.render.tables import Column, table
from gpubus.simulate.report import Instead
from gpubus.simulate.results import LESS_IS_BETTER, Result

HALF = 12
"""Characters on either side of zero."""

SURE = 2.0
"""Standard errors from zero at which a difference is told as one: 95 % of chances, roughly."""


class Compared(Value, frozen=True, kw_only=True):
    """The whole answer."""

    against: str
    """The policy that the others are compared with."""
    results: tuple[Result, ...]
    instead: tuple[Instead, ...] = ()
    """Policies that could not decide everything."""


def compared(found: Compared) -> Iterator[RenderableType]:
    """One row for each trace, load, measure and policy."""
    yield Text(
        f"differences to {found.against} on the same arrivals: mean, standard error, seeds that it is above in; "
        "allocation in % of all cards, lost in % of the card time asked for",
        style="dim",
    )
    yield table(_columns(found.results), found.results, _style)
    for each in found.instead:
        yield Text(each.told, style="yellow")


def _columns(results: Sequence[Result]) -> list[Column[Result]]:
    most = max((abs(r.against.mean) for r in results if r.against is not None), default=0.0)
    return [
        ("TRACE", lambda r: short(r.trace)),
        ("LOAD", lambda r: "-" if r.load is None else f"{r.load:g}"),
        ("MEASURE", lambda r: r.measure),
        ("POLICY", lambda r: r.policy),
        ("MEAN", lambda r: percents(r.mean)),
        ("SD", lambda r: percents(r.spread)),
        ("DIFF", lambda r: "" if r.against is None else percents(r.against.mean, "+.2f")),
        ("SE", lambda r: "" if r.against is None else percents(r.against.error)),
        ("ABOVE IN", lambda r: "" if r.against is None else f"{r.against.wins}/{r.against.pairs}"),
        ("", lambda r: picture(r, most)),
    ]


def picture(result: Result, most: float) -> str:
    """A bar from zero: to the right what is more, to the left what is less; full length = the largest difference."""
    if result.against is None:
        return " " * HALF + "│"
    length = round(HALF * abs(result.against.mean) / most) if most else 0
    bar = "█" * length
    return f"{' ' * HALF}│{bar}" if result.against.mean >= 0 else f"{bar.rjust(HALF)}│"


def _style(result: Result) -> str:
    """Green: better than chance explains; red: worse."""
    if result.against is None or result.against.error is None:
        return ""
    if abs(result.against.mean) < SURE * result.against.error:
        return ""
    better = (result.against.mean > 0) != (result.measure in LESS_IS_BETTER)
    return "green" if better else "red"


def markdown(found: Compared) -> str:
    """The same for documents."""
    head = ["trace", "load", "measure", "policy", "mean", f"- {found.against}", "se", "above in"]
    return "\n\n".join([grid(head, [_cells(result) for result in found.results]), *(e.told for e in found.instead)])


def _cells(r: Result) -> list[str]:
    load = "-" if r.load is None else f"{r.load:g}"
    cells = [short(r.trace), load, r.measure, f"`{r.policy}`", percents(r.mean)]
    if r.against is None:
        return [*cells, "", "", ""]
    diff = percents(r.against.mean, "+.2f")
    return [*cells, diff, percents(r.against.error), f"{r.against.wins}/{r.against.pairs}"]
