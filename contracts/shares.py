"""What a node is told to enforce beside the shares, and what it says that it enforces.

Flows in: `NodeCpuLimits`, quick changes of limits, from whoever scales pods in place. Flows out: `NodeEnforcement`,
what of the desired state is done and was checked, card by card and pod by pod, with the reason where it is not. The
shares themselves are `NodeShares`, a projection of the ledger. Nothing here is counted as sold: a limit promises
nothing, and what is guaranteed stands in the ledger. `NodeVertical` tells people what whoever scales pods in place saw,
and what it did or would do.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.inventory import IsolationMode
from contracts.messages import Message, Value
from contracts.units import (
    CardUuid,
    Count,
    CpuMilli,
    NodeName,
    Port,
    RequestUid,
    Sequence,
    ShareMilli,
    ShortText,
    UsedMilli,
)

Enforced = Literal["none", "memory", "compute", "both"]
"""Which part of a share nobody can exceed on a card."""

LimitMilli = Annotated[int, Meta(ge=10, le=10_000_000, description="thousandths of a CPU core, at least 10")]
"""The kernel takes no less than 1 ms of each period of 100 ms."""


class CpuLimit(Value, frozen=True, kw_only=True):
    """The most CPU that the container of one pod may use from now on."""

    uid: RequestUid
    limit_milli: LimitMilli


class ShareLimit(Value, frozen=True, kw_only=True):
    """The most that one pod may use of one card from now on, where that can change while it runs."""

    uid: RequestUid
    card: CardUuid
    limit_milli: ShareMilli


class NodeCpuLimits(Message, frozen=True, kw_only=True, tag="node.cpulimits.v1"):
    """Limits of one node's pods: a full snapshot, last one kept. What is not in it is as the spec and the shares say.

    CPU limits, as the name says, and since limits of cards were added also those: both change in one step.
    """

    node: NodeName
    epoch: ShortText
    """Of the ledger whose uids are meant."""
    sequence: Count
    """Counts up within an epoch; a lower one is refused."""
    limits: Annotated[tuple[CpuLimit, ...], Meta(max_length=1024)] = ()
    cards: Annotated[tuple[ShareLimit, ...], Meta(max_length=1024)] = ()
    """Limits of cards; only in modes that can change them."""
    cause: ShortText = ""


class CardEnforcement(Value, frozen=True, kw_only=True):
    """What holds on one card."""

    card: CardUuid
    mode: IsolationMode
    declared: Enforced
    """What the mode is able to enforce."""
    enforced: Enforced
    """What was found to hold at the last look; less than declared has a reason."""
    reason: ShortText = ""
    note: ShortText = ""
    """What the mode cannot do, in one sentence."""


PodState = Literal["applied", "waiting", "refused", "failed"]
"""waiting: for something of the node that comes by itself. refused: not possible as assigned. failed: tried again."""


class PodEnforcement(Value, frozen=True, kw_only=True):
    """One pod on one card, or its CPU limit."""

    uid: RequestUid
    what: ShortText
    """The card's UUID, or `cpu`."""
    state: PodState
    reason: ShortText = ""
    port: Port = 0
    limit_milli: Count | None = None
    """Of `cpu`: the limit that stands in the kernel, None = none."""


class NodeEnforcement(Message, frozen=True, kw_only=True, tag="node.enforcement.v1"):
    """What a monitor has done of the desired state and found to hold; published on change, last one kept."""

    node: NodeName
    incarnation: ShortText
    epoch: ShortText = ""
    ledger_sequence: Sequence = 0
    """The shares that this speaks of; 0 = none were accepted yet."""
    cpu_sequence: Count = 0
    cards: Annotated[tuple[CardEnforcement, ...], Meta(max_length=64)] = ()
    pods: tuple[PodEnforcement, ...] = ()
    refused: ShortText = ""
    """Why the newest desired state was not taken; empty = it was."""


class PodVertical(Value, frozen=True, kw_only=True):
    """One pod: what it uses, what it wants, what it gets. Cards: of each of its cards."""

    uid: RequestUid
    namespace: ShortText = ""
    pod: ShortText = ""
    """The request's name."""
    managed: bool = False
    """Its owner asked for it; else it is shown and left as it is."""
    rule: ShortText = ""
    """free: all that it wants costs no more than it may spend. bound: it spends all. floors: its least limits cost that
    much. unknown: a use is not known, and nothing is changed. left-alone: a limit could not be written."""
    income_milli: Count = 0
    """Thousandths of a token a second."""
    savings_milli: Count = 0
    cpu_sold_milli: CpuMilli = 0
    cpu_used_milli: CpuMilli | None = None
    cpu_weight_milli: Count = 0
    cpu_next_milli: CpuMilli = 0
    """What it wants, within what the node has."""
    cpu_limit_milli: CpuMilli | None = None
    """What was published for it; None = nothing."""
    cards: Count = 0
    """How many it holds a piece of."""
    gpu_sold_milli: UsedMilli = 0
    gpu_used_milli: UsedMilli | None = None
    gpu_weight_milli: Count = 0
    gpu_next_milli: UsedMilli = 0
    gpu_limit_milli: UsedMilli | None = None
    reason: ShortText = ""


class NodeVertical(Message, frozen=True, kw_only=True, tag="node.vertical.v1"):
    """What vertical scaling sees on a node, and what it does, or would do while it only observes."""

    node: NodeName
    mode: Literal["observe", "act"]
    epoch: ShortText = ""
    cpu_sequence: Count = 0
    """Of the limits that were published last; 0 = none were."""
    cpu_capacity_milli: CpuMilli | None = None
    pods: Annotated[tuple[PodVertical, ...], Meta(max_length=1024)] = ()


CPU = "cpu"
"""`PodEnforcement.what` of a CPU limit."""


def state_of(report: NodeEnforcement | None, uid: str) -> tuple[PodState | None, str]:
    """How far a pod is: the worst of its parts on cards, with that reason; None = the node has not said anything."""
    parts = [one for one in (report.pods if report else ()) if one.uid == uid and one.what != CPU]
    if not parts:
        return None, ""
    worst = max(parts, key=lambda one: (_SEVERITY[one.state], one.what))
    return worst.state, worst.reason


_SEVERITY: dict[PodState, int] = {"applied": 0, "waiting": 1, "failed": 2, "refused": 3}
