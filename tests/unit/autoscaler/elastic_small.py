"""Small clusters for the elastic dry run, as data: nodes with free cards, jobs that sit on them, who waits."""

from __future__ import annotations

from typing import Any

from autoscaler.core.elastic_load import Amounts, Limits, Load
from autoscaler.core.elastic_plan import plan
from autoscaler.core.elastic_room import CardRoom, NodeRoom, Room
from autoscaler.core.elastic_runner import Plan, Runner, Seat, Waiting
from autoscaler.core.elastic_shape import Shape
from contracts.inventory import NodeFacts
from contracts.requests import GpuAsk, Toleration
from contracts.units import NodeName


def node(name: str, cards: int = 0, *, cpu: int = 64_000, share: int = 1000, **facts: Any) -> NodeRoom:
    """A node with so many cards, `share` thousandths of each free."""
    return NodeRoom(
        name=name,
        facts=NodeFacts(node=NodeName(name), uid=name, **facts),
        cpu_milli=cpu,
        memory_mib=500_000,
        pods=100,
        cards=[CardRoom(f"{name}-{i}", share, 80_000 * share // 1000, 80_000, 80_000, "A100") for i in range(cards)],
    )


def trainer(cards: int = 1, share: int = 1000, cpu: int = 1000, **more: Any) -> Shape:
    return Shape(cpu_milli=cpu, memory_mib=10, gpu=GpuAsk(cards=cards, share_milli=share), **more)


def tolerant(**toleration: Any) -> Shape:
    return trainer(tolerations=(Toleration(**toleration),))


class Small:
    """A cluster with jobs whose trainers sit in it."""

    def __init__(self, *nodes: NodeRoom, limits: Limits | None = None) -> None:
        self.room = Room(nodes)
        self.limits = limits or Limits(cpu_milli=1000, memory_milli=1000)
        self.total = Amounts(
            cpu_milli=sum(n.cpu_milli for n in nodes),
            memory_mib=sum(n.memory_mib for n in nodes),
            card_milli=sum(1000 * len(n.cards) for n in nodes),
        )
        self.runners: list[Runner] = []

    def job(self, name: str, bounds: tuple[int, int], on: list[str], shape: Shape | None = None, **more: Any) -> None:
        """Trainers on these nodes; the last one is the first to leave, the first never leaves."""
        shape = shape or trainer()
        seats = []
        for index, place in enumerate(on):
            seat = self.room.take_at(place, shape)
            assert seat is not None, f"{name} does not fit on {place}"
            seats.append(Seat(index=index, placement=seat))
        least, most = bounds
        self.runners.append(
            Runner(
                name=name,
                shape=shape,
                minimum=least,
                maximum=most,
                planned=len(on),
                seats=tuple(reversed(seats[1:])),
                **more,
            )
        )

    def load(self, waiting: tuple[Waiting, ...] = ()) -> Load:
        load = Load(self.total, Amounts(), self.limits)
        for runner in self.runners:
            load.add(runner.shape, runner.planned)
        for asks in waiting:
            load.add(asks.shape, asks.count)
        return load

    def plan(self, *waiting: Waiting) -> Plan:
        return plan(self.room, self.load(waiting), self.runners, waiting)


def waits(shape: Shape, count: int = 1, priority: int = 0, key: str = "w") -> Waiting:
    return Waiting(key=key, shape=shape, count=count, priority=priority)
