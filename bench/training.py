"""Training jobs: the dry run over a large cluster, and the published experiment under three policies.

The dry run: 10,000 elastic jobs of 240 shapes on 5,000 nodes with 8 cards, half of them with one trainer, the others
with up to six; measured while the cluster is half empty (it is filled), full (nothing can grow) and full with 200
requests and gangs waiting. CPU time of the run, the median of `ROUNDS`; the floor is looking once at every card, every
seat and every job. The experiment: seconds that a job waits for its first trainer; the floor is the dry run of
PaddlePaddle EDL on the same cluster.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Sequence

from autoscaler.core.elastic_load import Amounts, Limits, Load
from autoscaler.core.elastic_order import ascending
from autoscaler.core.elastic_plan import plan
from autoscaler.core.elastic_room import CardRoom, NodeRoom, Room
from autoscaler.core.elastic_runner import Runner, Seat, Waiting
from autoscaler.core.elastic_shape import Shape
from bench.rows import Row, median
from contracts.inventory import NodeFacts
from contracts.requests import GpuAsk
from contracts.units import NodeName
from gpubus.simulate.training import CASES, mean, measure

ROUNDS = 5
NODES, CARDS, JOBS = 5000, 8, 10_000
WAITING = 200
GOAL_S = 1.0
SEEDS = 5

Case = tuple[list[NodeRoom], list[Runner], list[Waiting]]


def run() -> list[Row]:
    """The table."""
    return [
        *(_dry_run(name, _cluster(fill, waiting)) for name, fill, waiting in SITUATIONS),
        *(_experiment(case) for case in range(len(CASES))),
    ]


SITUATIONS = (("half empty", 1, 0), ("full", 6, 0), (f"full, {WAITING} wait", 6, WAITING))


def _dry_run(name: str, case: Case) -> Row:
    took = [_timed(case) for _ in range(ROUNDS)]
    changed = took[0][1]
    return Row(
        name=f"dry run, {JOBS:,} jobs, {NODES:,} nodes, {name}",
        value=median([seconds for seconds, _ in took]),
        unit="s",
        floor=median([_floor(case) for _ in range(ROUNDS)]),
        goal=f"<= {GOAL_S:g}",
        note=f"{changed:,} trainers more or fewer; floor: one look at every card, seat and job",
    )


def _timed(case: Case) -> tuple[float, int]:
    nodes, runners, waiting = case
    room, load = Room(copy.deepcopy(nodes)), _load(runners, waiting)
    began = time.process_time()
    found = plan(room, load, runners, waiting)
    return time.process_time() - began, sum(abs(delta) for delta in found.deltas.values())


def _floor(case: Case) -> float:
    nodes, runners, _ = case
    began = time.process_time()
    sorted(runners, key=lambda r: ascending(r.standing))
    sum(card.free_milli for node in nodes for card in node.cards)
    sum(seat.index for runner in runners for seat in runner.seats)
    return time.process_time() - began


def _load(runners: Sequence[Runner], waiting: Sequence[Waiting]) -> Load:
    total = Amounts(cpu_milli=NODES * 96_000, memory_mib=NODES * 500_000, card_milli=NODES * CARDS * 1000)
    load = Load(total, Amounts(), Limits())
    for runner in runners:
        load.add(runner.shape, runner.planned)
    for asks in waiting:
        load.add(asks.shape, asks.count)
    return load


def _cluster(fill: int, waiting: int) -> Case:
    draw = random.Random(fill)
    nodes = [_node(f"n{number:04d}") for number in range(NODES)]
    room = Room(nodes)
    shapes = [_shape(draw, cards, share) for cards, share in _SIZES for _ in range(40)]
    runners = [_runner(draw, room, f"ns/j{number:05d}", draw.choice(shapes), fill) for number in range(JOBS)]
    asks = [Waiting(key=f"w{n}", shape=draw.choice(shapes), count=draw.choice((1, 1, 2, 4))) for n in range(waiting)]
    return nodes, runners, asks


_SIZES = ((1, 1000), (1, 500), (2, 1000), (4, 1000), (8, 1000), (1, 250))


def _node(name: str) -> NodeRoom:
    return NodeRoom(
        name=name,
        facts=NodeFacts(node=NodeName(name), uid=name),
        cpu_milli=96_000,
        memory_mib=500_000,
        pods=110,
        cards=[CardRoom(f"{name}-{card}", 1000, 80_000, 80_000, 80_000, "A100") for card in range(CARDS)],
    )


def _shape(draw: random.Random, cards: int, share: int) -> Shape:
    cpu, memory = draw.choice((1000, 2000, 4000, 8000)), draw.choice((1000, 4000, 8000, 16_000))
    return Shape(cpu_milli=cpu, memory_mib=memory, gpu=GpuAsk(cards=cards, share_milli=share))


def _runner(draw: random.Random, room: Room, name: str, shape: Shape, fill: int) -> Runner:
    found = [Seat(index=index, placement=room.take(shape)) for index in range(draw.randint(1, fill))]
    seats = [seat for seat in found if seat.placement is not None]
    planned = max(1, len(seats))
    return Runner(name=name, shape=shape, minimum=1, maximum=60, planned=planned, seats=tuple(seats[:0:-1]))


def _experiment(number: int) -> Row:
    case = CASES[number]
    ours, seed, fixed = (
        mean([measure(case, policy, at) for at in range(1, SEEDS + 1)]) for policy in ("ours", "seed", "fixed")
    )
    note = (
        f"floor: EDL's dry run; fixed {fixed.pending_s:.1f} s; CPU {ours.cpu_percent:.1f} % (EDL {seed.cpu_percent:.1f}"
    )
    return Row(
        name=f"a job's wait, {case.name}",
        value=ours.pending_s,
        unit="s",
        floor=seed.pending_s,
        note=f"{note}, fixed {fixed.cpu_percent:.1f})",
    )
