"""What nodes are made of, from both sides: the monitor's inventory and heartbeat, the reconciler's node facts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.messages import Message, Value
from contracts.units import CardUuid, Count, CpuMilli, MemoryMib, ModelName, NodeName, Sequence, ShortText

CardHealth = Literal["healthy", "suspect", "failed", "cordoned", "recovering"]
"""What a monitor says of a card: `healthy` is offered and no other is. `suspect` has shown something that may pass,
`failed` is broken or gone, `recovering` has failed and works again but must prove it. `cordoned` is an operator's word,
which stands beside the health and never in its place."""
HealthNeeds = Literal["", "time", "answer", "reset"]
"""What gives a card back: `time` without trouble, an `answer` of its driver and then time, or a `reset` (of the card,
the driver or the node; or an operator's word that it was seen to) and then both."""
IsolationMode = Literal["none", "mps", "hami-core", "gemini", "mig"]


class Card(Value, frozen=True, kw_only=True):
    """One card or one MIG instance of a card, known by its UUID; the index is for people.

    Groups are numbers that mean nothing but "the same": two cards of one node with the same number belong together,
    None belongs to nobody (there is no such link, or the driver cannot tell).
    """

    uuid: CardUuid
    index: Count
    """Of a MIG instance the index of the card that it is cut from."""
    model: ModelName
    memory_total_mib: MemoryMib | None
    """None when the driver cannot tell (unified memory): then the card cannot be shared by memory."""
    memory_reserved_mib: MemoryMib = 0
    """What the driver keeps for itself; never sold."""
    memory_unmanaged_mib: MemoryMib = 0
    """What processes hold that belong to nobody we know, when they stayed; not sold to others. What was sold before
    they came stays sold: then the card is squeezed, which no decision caused and every view shows."""
    unmanaged_by: ShortText = ""
    """Program and pid of those that held it when it was said, the largest first."""
    mig_enabled: bool | None = None
    health: CardHealth = "healthy"
    health_reason: ShortText = ""
    isolation: IsolationMode = "none"
    """How shares are enforced on this card; `none` = they are only counted."""
    nvlink_group: Count | None = None
    """Cards that reach each other over active NVLinks, directly, through each other or through a switch."""
    pcie_group: Count | None = None
    """Cards below one PCIe switch: they reach each other without the host bridge."""
    numa_node: Count | None = None
    """The host's memory node that the card hangs on."""
    parent: CardUuid | None = None
    """Of a MIG instance the card that it is cut from, which is then not listed itself."""
    mig_profile: ShortText = ""
    """Of a MIG instance its profile as the driver names it, such as `1g.10gb`."""
    health_needs: HealthNeeds = ""
    health_since_ms: Count = 0
    """Wall clock of the node when this health began, for people; 0 = since the monitor knows the card."""

    @property
    def sellable_mib(self) -> int:
        """Memory that may be sold: ours, minus what strangers hold; 0 when the total is unknown."""
        return max(0, self.owned_mib - self.memory_unmanaged_mib)

    @property
    def owned_mib(self) -> int:
        """Memory that is there for pods: total minus driver-reserved, 0 when the total is unknown."""
        return max(0, (self.memory_total_mib or 0) - self.memory_reserved_mib)


class NodeInventory(Message, frozen=True, kw_only=True, tag="node.inventory.v1"):
    """Everything a monitor found on its node; published at start and on change, last one kept."""

    node: NodeName
    boot_id: ShortText
    incarnation: ShortText
    """Random per monitor process."""
    sequence: Count = 0
    """Counts up within an incarnation: a late or repeated copy of an older one changes nothing."""
    cards: Annotated[tuple[Card, ...], Meta(max_length=64)]
    driver_version: ShortText = ""
    cuda_version: ShortText = ""
    """The newest CUDA that the driver serves, such as `13.0`."""
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


CardMode = Literal["dedicated", "coexist"]
"""dedicated: every card of the node is ours. coexist: others get whole cards there from the device plugin, so a card is
ours only while a placeholder pod holds it."""


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
    mode: CardMode = "dedicated"
    acquired: Annotated[tuple[CardUuid, ...], Meta(max_length=64)] = ()
    """In `coexist`: the cards that placeholders of ours hold, in order. Only these may be sold."""
    acquiring: ShortText = ""
    """In `coexist`: why no more of them can be had now; empty while nothing stands against it."""
    cause: ShortText = ""


class CordonCard(Message, frozen=True, kw_only=True, tag="card.cordon.v1"):
    """An operator takes one card out of the pool, or gives it back; running pods stay."""

    node: NodeName
    card: CardUuid
    cordoned: bool
    repaired: bool = False
    """The card was seen to: its monitor may believe a failed one again, once it works for the usual time."""
    reason: ShortText = ""
    at_ms: Count = 0
    """Wall clock of the operator, for people."""
    cause: ShortText = ""


__all__ = [
    "Card",
    "CardHealth",
    "CardMode",
    "CordonCard",
    "HealthNeeds",
    "Heartbeat",
    "IsolationMode",
    "NodeFacts",
    "NodeInventory",
    "Sequence",
    "Taint",
]
