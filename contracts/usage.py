"""What a node uses right now: one message per node and period, core NATS, newest replaces older.

Unknown is None, never zero: a driver that cannot tell a number leaves it out.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from contracts.messages import Message, Value
from contracts.units import CardUuid, Count, MemoryMib, NodeName, Percent, ShortText


class ProcessUsage(Value, frozen=True, kw_only=True):
    """One process on one card."""

    pid: Count
    memory_mib: MemoryMib | None = None
    compute_percent: Percent | None = None


class CardUsage(Value, frozen=True, kw_only=True):
    """One card over the last period."""

    uuid: CardUuid
    compute_percent: Percent | None = None
    memory_used_mib: MemoryMib | None = None
    power_w: Count | None = None
    temperature_c: Count | None = None
    processes: Annotated[tuple[ProcessUsage, ...], Meta(max_length=1024)] | None = None
    """None: the driver cannot list processes; empty: there are none."""


class CpuUsage(Value, frozen=True, kw_only=True):
    """The node's CPUs and host memory over the last period."""

    cores: Count
    used_milli: Count | None = None
    memory_total_mib: MemoryMib | None = None
    memory_used_mib: MemoryMib | None = None


class NodeUsage(Message, frozen=True, kw_only=True, tag="node.usage.v1"):
    """GPU and CPU use of one node."""

    node: NodeName
    incarnation: ShortText
    sequence: Count
    period_ms: Count
    cards: Annotated[tuple[CardUsage, ...], Meta(max_length=64)]
    cpu: CpuUsage | None = None
