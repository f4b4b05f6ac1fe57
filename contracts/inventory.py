"""What nodes are made of, from both sides: the monitor's inventory and heartbeat, the reconciler's node facts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.messages import Message, Value
from contracts.units import CardUuid, Count, CpuMilli, MemoryMib, ModelName, NodeName, Sequence, ShortText

CardHealth = Literal["healthy", "suspect", "failed", "cordoned"]
IsolationMode = Literal["none", "mps", "hami-core", "gemini", "mig"]


class Card(Value, frozen=True, kw_only=True):
    """One physical card, known by its UUID; the index is for people."""

    uuid: CardUuid
    index: Count
    model: ModelName
    memory_total_mib: MemoryMib | None
    """None when the driver cannot tell (unified memory): then the card cannot be shared by memory."""
    memory_reserved_mib: MemoryMib = 0
    """What the driver keeps for itself; never sold."""
    mig_enabled: bool | None = None
    health: CardHealth = "healthy"
    health_reason: ShortText = ""
    isolation: IsolationMode = "none"
    """How shares are enforced on this card; `none` = they are only counted."""

    @property
    def sellable_mib(self) -> int:
        """Memory that may be sold: total minus driver-reserved, 0 when the total is unknown."""
        return max(0, (self.memory_total_mib or 0) - self.memory_reserved_mib)


class NodeInventory(Message, frozen=True, kw_only=True, tag="node.inventory.v1"):
    """Everything a monitor found on its node; published at start and on change, last one kept."""

    node: NodeName
    boot_id: ShortText
    incarnation: ShortText
    """Random per monitor process."""
    cards: Annotated[tuple[Card, ...], Meta(max_length=64)]
    driver_version: ShortText = ""
    provider: Literal["nvml", "simulated"] = "nvml"
    cause: ShortText = ""


class Heartbeat(Message, frozen=True, kw_only=True, tag="node.heartbeat.v1"):
    """I am alive. Core NATS, newest replaces older; freshness is judged by the receiver's own monotonic clock."""

    node: NodeName
    boot_id: ShortText
    incarnation: ShortText
    sequence: Count
    """Counts up within an incarnation: duplicates and late copies are dropped by it."""
    uptime_ms: Count
    """Monotonic age of the incarnation, for people and for telling two living incarnations apart."""
    cards: Count
    unhealthy: Annotated[tuple[CardUuid, ...], Meta(max_length=64)] = ()


class Taint(Value, frozen=True, kw_only=True):
    """A Kubernetes taint."""

    key: ShortText
    effect: ShortText
    value: ShortText = ""


class NodeFacts(Message, frozen=True, kw_only=True, tag="node.facts.v1"):
    """A node as Kubernetes sees it, published by the reconciler on change, last one kept."""

    node: NodeName
    uid: ShortText
    gone: bool = False
    """The Node object was deleted: evidence that frees what was on it."""
    ready: bool = True
    unschedulable: bool = False
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    allocatable_cpu_milli: CpuMilli = 0
    allocatable_memory_mib: MemoryMib = 0
    allocatable_pods: Count = 110
    foreign_cpu_milli: CpuMilli = 0
    """Requests of pods that are not ours."""
    foreign_memory_mib: MemoryMib = 0
    foreign_pods: Count = 0
    cause: ShortText = ""


class CordonCard(Message, frozen=True, kw_only=True, tag="card.cordon.v1"):
    """An operator takes one card out of the pool, or gives it back; running pods stay."""

    node: NodeName
    card: CardUuid
    cordoned: bool
    reason: ShortText = ""
    cause: ShortText = ""


__all__ = [
    "Card",
    "CardHealth",
    "CordonCard",
    "Heartbeat",
    "IsolationMode",
    "NodeFacts",
    "NodeInventory",
    "Sequence",
    "Taint",
]
