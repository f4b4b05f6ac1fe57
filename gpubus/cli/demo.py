"""`gpubus demo`: everything at once, shown live, audited at the end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from bus.runtime import telemetry
from bus.runtime.settings import TelemetrySettings
from gpubus.cli.common import console, show, show_all
from gpubus.cli.exits import Exit
from gpubus.live import Watcher
from gpubus.local import runfile
from gpubus.local.cluster import LocalCluster, Options, started
from gpubus.local.demo import NAMESPACE, Answers, Demo
from gpubus.local.folder import run_folder
from gpubus.local.kube import Timings
from gpubus.local.nodes import mixed
from gpubus.local.stopping import stop_on_signals, unless_stopped
from gpubus.render.audit import report
from gpubus.render.explain import explanation
from gpubus.render.spans import tree
from gpubus.render.top import View, frame, numbers, pace

EVERY_S = 0.5
PLAIN_EVERY_S = 2.0
STEPS = 4
"""Steps shown below the picture."""

ENVIRONMENT = {"GPUBUS_SCHEDULER__SUSPECT_AFTER_S": "3"}
TIMINGS = Timings(node_grace_s=5.0)
"""A node that dies is noticed within seconds, so that one can watch it."""


def demo(
    *,
    keep: Annotated[Path | None, Parameter(show_default=False)] = None,
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Run everything on this machine for a minute, under a mixed workload, and audit it at the end.

    16 simulated nodes with 116 cards of three models; 300 requests with sizes from a real cluster: bursts of halves, a
    gang, tags, one that is refused, one that no card can hold, some that end, some that are withdrawn; a node dies and
    returns. At the end: why one request is where it is, why another waits, one trace, and the audit in one line.
    Exit status 0 when everything adds up, 1 when not.

    Try:

    ```
    gpubus demo
    gpubus demo --keep ./demo
    gpubus top          # in another terminal, meanwhile
    ```

    Args:
        keep: Keep logs and state in this folder.
        debug: On an error show where in the program it came from.
    """
    del debug  # read by `main`
    with run_folder(keep) as folder:
        options = Options(
            nodes=tuple(mixed()), folder=folder, timings=TIMINGS, namespaces=(NAMESPACE,), environment=ENVIRONMENT
        )
        return int(asyncio.run(_demo(options)))


async def _demo(options: Options) -> Exit:
    async with stop_on_signals() as stop:
        answers = await unless_stopped(_run(options), stop, "gpubus demo")
    if answers is None:
        return Exit.INTERRUPTED
    show_all(_answers(answers))
    return Exit.OK if answers.report.sound else Exit.NO


async def _run(options: Options) -> Answers:
    stage = _Stage()
    async with started(options, stage.say) as cluster:
        runfile.leave(cluster.running, os.environ)
        recording = telemetry.start(TelemetrySettings(otlp_endpoint=cluster.traces_url), "client", "client-demo")
        try:
            stage.say(f"ready: {len(options.nodes)} nodes, {sum(n.cards for n in options.nodes)} cards")
            async with stage.showing(cluster):
                return await Demo(cluster, stage.say).run()
        finally:
            runfile.remove(cluster.running, os.environ)
            await asyncio.to_thread(recording.shutdown, 1.0)


class _Stage:
    """Where it is shown: a live picture on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._steps: list[Text] = []
        self._live: Live | None = None

    def say(self, text: str) -> None:
        """A step was taken."""
        line = Text(f"{time.monotonic() - self._began:5.1f} s  ", style="dim").append(text, style="default")
        self._steps.append(line)
        if self._live is None:
            show(line)

    @asynccontextmanager
    async def showing(self, cluster: LocalCluster) -> AsyncIterator[None]:
        """Draw while the context is open; the last picture stays."""
        out = console()
        watcher = Watcher(cluster.client)
        async with watcher.listening():
            if not out.is_terminal:
                async with _repeating(self._plain(watcher), "demo: lines"):
                    yield
                return
            with Live(console=out, auto_refresh=False, transient=False) as live:
                self._live = live
                try:
                    async with _repeating(self._draw(watcher, live), "demo: picture"):
                        yield
                finally:
                    self._live = None

    async def _plain(self, watcher: Watcher) -> None:
        while True:
            view = await watcher.look()
            self.say(f"{numbers(view).plain.strip()}   {pace(view).plain}")
            await asyncio.sleep(PLAIN_EVERY_S)

    async def _draw(self, watcher: Watcher, live: Live) -> None:
        while True:
            live.update(self._picture(await watcher.look()), refresh=True)
            await asyncio.sleep(EVERY_S)

    def _picture(self, view: View) -> Group:
        return Group(frame(view), Text(), *self._steps[-STEPS:])


@asynccontextmanager
async def _repeating(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _answers(answers: Answers) -> Iterator[RenderableType]:
    for title, body in (
        ("why is it there?  gpubus explain shown", list(explanation(answers.placed))),
        ("why does it wait?  gpubus explain too-big", list(explanation(answers.pending))),
        ("how did it get there?  gpubus trace shown", [tree(answers.trace)] if answers.trace else [Text("no trace")]),
        ("does it add up?  gpubus audit", list(report(answers.report))),
    ):
        yield Text()
        yield Text(title, style="bold")
        yield from body
