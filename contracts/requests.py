"""What users publish: pod requests, withdrawals and resizes.

The namespace comes from the subject a request was published to, never from its payload. The pod template is restricted:
a small typed form that we render, not a PodSpec, so that nothing reaches Kubernetes that was not named here. Unknown
fields of a *request* are refused by admission with the nearest valid key; decoding alone ignores them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.constraints import NodeAffinity, PodAffinity, TopologySpread
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
    """MiB of each card. Absent: a fraction of the card, `memory_milli` or `share_milli`, rounded down, per actual card.
    """
    memory_milli: ShareMilli | None = None
    """Thousandths of each card's sellable memory, where they differ from those of its compute; not with `memory_mib`.
    """
    models: Annotated[tuple[ModelName, ...], Meta(max_length=32)] = ()
    """Allowed card models; empty = any."""
    min_card_memory_mib: MemoryMib = 0
    """Memory that the card itself must have, in MiB: its size as the driver tells it, whatever is sold of it."""
    nvlink: Literal["any", "prefer", "require"] = "any"
    """Of several cards: whether they should, or must, reach each other over NVLink."""


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
    size: Annotated[int, Meta(ge=1, le=512)]
    min: Annotated[int, Meta(ge=1, le=256)] | None = None
    """So many members, at most `size`, are enough to begin; the others join when there is room. None = all of them."""
    within: Literal["anywhere", "node", "nvlink", "domain"] = "anywhere"
    """Where the members stand to each other: on one node, on cards of one NVLink group of one node, or on nodes with
    the same value of the label `topology_key`. The narrowest that a member asks for holds for all."""
    topology_key: LabelKey | None = None
    """For `domain`, and only for it."""

    @property
    def needed(self) -> int:
        """Members that must be placed together for it to begin."""
        return self.size if self.min is None else self.min


class ExternalPod(Value, frozen=True, kw_only=True):
    """A pod that somebody else has made, and that waits to be bound. Nothing is created for a request of one.

    The reconciler makes such requests from pods that name our scheduler. It binds the pod only while the pod still asks
    for exactly what the request says, so that a request somebody makes up binds nothing.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?" + END, max_length=253)]
    uid: Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9-]+" + END)]
    """Of this life of the pod: another one of its name is another request."""


class PodRequest(Message, frozen=True, kw_only=True, tag="pod.request.v1"):
    """A pod that wants a slice of one or more cards."""

    name: RequestName
    pod: PodTemplate
    gpu: GpuAsk = GpuAsk()
    priority: Priority = 0
    priority_class: Annotated[str, Meta(max_length=40)] | None = None
    """Priority by name, instead of the integer: `critical`, `high`, `normal`, `low`, `scavenger`."""
    expected_s: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    """How long it is expected to run, in seconds, if somebody knows. A promise to the queue, never a limit: it lets
    others plan on its end, and lets it pass a request that waits for a later time."""
    policy: Annotated[str, Meta(max_length=40)] | None = None
    """Placement policy by name; absent = the service's default."""
    gang: GangRef | None = None
    locality: Locality = Locality()
    node_selector: Annotated[dict[LabelKey, LabelValue], Meta(max_length=32)] = {}
    tolerations: Annotated[tuple[Toleration, ...], Meta(max_length=32)] = ()
    node_affinity: NodeAffinity = NodeAffinity()
    topology_spread: Annotated[tuple[TopologySpread, ...], Meta(max_length=8)] = ()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()
    external: ExternalPod | None = None
    """The pod that is bound for this request, made by somebody else. Of the template count its sums and labels only."""
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
    cpu_milli: CpuMilli | None = None
    """CPU of its container from now on, changed in place; absent = as it is."""
    cause: ShortText = ""


RequestMessage = PodRequest | Withdraw | Resize
