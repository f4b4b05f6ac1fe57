"""`gpubus replay`: a recorded trace through the same services, in accelerated time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from gpubus.cli.common import show, show_all
from gpubus.cli.exits import Exit
from gpubus.cli.submit import read_text
from gpubus.errors import UsageError
from gpubus.local.cluster import Options, started
from gpubus.local.folder import run_folder
from gpubus.local.kube import Timings
from gpubus.local.nodes import MAX_NODES
from gpubus.local.stopping import stop_on_signals, unless_stopped
from gpubus.render.replay import as_csv, outcome
from gpubus.simulate import openb
from gpubus.simulate.openb import PodRow
from gpubus.simulate.replay import Outcome, Replay

Quiet = Parameter(show_default=False)
DAY_S = 86_400.0


def replay(
    pods: str,
    /,
    *,
    nodes: str,
    speed: float = DAY_S,
    limit: Annotated[int | None, Quiet] = None,
    max_nodes: int = 100,
    policy: Annotated[str | None, Quiet] = None,
    output: Annotated[str | None, Parameter(name=["--output", "-o"], show_default=False)] = None,
    keep: Annotated[Path | None, Quiet] = None,
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Feed a recorded trace through the same services, in accelerated time, on simulated nodes.

    Both files are in the format of the openb trace (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023). Pods
    arrive by creation_time and run for their lifetime, both divided by --speed. At the end: how many were placed,
    wait, ended or were refused, the part of the cards that was sold over time as a picture, and an audit.
    Exit status 1 when the audit finds something.

    Try:

    ```
    gpubus replay openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --limit 1000 --max-nodes 40
    gpubus replay pods.csv --nodes nodes.csv --speed 3600 --policy packing --output sold.csv
    ```

    Args:
        pods: Pod list (CSV).
        nodes: Node list (CSV).
        speed: Seconds of the trace per second; 86400 makes a day a second.
        limit: Only the first so many pods.
        max_nodes: At most so many nodes, evenly spaced in the list so that the mix stays.
        policy: Placement policy of all requests.
        output: Write the samples to this file as CSV.
        keep: Keep logs and state in this folder.
        debug: On an error show where in the program it came from.
    """
    del debug  # read by `main`
    if not speed > 0:
        raise UsageError(f"--speed {speed:g}: more than 0")
    if not 1 <= max_nodes <= MAX_NODES:
        raise UsageError(f"--max-nodes {max_nodes}: between 1 and {MAX_NODES}")
    rows = openb.pods(read_text(pods), pods, limit=limit)
    specs = openb.nodes(read_text(nodes), nodes, most=max_nodes)
    if not rows or not specs:
        raise UsageError(f"{pods if not rows else nodes}: holds nothing to replay")
    with run_folder(keep) as folder:
        options = Options(
            nodes=tuple(specs),
            folder=folder,
            speed=speed,
            # A kubelet's patience is real time, however fast its containers run.
            timings=Timings(node_grace_s=40 * speed, orphan_s=40 * speed),
            namespaces=tuple(sorted({row.namespace for row in rows})),
        )
        return int(asyncio.run(_replay(options, rows, policy, output)))


async def _replay(options: Options, rows: list[PodRow], policy: str | None, output: str | None) -> Exit:
    async with stop_on_signals() as stop:
        found = await unless_stopped(_run(options, rows, policy), stop, "gpubus replay")
    if found is None:
        return Exit.INTERRUPTED
    show_all(outcome(found))
    if output is not None:
        _write(output, as_csv(found.samples))
    return Exit.OK if found.report.sound else Exit.NO


async def _run(options: Options, rows: list[PodRow], policy: str | None) -> Outcome:
    def told(text: str) -> None:
        show(Text(text, style="dim"))

    cards = sum(node.cards for node in options.nodes)
    span_s = (rows[-1].created_s - rows[0].created_s) / options.speed
    async with started(options, told) as cluster:
        told(f"{len(rows)} pods arrive within {span_s:.1f} s on {len(options.nodes)} nodes with {cards} cards")
        return await Replay(cluster.client, rows, speed=options.speed, policy=policy, told=told).run()


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {file}: {error.strerror or error}") from error
