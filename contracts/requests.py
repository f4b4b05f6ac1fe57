"""What users publish: pod requests, withdrawals and resizes.

The namespace comes from the subject a request was published to, never from its payload. The pod template is restricted:
a small typed form that we render, not a PodSpec, so that nothing reaches Kubernetes that was not named here. Unknown
fields of a *request* are refused by admission with the nearest valid key; decoding alone ignores them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.messages import Message, Value
from contracts.units import (
    END,
    CardCount,
    CpuMilli,
    LabelKey,
    LabelValue,
    LocalityTag,
    MemoryMib,
    ModelName,
    Priority,
    RequestName,
    ShareMilli,
    ShortText,
)


class GpuAsk(Value, frozen=True, kw_only=True):
    """How much of how many cards. `memory_mib` and `share_milli` are guaranteed on each of the `cards`."""

    cards: CardCount = 1
    """Number of distinct cards, all on one node. 0 asks for CPU and host memory only."""
    share_milli: ShareMilli = 1000
    """Thousandths of compute of each card: 1000 = whole."""
    memory_mib: MemoryMib | None = None
    """MiB of each card. Absent: the same fraction of the card as `share_milli`, rounded up, per actual card."""
    models: Annotated[tuple[ModelName, ...], Meta(max_length=32)] = ()
    """Allowed card models; empty = any."""


class Locality(Value, frozen=True, kw_only=True):
    """Tags that cards carry from their residents. A card without residents is open to any tag."""

    affinity: LocalityTag | None = None
    """Share a card with residents that carry the same affinity tag, or open an empty card."""
    anti_affinity: LocalityTag | None = None
    """Never share a card with a resident that carries the same anti-affinity tag."""
    exclusion: LocalityTag | None = None
    """Share a card only with residents that carry the same exclusion tag."""


class Toleration(Value, frozen=True, kw_only=True):
    """A Kubernetes toleration."""

    key: LabelKey | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class EnvVar(Value, frozen=True, kw_only=True):
    """One environment variable. Variables that pick devices are set by the platform and refused here."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*" + END, max_length=256)]
    value: Annotated[str, Meta(max_length=8192)] = ""


class PodTemplate(Value, frozen=True, kw_only=True):
    """The restricted pod: one container, rendered by us under the `restricted` pod security standard."""

    image: Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*" + END)]
    command: Annotated[tuple[ShortText, ...], Meta(max_length=64)] = ()
    args: Annotated[tuple[ShortText, ...], Meta(max_length=256)] = ()
    env: Annotated[tuple[EnvVar, ...], Meta(max_length=128)] = ()
    cpu_milli: CpuMilli = 100
    memory_mib: MemoryMib = 64
    labels: Annotated[dict[LabelKey, LabelValue], Meta(max_length=32)] = {}
    annotations: Annotated[dict[LabelKey, ShortText], Meta(max_length=32)] = {}
    working_dir: Annotated[str, Meta(max_length=512)] = ""
    restart_policy: Literal["Never", "OnFailure", "Always"] = "Never"
    grace_s: Annotated[int, Meta(ge=0, le=3600)] = 30
    """Seconds between SIGTERM and SIGKILL."""


class GangRef(Value, frozen=True, kw_only=True):
    """Membership in a gang: all `size` members are placed in one commit, or none is."""

    name: RequestName
    size: Annotated[int, Meta(ge=1, le=256)]


class PodRequest(Message, frozen=True, kw_only=True, tag="pod.request.v1"):
    """A pod that wants a slice of one or more cards."""

    name: RequestName
    pod: PodTemplate
    gpu: GpuAsk = GpuAsk()
    priority: Priority = 0
    policy: Annotated[str, Meta(max_length=40)] | None = None
    """Placement policy by name; absent = the service's default."""
    gang: GangRef | None = None
    locality: Locality = Locality()
    node_selector: Annotated[dict[LabelKey, LabelValue], Meta(max_length=32)] = {}
    tolerations: Annotated[tuple[Toleration, ...], Meta(max_length=32)] = ()
    cause: ShortText = ""


class Withdraw(Message, frozen=True, kw_only=True, tag="pod.withdraw.v1"):
    """Take a request back: it leaves the queue, or its pod is deleted and its slice released once it is gone."""

    name: RequestName
    reason: ShortText = ""
    cause: ShortText = ""


class Resize(Message, frozen=True, kw_only=True, tag="pod.resize.v1"):
    """Change the slice of a placed request in place, on the cards it has; refused with numbers if it does not fit."""

    name: RequestName
    share_milli: ShareMilli
    memory_mib: MemoryMib
    cause: ShortText = ""


RequestMessage = PodRequest | Withdraw | Resize
