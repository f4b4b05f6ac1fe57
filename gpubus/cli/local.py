"""`gpubus local`: everything on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from gpubus.cli.common import show, show_all
from gpubus.cli.exits import Exit
from gpubus.errors import UsageError
from gpubus.local import runfile
from gpubus.local.cluster import LocalCluster, Options, started
from gpubus.local.folder import run_folder
from gpubus.local.nodes import A100_40, MAX_NODES, MODELS, Model, uniform, with_faults
from gpubus.local.stopping import stop_on_signals, unless_stopped

NAMESPACES = ("team-a", "team-b")
MAX_CARDS = 64
TRAINING = r"""[job]\nname="bert"\npod.image="x:1"\ngpu.share_milli=500\nmax_trainers=100\n"""
"""A job that takes all that is free, and gives it back when calls come."""
Quiet = Parameter(show_default=False)


def local(
    *,
    nodes: int = 4,
    cards: int = 8,
    model: str = A100_40.name,
    card_memory_mib: Annotated[int | None, Quiet] = None,
    fault: Annotated[tuple[str, ...], Parameter(show_default=False, negative="")] = (),
    keep: Annotated[Path | None, Quiet] = None,
    port: int = 0,
    traces_port: int = 0,
    kube_port: int = 0,
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Run everything on this machine, with simulated nodes, until Ctrl-C.

    nats-server, scheduler, reconciler and autoscaler are the real ones; nodes, kubelets, cards and the workers of
    functions are simulated. Other gpubus commands of the same user find it without flags. Ctrl-C ends all parts within
    five seconds, with status 0; a second Ctrl-C ends at once.

    Try:

    ```
    gpubus local
    gpubus local --nodes 20 --cards 4 --model T4
    gpubus local --keep ./state --port 4222
    gpubus local --fault node-01/2@20+30
    ```

    Args:
        nodes: Simulated nodes.
        cards: Cards of each node.
        model: Model of the cards; A100-40G, A100-80G and T4 bring their memory along.
        card_memory_mib: Memory of each card; needed for other models.
        fault: NODE/INDEX@AFTER+FOR: that card is lost AFTER seconds from the start, FOR seconds. May be repeated.
        keep: Keep logs and state in this folder and go on from what is there; else a temporary one is used.
        port: Port of nats-server; 0 takes a free one.
        traces_port: Port of the span store (OTLP and Jaeger's query API); 0 takes a free one.
        kube_port: Port of the Kubernetes-shaped API; 0 takes a free one.
        debug: On an error show where in the program it came from.
    """
    del debug  # read by `main`
    specs = uniform(
        _within("--nodes", nodes, MAX_NODES),
        cards=_within("--cards", cards, MAX_CARDS),
        model=_model(model, card_memory_mib),
    )
    try:
        specs = with_faults(specs, fault)
    except ValueError as error:
        raise UsageError(f"--fault {error}") from error
    with run_folder(keep) as folder:
        options = Options(
            nodes=tuple(specs),
            folder=folder,
            nats_port=port,
            traces_port=traces_port,
            kube_port=kube_port,
            namespaces=NAMESPACES,
        )
        return int(asyncio.run(_local(options)))


def _within(flag: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise UsageError(f"{flag} {value}: between 1 and {most}")
    return value


def _model(name: str, memory_mib: int | None) -> Model:
    if memory_mib is not None:
        return Model(name=name, memory_mib=_within("--card-memory-mib", memory_mib, 1_000_000), reserved_mib=0)
    if name not in MODELS:
        raise UsageError(f"--model {name}: its memory is not known; add --card-memory-mib, or take {', '.join(MODELS)}")
    return MODELS[name]


async def _local(options: Options) -> Exit:
    async with stop_on_signals() as stop:
        await unless_stopped(_serve(options), stop, "gpubus local")
        if stop.is_set():
            show(Text("stopped", style="dim"))
    return Exit.OK


async def _serve(options: Options) -> None:
    async with started(options, lambda text: show(Text(text, style="dim"))) as cluster:
        running = cluster.running
        runfile.leave(running, os.environ)
        try:
            show_all(_welcome(cluster))
            await asyncio.Event().wait()
        finally:
            runfile.remove(running, os.environ)


def _welcome(cluster: LocalCluster) -> Iterator[Text]:
    running = cluster.running
    cards = sum(node.cards for node in cluster.options.nodes)
    yield Text(f"ready: {len(cluster.options.nodes)} nodes, {cards} cards", style="bold green")
    for label, value in (
        ("NATS", running.nats_url),
        ("traces", f"{running.traces_url}  (OTLP in, Jaeger's query API out)"),
        ("Kubernetes", f"{running.kube_url}  (kubeconfig {running.folder}/kubeconfig)"),
        ("logs", running.folder),
    ):
        yield Text(f"  {label:<11}", style="dim").append(value, style="default")
    yield Text("try, in another terminal:", style="dim")
    for command in (
        "gpubus submit --name hello --image registry.example/hello:1 --gpu-share 0.5 --wait",
        "gpubus explain hello",
        "gpubus trace hello",
        "gpubus scale resize --image registry.example/resize:1 --gpu-share 0.25",
        "gpubus call resize hello --count 50",
        f"printf '{TRAINING}' | gpubus deploy -",
        "gpubus get jobs",
        "gpubus top",
        "gpubus audit",
    ):
        yield Text(f"  {command}")
    yield Text("Ctrl-C ends it", style="dim")
