"""An audit's report as text: the findings, the proof, and one line that says it all."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from gpubus.audit.snapshot import Counts, Finding, Report
from gpubus.render import use
from gpubus.render.tables import Column, table
from gpubus.render.words import plural


def report(found: Report) -> Iterator[RenderableType]:
    """Findings first, the line last."""
    if found.findings:
        columns: list[Column[Finding]] = [
            ("FINDING", lambda f: f.kind),
            ("WHAT", lambda f: f.subject),
            ("REASON", lambda f: f.text),
        ]
        yield table(columns, found.findings, lambda _: "red")
        yield Text()
    yield Text("ledger  ", style="dim").append(str(found.proof), style="default")
    yield Text("replay  ", style="dim").append(again(found), style="default")
    if found.processes.heard:
        yield use.processes(found.processes)
    if found.strangers:
        yield use.strangers(found.strangers)
    yield line(found)


def again(found: Report) -> str:
    """How many decisions, and places kept for those who wait, were computed again, and how many came out otherwise."""
    replayed = found.replayed
    otherwise = len(replayed.differences)
    verdict = f"{otherwise} came out otherwise" if otherwise else "all equal, byte for byte"
    passed = "".join(f"; {count} by {policy}, which is not known here" for policy, count in replayed.unknown.items())
    kept = f" and {plural(replayed.nominations, 'place')} in sight" if replayed.nominations else ""
    return f"{replayed.decisions} decisions{kept} computed again from the log before each: {verdict}{passed}"


def line(found: Report) -> Text:
    """`placed 210, pending 40, refused 3, ended 50, withdrawn 1, over-commits 0`, and the verdict."""
    verdict = Text("adds up", style="bold green")
    if not found.sound:
        count = len(found.findings)
        verdict = Text(f"{count} finding{'s' if count != 1 else ''}", style="bold red")
    return Text("audit   ", style="dim").append(numbers(found.counts), style="bold").append(": ").append(verdict)


def numbers(counts: Counts) -> str:
    """The numbers of the line; dead letters only when there are some."""
    letters = f"dead letters {counts.dead_letters}, " if counts.dead_letters else ""
    return (
        f"placed {counts.placed}, pending {counts.pending}, refused {counts.refused}, ended {counts.ended}, "
        f"withdrawn {counts.withdrawn}, {letters}over-commits {counts.over_commits}"
    )
