"""Seconds for one seed of the arrival protocol, curves included: what waiting for `gpubus simulate` costs.

The trace is in the folder that `GPUBUS_BENCH_TRACES` names (openb: openb_pod_list_default.csv and
openb_node_list_gpu_node.csv); without it a generated workload of the same size stands in: 1,200 nodes, 8,000 pods. The
peer is the naive way, every node scored for every pod, timed over `SAMPLE` arrivals on the same half-filled cluster and
told for as many arrivals as a seed has. CPU times of this process, the median of `ROUNDS`; reading the files and
compiling kernels are not in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench.rows import Row, median
from contracts.units import WHOLE_CARD
from gpubus.local.nodes import NodeSpec
from gpubus.simulate import generated, openb
from gpubus.simulate.arrivals import arrivals
from gpubus.simulate.generated import Life, Machines, Shape, Workload
from gpubus.simulate.openb import PodRow
from gpubus.simulate.protocol import Run
from gpubus.simulate.world import World, cluster_of, mix_of
from scheduler.core.mix import Mix, classes_of
from scheduler.core.policies import POLICIES, evaluate
from scheduler.core.request import shape_of

TRACES = "GPUBUS_BENCH_TRACES"
SHOWN = ("first-fit", "packing", "fgd", "menu-value", "menu-value-arrivals")
NAIVE = ("packing", "fgd")
"""Those whose scores need no arrays; the naive way takes minutes for the others."""

ROUNDS = 5
SAMPLE = 40
RATIO = 1.3
GOAL_S = 2.0

GENERATED = Workload(
    pods=8000,
    node=(
        Machines(count=570, cards=8, model="G2", cpu_milli=96_000, memory_mib=393_216),
        Machines(count=400, cards=2, model="T4", cpu_milli=104_000, memory_mib=524_288),
        Machines(count=230, cards=2, model="P100", cpu_milli=32_000, memory_mib=262_144),
    ),
    shape=(
        *(
            Shape(weight=1, share_milli=share, cpu_milli=cpu, memory_mib=4096, life=Life())
            for share in (50, 100, 190, 250, 330, 460, 500, 600, 730, 810)
            for cpu in (2000, 4000, 8000)
        ),
        *(Shape(weight=9, cpu_milli=cpu, memory_mib=8192, life=Life()) for cpu in (4000, 8000, 11_000, 16_000)),
        Shape(weight=9, cards=0, cpu_milli=8000, memory_mib=8192, life=Life()),
        Shape(weight=0.5, cards=8, cpu_milli=64_000, memory_mib=65_536, life=Life()),
    ),
)


def run() -> list[Row]:
    """The table."""
    name, specs, rows = _given()
    cards = sum(spec.cards for spec in specs)
    order = arrivals(rows, capacity_milli=cards * WHOLE_CARD, ratio=RATIO, seed=42)
    note = f"{name}: {len(order):,} arrivals, {len(specs):,} nodes, {cards:,} cards"
    return [_row(policy, specs, rows, order, note) for policy in SHOWN]


def _row(policy: str, specs: list[NodeSpec], rows: list[PodRow], order: list[PodRow], note: str) -> Row:
    _played(policy, specs, rows, order[:100])  # kernels are compiled, tables built
    took = median([_played(policy, specs, rows, order) for _ in range(ROUNDS)])
    naive = _naive(policy, specs, rows, order) if policy in NAIVE else None
    peer = "; floor: every node scored for every pod" if naive is not None else ""
    return Row(name=f"a seed, {policy}", value=took, unit="s", floor=naive, goal=f"<= {GOAL_S:g}", note=note + peer)


def _given() -> tuple[str, list[NodeSpec], list[PodRow]]:
    folder = os.environ.get(TRACES)
    if folder is None:
        return "generated", generated.nodes(GENERATED), generated.pods(GENERATED, 42)
    nodes, pods = Path(folder, "openb_node_list_gpu_node.csv"), Path(folder, "openb_pod_list_default.csv")
    return "default", openb.nodes(nodes.read_text(), nodes.name), openb.pods(pods.read_text(), pods.name)


def _played(policy: str, specs: Sequence[NodeSpec], rows: Sequence[PodRow], order: Sequence[PodRow]) -> float:
    """Seconds of one seed."""
    state, mix = cluster_of(specs, 42), mix_of(rows)
    began = time.process_time()
    Run(state, policy, mix).play(order)
    return time.process_time() - began


def _naive(policy: str, specs: Sequence[NodeSpec], rows: Sequence[PodRow], order: Sequence[PodRow]) -> float:
    """Seconds of as many arrivals, scored on every node of a cluster that half of them have filled."""
    half = len(order) // 2
    world, mix = World(cluster_of(specs, 42), policy), Mix(classes_of(mix_of(rows)))
    for row in order[:half]:
        world.place(world.arrive(row))
    world.placer.rankings.sync(world.state)
    views = list(world.placer.rankings.views.values())
    began = time.process_time()
    for row in order[half : half + SAMPLE]:
        shape = shape_of(row.request())
        for view in views:
            evaluate(POLICIES[policy], shape, view, mix)
    return (time.process_time() - began) / SAMPLE * len(order)
