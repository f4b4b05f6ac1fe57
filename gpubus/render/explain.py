"""An `Explanation` as text: where and why, or needed, free and the nearest change that would fit.

What flows in: the scheduler's answer. What flows out: lines and tables for the terminal. It invents no number: what
the answer does not hold is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from contracts.answers import Explanation, Nearest, NodeVerdict, QueueView
from contracts.decisions import Rationale
from contracts.outcomes import Reason
from gpubus.render.tables import PHASE_STYLES
from gpubus.render.words import ask, piece, plural

_LABEL = 10
"""Width of the left column: the longest label is `runner-up`."""


def explanation(answer: Explanation, *, what_if: bool = False) -> Iterator[RenderableType]:
    """The whole answer, top to bottom."""
    yield _title(answer, what_if=what_if)
    if answer.ask is not None:
        yield _line("asks", ask(answer.ask))
    if answer.placement is not None:
        yield from _placed(answer)
    else:
        yield from _nowhere(answer)
    yield from _scores(answer)


def _title(answer: Explanation, *, what_if: bool) -> Text:
    name = f"{answer.namespace}/{answer.name}" if answer.namespace else answer.name
    title = Text(name, style="bold")
    if what_if:
        title.append("  would be " + ("placed" if answer.placement else "pending"), style="cyan")
        return title
    title.append(f"  {answer.phase}", style=PHASE_STYLES.get(answer.phase, ""))
    if answer.uid:
        title.append(f"  uid {answer.uid}", style="dim")
    return title


def _line(label: str, words: str, style: str = "") -> Text:
    return Text(f"{label:<{_LABEL}}", style="dim").append(words, style=style or "default")


def _placed(answer: Explanation) -> Iterator[Text]:
    placement = answer.placement
    if placement is None:
        return
    pieces = [piece(part) for part in placement.slices] or ["no card"]
    yield _line("where", f"{placement.node}: {pieces[0]}")
    yield from (_line("", f"{' ' * len(placement.node)}  {more}") for more in pieces[1:])
    if answer.rationale is not None:
        yield from _why(answer.rationale, answer.ledger_sequence)
    yield from (_line("note", _reason(reason), "yellow") for reason in answer.reasons)


def _why(why: Rationale, sequence: int) -> Iterator[Text]:
    at = f" at ledger sequence {sequence}" if sequence else ""
    yield _line("decided", f"by policy {why.policy}{at}")
    yield _line("chosen", f"{why.chosen.node}, score {why.chosen.score}", "green")
    if why.runner_up is None:
        yield _line("runner-up", "none")
    else:
        less = why.chosen.score - why.runner_up.score
        tie = " (equal: the order of names decided)" if less == 0 else f" ({less} less)"
        yield _line("runner-up", f"{why.runner_up.node}, score {why.runner_up.score}{tie}")
    rejected = f", {plural(why.rejected_nodes, 'node')} did not fit" if why.rejected_nodes else ""
    yield _line("of", f"{plural(why.feasible_nodes, 'node')} that fit{rejected}")


def _queue(queue: QueueView) -> Iterator[Text]:
    """Where it stands, and who is in its way."""
    aged = f" and {queue.aged} for its wait" if queue.aged else ""
    priority = f"priority {queue.priority}{aged}, waited {queue.waited_s} s"
    yield _line("queue", f"{queue.position} of {queue.pending}, {priority}")
    share = f"{queue.share_ppm / 10_000:.1f} % of the cards" + (f", weight {queue.weight}" if queue.weight > 1 else "")
    yield _line("share", f"its namespace holds {share}")
    if queue.nominated:
        yield _line("place", f"kept for it on {queue.nominated}", "cyan")
    if queue.waits_for:
        yield _line("held by", ", ".join(queue.waits_for))


def _nowhere(answer: Explanation) -> Iterator[RenderableType]:
    if answer.queue is not None:
        yield from _queue(answer.queue)
    for number, reason in enumerate(answer.reasons):
        yield _line("because" if number == 0 else "", _reason(reason))
    if numbers := [r for r in answer.reasons if r.needed is not None]:
        yield _numbers(numbers)
    if answer.nearest is not None:
        yield _line("nearest", _nearest(answer.nearest), "cyan")


def _reason(reason: Reason) -> str:
    on = f"on {plural(reason.nodes, 'node')}: " if reason.nodes else ""
    return f"{on}{reason.text}"


def _numbers(reasons: list[Reason]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("RULE", "NODES", "NEEDED", "FREE", "UNIT", "CLOSEST"):
        made.add_column(title, no_wrap=True, justify="right" if title in {"NODES", "NEEDED", "FREE"} else "left")
    for reason in reasons:
        free = "?" if reason.free is None else str(reason.free)
        closest = " ".join(filter(None, (reason.node, reason.card))) or "-"
        made.add_row(reason.code, str(reason.nodes), str(reason.needed), free, reason.unit, closest)
    return made


def _nearest(nearest: Nearest) -> str:
    if nearest.text:
        return nearest.text
    where = " ".join(filter(None, (nearest.node, nearest.card)))
    return f"{nearest.missing} {nearest.unit} more on {where}".strip()


def _scores(answer: Explanation) -> Iterator[RenderableType]:
    scored = [v for v in answer.nodes if v.score is not None]
    rejected = [v for v in answer.nodes if v.score is None and v.reason is not None]
    if scored:
        yield Text()
        yield _score_table(scored)
    if rejected:
        yield Text()
        yield _card_table(rejected)


def _score_table(verdicts: list[NodeVerdict]) -> Table:
    """One row a node, one column a scoring rule; rules in the order of the first node that has them."""
    rules = list(dict.fromkeys(rule for v in verdicts for rule in v.scores))
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("NODE THAT FITS", no_wrap=True)
    for title in ("SCORE", *rules):
        made.add_column(title, justify="right", no_wrap=True)
    for v in verdicts:
        made.add_row(v.node, str(v.score), *(str(v.scores[rule]) if rule in v.scores else "-" for rule in rules))
    return made


def _card_table(verdicts: list[NodeVerdict]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("NODE THAT DOES NOT", "RULE", "WHY"):
        made.add_column(title, no_wrap=title != "WHY")
    for v in verdicts:
        if v.reason is not None:
            made.add_row(v.node, v.reason.code, v.reason.text)
    return made
