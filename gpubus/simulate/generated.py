"""Workloads that nobody recorded: nodes and pods drawn from a small description, in TOML. Pure: text and seed in.

    pods = 2000                     # how many rows are drawn
    seconds_between = 0.5           # mean gap of Poisson arrivals; `--load` sets another one

    [[node]]
    count = 12
    cards = 8
    model = "A100-40G"
    card_memory_mib = 40960
    cpu_milli = 96000
    memory_mib = 786432

    [[shape]]
    weight = 5                      # how often, beside the other shapes
    cards = 1
    share_milli = 250
    cpu_milli = 4000
    life = {kind = "exponential", mean_s = 600}

Lifetimes: `fixed` (mean_s), `exponential` (mean_s), `uniform` (low_s to high_s), `pareto` (mean_s, alpha > 1: few run
very long). What comes out is what a trace is: the same pods for the same seed, and both protocols play them.
"""

from __future__ import annotations

import random
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.messages import Value
from contracts.units import CardCount, CpuMilli, MemoryMib, ModelName, NamespaceName, ShareMilli
from gpubus.errors import UsageError
from gpubus.local.nodes import Model, NodeSpec
from gpubus.simulate.openb import NAMESPACE, PodRow

Above0 = Annotated[float, Meta(gt=0)]


class Life(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long pods of a shape run, in seconds."""

    kind: Literal["fixed", "exponential", "uniform", "pareto"] = "exponential"
    mean_s: Above0 = 600.0
    low_s: Above0 = 60.0
    high_s: Above0 = 600.0
    alpha: Annotated[float, Meta(gt=1)] = 1.5

    def draw(self, drawing: random.Random) -> float:
        """One lifetime."""
        match self.kind:
            case "fixed":
                return self.mean_s
            case "exponential":
                return drawing.expovariate(1.0) * self.mean_s
            case "uniform":
                return drawing.uniform(self.low_s, self.high_s)
            case "pareto":  # the mean of paretovariate(a) is a / (a - 1)
                return drawing.paretovariate(self.alpha) * self.mean_s * (self.alpha - 1) / self.alpha


class Shape(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pods that ask for the same."""

    weight: Above0 = 1.0
    cards: CardCount = 1
    share_milli: ShareMilli = 1000
    cpu_milli: CpuMilli = 1000
    memory_mib: MemoryMib = 1024
    models: tuple[ModelName, ...] = ()
    namespace: NamespaceName = NamespaceName(NAMESPACE)
    life: Life = Life()


class Machines(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equal nodes."""

    count: Annotated[int, Meta(ge=1, le=100_000)] = 1
    cards: Annotated[int, Meta(ge=1, le=64)] = 8
    model: ModelName = "A100-40G"
    card_memory_mib: MemoryMib = 40_960
    cpu_milli: CpuMilli = 96_000
    memory_mib: MemoryMib = 786_432


class Workload(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole description."""

    pods: Annotated[int, Meta(ge=1, le=1_000_000)] = 2000
    seconds_between: Above0 = 1.0
    node: Annotated[tuple[Machines, ...], Meta(min_length=1)]
    shape: Annotated[tuple[Shape, ...], Meta(min_length=1)]


def read(text: str, source: str) -> Workload:
    """A description.

    Raises:
        UsageError: no TOML, or a field that is unknown or out of its bounds, by its path.
    """
    try:
        return msgspec.toml.decode(text, type=Workload)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{source}: {error}") from error


def nodes(workload: Workload) -> list[NodeSpec]:
    """Its nodes, numbered within their kind."""
    return [
        NodeSpec(
            name=f"kind-{kind}-{number:05d}",
            cards=machines.cards,
            model=Model(name=machines.model, memory_mib=machines.card_memory_mib, reserved_mib=0),
            cpu_milli=machines.cpu_milli,
            memory_mib=machines.memory_mib,
        )
        for kind, machines in enumerate(workload.node)
        for number in range(machines.count)
    ]


def pods(workload: Workload, seed: int) -> list[PodRow]:
    """As many as it says, drawn by the seed, in order of arrival."""
    drawing = random.Random(f"{seed} pods")
    weights = [shape.weight for shape in workload.shape]
    at, found = 0.0, []
    for number in range(workload.pods):
        shape = drawing.choices(workload.shape, weights)[0]
        at += drawing.expovariate(1.0) * workload.seconds_between
        found.append(_pod(shape, f"pod-{number:06d}", round(at, 3), round(shape.life.draw(drawing), 3)))
    return found


def _pod(shape: Shape, name: str, created_s: float, life_s: float) -> PodRow:
    return PodRow(
        name=name,
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.memory_mib,
        cards=shape.cards,
        share_milli=shape.share_milli if shape.cards else 0,
        models=tuple(shape.models) if shape.cards else (),
        created_s=created_s,
        life_s=life_s,
        namespace=shape.namespace,
    )
