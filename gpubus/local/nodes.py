"""Simulated nodes: how many, with which cards. Pure.

`uniform` is what `gpubus local` starts, `MIXED` what the demo starts: three models with different memory, so that the
same request is a different part of a different card.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from contracts.messages import Value
from monitor.cards.simulated import Fault, fault

MAX_NODES = 200
"""Monitors and kubelets of all nodes share one process: beyond this it would be busy with heartbeats alone."""


class Model(Value, frozen=True, kw_only=True):
    """A kind of card."""

    name: str
    memory_mib: int
    reserved_mib: int = 512


A100_40 = Model(name="A100-40G", memory_mib=40_960)
A100_80 = Model(name="A100-80G", memory_mib=81_920)
T4 = Model(name="T4", memory_mib=15_360)
MODELS = {model.name: model for model in (A100_40, A100_80, T4)}


class NodeSpec(Value, frozen=True, kw_only=True):
    """One simulated node."""

    name: str
    cards: int = 8
    model: Model = A100_40
    cpu_milli: int = 96_000
    memory_mib: int = 786_432
    """Host memory."""
    faults: tuple[Fault, ...] = ()
    """What befalls its cards, in seconds from the start of its monitor."""


def uniform(count: int, *, cards: int, model: Model) -> list[NodeSpec]:
    """`count` equal nodes; CPU and host memory in the proportion of common eight-card machines (12 cores a card)."""
    return [
        NodeSpec(
            name=f"node-{number:02d}",
            cards=cards,
            model=model,
            cpu_milli=max(8000, 12_000 * cards),
            memory_mib=max(65_536, 98_304 * cards),
        )
        for number in range(1, count + 1)
    ]


def with_faults(nodes: list[NodeSpec], texts: Iterable[str]) -> list[NodeSpec]:
    """The nodes with what befalls them: `NODE/INDEX@AFTER+FOR`, in seconds, and `:REASON` if it is to have one.

    Raises:
        ValueError: spelt otherwise, or there is no such card.
    """
    by_name = {node.name: node for node in nodes}
    for text in texts:
        name, _, what = text.partition("/")
        if name not in by_name:
            raise ValueError(f"{text!r}: there is no node {name!r}; spelt as NODE/INDEX@AFTER+FOR, as node-01/2@20+30")
        one, node = fault(what), by_name[name]
        if one.index >= node.cards:
            raise ValueError(f"{text!r}: {name} has {node.cards} cards, the first has index 0")
        by_name[name] = replace(node, faults=(*node.faults, one))
    return list(by_name.values())


def mixed() -> list[NodeSpec]:
    """16 nodes with 116 cards: eight with 40 GiB cards, five with 80 GiB cards, three with T4s and many cores."""
    small = [NodeSpec(name=f"a40-{n:02d}") for n in range(1, 9)]
    large = [NodeSpec(name=f"a80-{n:02d}", model=A100_80, cpu_milli=128_000) for n in range(1, 6)]
    light = [NodeSpec(name=f"t4-{n:02d}", cards=4, model=T4, cpu_milli=104_000) for n in range(1, 4)]
    return small + large + light
