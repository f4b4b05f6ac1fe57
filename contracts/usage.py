"""What a node uses right now: one message per node and period, core NATS, newest replaces older.

    NodeUsage
    ├── cpu          the node's CPUs and host memory
    ├── containers   CPU, throttling, memory and limits of each container of ours
    └── cards        each card: the whole, each request's part of it, each process, and what belongs to nobody

Unknown is None, never zero: a driver that cannot tell a number leaves it out, and so does a kernel. What nobody asked
for (a limit that is not set) is said by a flag of its own, so that it is not taken for unknown.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.messages import Message, Value
from contracts.units import (
    CardUuid,
    Count,
    CpuMilli,
    MemoryMib,
    NodeName,
    Percent,
    RequestUid,
    ShareMilli,
    ShortText,
    UsedMilli,
)

Belongs = Literal["request", "nobody", "unknown"]
"""request: to the one named beside it. nobody: it runs outside of our pods, or in one that this card was not sold to,
which then is named beside it. unknown: it could not be looked at, or the pods of this node are not known."""

PodUid = Annotated[str, Meta(max_length=64, description="uid of a pod in Kubernetes")]
Runtime = Literal["containerd", "cri-o", "docker", "podman", ""]


class ProcessUsage(Value, frozen=True, kw_only=True):
    """One process on one card."""

    pid: Count
    memory_mib: MemoryMib | None = None
    compute_percent: Percent | None = None
    belongs: Belongs = "unknown"
    request: RequestUid = RequestUid("")
    command: Annotated[str, Meta(max_length=64)] = ""
    """Name of the program, as the kernel has it (15 characters); empty = unknown."""
    started_ticks: Count | None = None
    """When it began, in clock ticks since boot: with the pid it names a process for ever, as pids are used again."""


class SliceUsage(Value, frozen=True, kw_only=True):
    """One request's part of one card. The parts never add up to more than the card."""

    uid: RequestUid
    namespace: ShortText
    pod: ShortText
    share_milli: ShareMilli
    """What it may use, in thousandths of the card."""
    limit_mib: MemoryMib
    """What it may use of the card's memory."""
    compute_percent: Percent | None = None
    """Its part of the card's busy time. 0 for a request without a process; None when one of its processes, or whose
    they are, is unknown."""
    average_milli: UsedMilli | None = None
    """Running mean of the periods in thousandths of the card, the newest with one eighth."""
    memory_used_mib: MemoryMib | None = None
    processes: Count | None = None
    """None: the driver cannot list processes."""


class CardUsage(Value, frozen=True, kw_only=True):
    """One card over the last period."""

    uuid: CardUuid
    compute_percent: Percent | None = None
    memory_used_mib: MemoryMib | None = None
    power_w: Count | None = None
    temperature_c: Count | None = None
    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    ecc_corrected: Count | None = None
    """Memory errors since the driver was loaded that cost nothing."""
    ecc_uncorrected: Count | None = None
    """Those that cost somebody his work."""
    processes: Annotated[tuple[ProcessUsage, ...], Meta(max_length=1024)] | None = None
    """None: the driver cannot list processes; empty: there are none."""
    slices: Annotated[tuple[SliceUsage, ...], Meta(max_length=1024)] | None = None
    """Of each request that holds a piece of the card; None: it is not known who does."""
    unmanaged_mib: MemoryMib | None = None
    """Memory of processes that belong to nobody. None: it is not known who holds what."""


class CpuUsage(Value, frozen=True, kw_only=True):
    """The node's CPUs and host memory over the last period."""

    cores: Count
    used_milli: Count | None = None
    memory_total_mib: MemoryMib | None = None
    memory_used_mib: MemoryMib | None = None


class ContainerUsage(Value, frozen=True, kw_only=True):
    """One container of a pod of ours, from its cgroup. Also the sandbox container of the pod is one, and idle."""

    container: ShortText
    """Id, as the runtime has it."""
    runtime: Runtime = ""
    pod_uid: PodUid
    uid: RequestUid
    namespace: ShortText = ""
    pod: ShortText = ""
    """Empty where only the uid is known."""
    own: bool | None = None
    """Whether it is the one that the request describes, and not the sandbox of its pod; None: not known yet."""
    cpu_used_milli: CpuMilli | None = None
    """Mean over the period."""
    cpu_average_milli: CpuMilli | None = None
    """Running mean of the periods, the newest with one eighth."""
    throttled_ms: Count | None = None
    """How long its threads, together, were held back in the period."""
    throttled_permille: Annotated[int, Meta(ge=0, le=1000)] | None = None
    """Part of its scheduling periods in which it was held back; None also when it had no limit to be held by."""
    cpu_limited: bool | None = None
    """Whether there is a limit; None: unknown."""
    cpu_limit_milli: CpuMilli | None = None
    memory_mib: MemoryMib | None = None
    """All that is charged to it, with the page cache."""
    memory_working_mib: MemoryMib | None = None
    """Without the cache that can be dropped at once: what the kubelet judges by."""
    memory_limited: bool | None = None
    memory_limit_mib: MemoryMib | None = None


class NodeUsage(Message, frozen=True, kw_only=True, tag="node.usage.v1"):
    """GPU and CPU use of one node."""

    node: NodeName
    incarnation: ShortText
    sequence: Count
    period_ms: Count
    cards: Annotated[tuple[CardUsage, ...], Meta(max_length=64)]
    cpu: CpuUsage | None = None
    containers: Annotated[tuple[ContainerUsage, ...], Meta(max_length=1024)] | None = None
    """None: cgroups cannot be read, or it is not known which pods are ours; empty: there are none of ours."""
    provider: Literal["nvml", "simulated"] = "nvml"
    """simulated: the cards are made up. CPU and containers are always the machine's own."""
