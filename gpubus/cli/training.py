"""`gpubus simulate-training`: elastic training jobs against fixed ones, as published, on virtual time."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from gpubus.cli.common import show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.errors import UsageError
from gpubus.render.training import markdown, table
from gpubus.simulate.training import CASES, Experiment, mean, measure, policies

MAX_SEEDS = 100


def training(
    *,
    seeds: int = 5,
    output: Annotated[Literal["table", "json", "markdown"], Parameter(name=["--output", "-o"])] = "table",
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Run the published experiment with elastic training jobs again.

    PaddlePaddle EDL measured it on 133 nodes: 20 jobs with 60 trainers each, or with 2 to 60 as its autoscaler decided;
    and six jobs beside a service of 400, 100 and again 400 pods. Here the same cluster runs on virtual time, with fixed
    jobs, with their dry run and with the code of our autoscaler; their figures stand beside. It takes seconds.

    Try:

    ```
    gpubus simulate-training
    gpubus simulate-training --seeds 2 -o json
    ```

    Args:
        seeds: Passes of each, with another order of equal nodes; means are told.
        output: table, json or markdown.
        debug: On an error show where in the program it came from.
    """
    del debug  # read by `main`
    if not 1 <= seeds <= MAX_SEEDS:
        raise UsageError(f"--seeds {seeds}: from 1 to {MAX_SEEDS}")
    found = tuple(
        mean([measure(case, policy, seed) for seed in range(1, seeds + 1)])
        for case in CASES
        for policy in policies(case)
    )
    if output == "json":
        show_json(Experiment(seeds=seeds, measured=found))
    elif output == "markdown":
        print(markdown(found))
    else:
        show_all([table(found)])
    return int(Exit.OK)
