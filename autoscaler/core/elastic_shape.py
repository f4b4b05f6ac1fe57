"""What one trainer needs of a node, and whether a node's facts let it in.

In: a pod request. Out: a `Shape`, hashable, equal for trainers that need the same. Looked at are CPU, host memory, pod
slots, cards with their share, memory, model and size, node selector, taints and readiness. What else a request may ask
of its surroundings (affinity, spread, locality, links) is left to the scheduler, which is asked before a job grows.
"""

from __future__ import annotations

import msgspec

from contracts.inventory import NodeFacts, Taint
from contracts.requests import GpuAsk, PodRequest, Toleration

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


class Shape(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One trainer. A shape without cards has an empty `gpu`."""

    cpu_milli: int = 0
    memory_mib: int = 0
    """Of the host."""
    gpu: GpuAsk = GpuAsk(cards=0)
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    @property
    def card_milli(self) -> int:
        """Thousandths of all its cards together."""
        return self.gpu.cards * self.gpu.share_milli


def shape_of(request: PodRequest) -> Shape:
    """The shape of a request."""
    return Shape(
        cpu_milli=request.pod.cpu_milli,
        memory_mib=request.pod.memory_mib,
        gpu=request.gpu if request.gpu.cards else GpuAsk(cards=0),
        selector=tuple(sorted(request.node_selector.items())),
        tolerations=request.tolerations,
    )


def slice_mib(gpu: GpuAsk, sellable_mib: int) -> int:
    """MiB of a card that a slice takes: as asked for, else a fraction of the card, rounded down, at least 1."""
    if gpu.memory_mib is not None:
        return gpu.memory_mib
    return max(1, sellable_mib * (gpu.memory_milli or gpu.share_milli) // 1000)


def admits(facts: NodeFacts, shape: Shape) -> bool:
    """Whether the node is open to it at all: ready, labels as selected, every taint tolerated."""
    return (
        facts.ready
        and not facts.unschedulable
        and not facts.gone
        and all(facts.labels.get(key) == value for key, value in shape.selector)
        and all(_tolerated(taint, shape.tolerations) for taint in facts.taints)
    )


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return taint.effect not in _KEEPS_AWAY or any(_matches(toleration, taint) for toleration in tolerations)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    """As Kubernetes: an absent effect matches all, an absent key with `Exists` every taint."""
    if toleration.effect not in (None, taint.effect):
        return False
    if toleration.key is None:
        return toleration.operator == "Exists"
    return toleration.key == taint.key and (toleration.operator == "Exists" or toleration.value == taint.value)
