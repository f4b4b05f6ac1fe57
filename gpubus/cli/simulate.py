"""`gpubus simulate`: placement policies on a trace or a generated workload, with and without departures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from gpubus.cli.common import show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.cli.simulating import need_solver, until_interrupted, writable, write
from gpubus.cli.simulationflags import Quiet, SimulationFlags
from gpubus.cli.submit import read_text
from gpubus.errors import UsageError
from gpubus.render import chart
from gpubus.render.simulation import markdown, simulated
from gpubus.simulate.bounds import BOUNDS
from gpubus.simulate.plan import Done, Plan
from gpubus.simulate.report import (
    Published,
    Simulated,
    as_csv,
    lines,
    published_of,
    steady_csv,
    steady_lines,
    tenant_lines,
)
from gpubus.simulate.results import instead, outcomes, steady_outcomes

NO_FLAGS = SimulationFlags()


def simulate(
    *,
    flags: SimulationFlags = NO_FLAGS,
    bound: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    published: Annotated[str | None, Quiet] = None,
    output: Annotated[Literal["table", "json", "markdown"], Parameter(name=["--output", "-o"])] = "table",
    csv: Annotated[str | None, Quiet] = None,
    plot: Annotated[str | None, Quiet] = None,
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Simulate placement policies: how much of the cards they get sold.

    Files are in the format of the openb trace (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023). The code that
    decides is the scheduler's, over its own ledger; there is no second scheduler, and no bus is needed.

    Without --load the pods are shuffled, drawn again until they ask for --ratio times the cards there are, and arrive
    one by one on an empty cluster; each is placed at once or dropped, and nothing ends. This is the protocol of Weng et
    al. (USENIX ATC 2023), and --published sets their own numbers beside the measured ones. A run of 11,000 pods on
    1,213 nodes takes seconds.

    With --load pods come and go on a virtual clock; what counts is allocation averaged over time, and card time lost.

    Try:

    ```
    gpubus simulate --nodes openb_node_list_gpu_node.csv --trace openb_pod_list_default.csv
    gpubus simulate --trace FOLDER --policy fgd --policy best-fit --bound --jobs 2 -o markdown
    gpubus simulate --nodes nodes.csv --trace a.csv --trace b.csv --policy fgd --policy packing --plot curves.png
    gpubus simulate --nodes nodes.csv --trace pods.csv --load 0.9,1.0,1.1 --hours 14 --discard 4
    gpubus simulate --workload mine.toml --load recorded --hours 1 --discard 0 --policy ./mine.py
    ```

    Args:
        flags: What is simulated.
        bound: Also what no policy could pass, by linear programming (without --load); needs highspy: gpubus[lp].
        published: The authors' own results (analysis_allo_discrete.csv of their repository), to set beside: means
            of all their seeds, or with --draws published of those that are run.
        output: table, json or markdown.
        csv: Write every point of every run to this file.
        plot: Draw allocation and fragments to this file (.png, .svg, .pdf); needs matplotlib: gpubus[plot].
        debug: On an error show where in the program it came from.
    """
    del debug  # read by `main`
    writable("--csv", csv)
    writable("--plot", plot)
    if plot is not None:
        chart.check(plot)
    if bound:
        need_solver("--bound")
        if flags.load is not None:
            raise UsageError("--bound goes without --load: there is no bound with departures")
    plan = flags.plan(bounds=BOUNDS if bound else ())
    seeds = plan.seeds if plan.draws == "published" else None
    beside = published_of(read_text(published), published, flags.ratio, seeds) if published is not None else {}
    done, complete = until_interrupted(plan, flags.jobs)
    _show(plan, done, beside, output)
    if csv is not None:
        write("--csv", csv, as_csv(outcomes(done)) if plan.horizon is None else steady_csv(steady_outcomes(done)))
    if plot is not None and done:
        chart.draw(outcomes(done), steady_outcomes(done), plan.cards, plot)
    return int(Exit.OK if complete else Exit.INTERRUPTED)


def _show(plan: Plan, done: Sequence[Done], published: Published, output: str) -> None:
    found = Simulated(
        nodes=len(plan.nodes),
        cards=plan.cards,
        ratio=plan.ratio,
        mix=plan.mix,
        lines=lines(outcomes(done), plan.ratio, published),
        steady=steady_lines(steady_outcomes(done)),
        instead=instead(done),
        tenants=tenant_lines([*outcomes(done), *steady_outcomes(done)]),
    )
    if output == "json":
        show_json(found)
    elif output == "markdown":
        print(markdown(found))
    else:
        show_all(simulated(found))
