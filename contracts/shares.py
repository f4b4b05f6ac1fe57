"""What a node is told to enforce beside the shares, and what it says that it enforces.

Flows in: `NodeCpuLimits`, quick changes of CPU limits, from whoever scales pods in place. Flows out: `NodeEnforcement`,
what of the desired state is done and was checked, card by card and pod by pod, with the reason where it is not. The
shares themselves are `NodeShares`, a projection of the ledger. Nothing here is counted as sold: a limit promises
nothing, and what is guaranteed stands in the ledger.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.inventory import IsolationMode
from contracts.messages import Message, Value
from contracts.units import CardUuid, Count, NodeName, Port, RequestUid, Sequence, ShortText

Enforced = Literal["none", "memory", "compute", "both"]
"""Which part of a share nobody can exceed on a card."""

LimitMilli = Annotated[int, Meta(ge=10, le=10_000_000, description="thousandths of a CPU core, at least 10")]
"""The kernel takes no less than 1 ms of each period of 100 ms."""


class CpuLimit(Value, frozen=True, kw_only=True):
    """The most CPU that the container of one pod may use from now on."""

    uid: RequestUid
    limit_milli: LimitMilli


class NodeCpuLimits(Message, frozen=True, kw_only=True, tag="node.cpulimits.v1"):
    """CPU limits of one node's pods: a full snapshot, last one kept. A pod that is not in it has its spec's limit."""

    node: NodeName
    epoch: ShortText
    """Of the ledger whose uids are meant."""
    sequence: Count
    """Counts up within an epoch; a lower one is refused."""
    limits: Annotated[tuple[CpuLimit, ...], Meta(max_length=1024)] = ()
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
