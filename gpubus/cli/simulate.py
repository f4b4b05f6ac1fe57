"""`gpubus simulate`: placement policies compared on a recorded trace, by the published arrival protocol."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.progress import Progress

from contracts.messages import Value
from contracts.units import WHOLE_CARD
from gpubus.cli.common import console, show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.cli.submit import read_text
from gpubus.errors import UsageError
from gpubus.local.nodes import NodeSpec
from gpubus.render import chart
from gpubus.render.simulation import simulated
from gpubus.simulate import openb
from gpubus.simulate.arrivals import arrivals
from gpubus.simulate.openb import PodRow
from gpubus.simulate.protocol import Knowledge, Run, cluster_of, mix_of
from gpubus.simulate.report import Published, RunOutcome, Simulated, as_csv, lines, published_of
from scheduler.core.policies import POLICIES

Quiet = Parameter(show_default=False)
MOST_RATIO = 10.0
LARGEST_SEED = 2**32 - 1
TOLD_EVERY = 100

Traces = dict[str, list[PodRow]]


def simulate(
    *,
    nodes: str,
    trace: Annotated[list[str], Parameter(negative="")],
    policy: Annotated[list[str], Parameter(negative="")] = ["fgd"],  # noqa: B006 - read by cyclopts, never changed
    seeds: str = "42,43,44",
    ratio: float = 1.3,
    mix: Knowledge = "trace",
    published: Annotated[str | None, Quiet] = None,
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
    csv: Annotated[str | None, Quiet] = None,
    plot: Annotated[str | None, Quiet] = None,
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Compare placement policies on a recorded trace: how much of the cards they get sold.

    Files are in the format of the openb trace (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023). The pods are
    shuffled, drawn again until they ask for --ratio times the cards there are, and arrive one by one on an empty
    cluster; each is placed at once by the scheduler's own code, or dropped. Nothing ends. This is the protocol of
    Weng et al. (USENIX ATC 2023), and --published sets their own numbers beside the measured ones. A run of 11,000
    pods on 1,213 nodes takes one to ten seconds. Needs no bus.

    Try:

    ```
    gpubus simulate --nodes openb_node_list_gpu_node.csv --trace openb_pod_list_default.csv
    gpubus simulate --nodes nodes.csv --trace a.csv --trace b.csv --policy fgd --policy packing --plot curves.png
    ```

    Args:
        nodes: Node list (CSV).
        trace: Pod list (CSV); several: give the flag again.
        policy: Placement policy by name; several: give the flag again. "all" is all there are.
        seeds: Numbers with commas between them; each is one run, with its own order of arrival and of nodes.
        ratio: Demand that arrives, in parts of all cards.
        mix: What fgd knows of what is coming: "trace", the mix of the whole trace, as published; "live", what has
            arrived so far, as in production.
        published: The authors' own results (analysis_allo_discrete.csv of their repository), to set beside.
        output: table or json.
        csv: Write every point of every run to this file.
        plot: Draw allocation and fragments to this file (.png, .svg, .pdf); needs matplotlib: gpubus[plot].
        debug: On an error show where in the program it came from.
    """
    del debug  # read by `main`
    if plot is not None:
        chart.check(plot)
    if not 0 < ratio <= MOST_RATIO:
        raise UsageError(f"--ratio {ratio:g}: more than 0, at most {MOST_RATIO:g}")
    specs = openb.nodes(read_text(nodes), nodes)
    if not specs:
        raise UsageError(f"{nodes}: holds no node with cards")
    beside = published_of(read_text(published), published, ratio) if published is not None else {}
    plan = _Plan(
        nodes=tuple(specs),
        traces=_traces(trace),
        policies=_policies(policy),
        seeds=_seeds(seeds),
        ratio=ratio,
        mix=mix,
    )
    runs, complete = _until_interrupted(plan)
    _show(plan, runs, beside, as_json=output == "json")
    if csv is not None:
        _write("--csv", csv, as_csv(runs))
    if plot is not None and runs:
        chart.draw(runs, plan.cards, plot)
    return int(Exit.OK if complete else Exit.INTERRUPTED)


class _Plan(Value, frozen=True, kw_only=True):
    """All runs that were asked for."""

    nodes: tuple[NodeSpec, ...]
    traces: Traces
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    ratio: float
    mix: Knowledge

    @property
    def cards(self) -> int:
        """Of all nodes."""
        return sum(node.cards for node in self.nodes)

    def runs(self) -> list[tuple[str, str, int]]:
        """Trace, policy and seed of each."""
        return [(name, policy, seed) for name in self.traces for policy in self.policies for seed in self.seeds]

    def run(self, name: str, policy: str, seed: int, progress: Progress) -> RunOutcome:
        """One of them."""
        rows = self.traces[name]
        order = arrivals(rows, capacity_milli=WHOLE_CARD * self.cards, ratio=self.ratio, seed=seed)
        task = progress.add_task(f"{name} {policy} seed {seed}", total=len(order))

        def told(done: int) -> None:
            if done % TOLD_EVERY == 0:
                progress.update(task, completed=done)

        curve = Run(cluster_of(self.nodes, seed), policy, mix_of(rows), self.mix).play(order, told)
        progress.remove_task(task)
        return RunOutcome(trace=name, policy=policy, seed=seed, curve=curve)


def _until_interrupted(plan: _Plan) -> tuple[list[RunOutcome], bool]:
    """The runs that came to their end, and whether all did: Ctrl-C keeps what is there."""
    done: list[RunOutcome] = []
    todo = plan.runs()
    screen = console(stderr=True)
    try:
        with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
            for name, policy, seed in todo:
                found = plan.run(name, policy, seed, progress)
                done.append(found)
                refused = f"{found.curve.refused} of {found.curve.arrived} did not fit"
                screen.print(f"{len(done)}/{len(todo)} {name} {policy} seed {seed}: {refused}", style="dim")
    except KeyboardInterrupt:
        screen.print(f"interrupted after {len(done)} of {len(todo)} runs", style="yellow")
    return done, len(done) == len(todo)


def _show(plan: _Plan, runs: Sequence[RunOutcome], published: Published, *, as_json: bool) -> None:
    found = Simulated(
        nodes=len(plan.nodes),
        cards=plan.cards,
        ratio=plan.ratio,
        mix=plan.mix,
        lines=lines(runs, plan.ratio, published),
    )
    if as_json:
        show_json(found)
    else:
        show_all(simulated(found))


def _traces(files: Sequence[str]) -> Traces:
    """Pods by the name of their file without its ending."""
    found: Traces = {}
    for file in files:
        name = Path(file).stem
        if name in found:
            raise UsageError(f"--trace {file}: there are two called {name}")
        found[name] = openb.pods(read_text(file), file)
        if not any(row.demand_milli for row in found[name]):
            raise UsageError(f"{file}: holds no pod that asks for a card")
    return found


def _policies(names: Sequence[str]) -> tuple[str, ...]:
    chosen = list(POLICIES) if "all" in names else list(dict.fromkeys(names))
    if unknown := [name for name in chosen if name not in POLICIES]:
        raise UsageError(f"--policy {', '.join(unknown)}: there are {', '.join(POLICIES)}, all")
    return tuple(chosen)


def _seeds(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(re.fullmatch("[0-9]{1,10}", word.strip()) for word in words):
        raise UsageError(f"--seeds {text}: whole numbers with commas between them, as 42,43,44")
    found = list(dict.fromkeys(int(word) for word in words))
    if max(found) > LARGEST_SEED:
        raise UsageError(f"--seeds {text}: at most {LARGEST_SEED}")
    return tuple(found)


def _write(flag: str, file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{flag} {file}: {error.strerror or error}") from error
