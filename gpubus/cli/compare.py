"""`gpubus compare`: policies side by side on the same arrivals."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from gpubus.cli.common import show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.cli.simulating import until_interrupted, writable
from gpubus.cli.simulationflags import Quiet, SimulationFlags
from gpubus.errors import UsageError
from gpubus.render import chart, differences
from gpubus.render.compared import Compared, compared, markdown
from gpubus.simulate.results import instead, results

NO_FLAGS = SimulationFlags()


def compare(
    *,
    flags: SimulationFlags = NO_FLAGS,
    output: Annotated[Literal["table", "json", "markdown"], Parameter(name=["--output", "-o"])] = "table",
    plot: Annotated[str | None, Quiet] = None,
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Compare placement policies, the first one with each of the others, on the same arrivals.

    Takes the flags of `gpubus simulate`. Seeds differ more from one another than policies do; the same seed brings the
    same pods in the same order, so that the difference of a pair is steadier than either value. Told are the mean of
    the differences, its standard error, and in how many seeds the policy is above the first one. What is green or red
    is more than two standard errors from zero.

    Try:

    ```
    gpubus compare --nodes nodes.csv --trace pods.csv --policy packing --policy fgd --policy ./mine.py
    gpubus compare --trace FOLDER --policy fgd --policy first-fit --seeds 42,43,44,45,46 --jobs 2 --plot diff.svg
    gpubus compare --nodes nodes.csv --trace pods.csv --policy packing --policy fgd --load 0.9,1.0 --hours 8
    ```

    Args:
        flags: What is simulated.
        output: table, json or markdown.
        plot: Draw the differences to this file (.png, .svg, .pdf); needs matplotlib: gpubus[plot].
        debug: On an error show where in the program it came from.
    """
    del debug  # read by `main`
    writable("--plot", plot)
    if plot is not None:
        chart.check(plot)
    plan = flags.plan()
    if len(plan.policies) < 2:  # noqa: PLR2004 - to compare
        raise UsageError("give --policy twice or more: the first one is what the others are compared with")
    done, complete = until_interrupted(plan, flags.jobs)
    found = Compared(against=plan.policies[0], results=results(plan, done), instead=instead(done))
    if output == "json":
        show_json(found)
    elif output == "markdown":
        print(markdown(found))
    else:
        show_all(compared(found))
    if plot is not None and found.results:
        differences.draw(found, plot)
    return int(Exit.OK if complete else Exit.INTERRUPTED)
