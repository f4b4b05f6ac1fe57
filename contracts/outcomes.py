"""What became of decisions: outcomes seen in Kubernetes, and the events that users subscribe to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.decisions import CardSlice
from contracts.messages import Message, Value
from contracts.reasons import Reason, Refusal
from contracts.requests import PodRequest
from contracts.units import (
    Count,
    CpuMilli,
    Integer,
    MemoryMib,
    NamespaceName,
    NodeName,
    Port,
    RequestName,
    RequestUid,
    Sequence,
    ShareMilli,
    ShortText,
)

OutcomePhase = Literal["waiting", "bound", "running", "ended", "gone", "rejected"]
"""waiting: Kubernetes does not take the pod now (a quota, missing rights); it is tried again, and nothing is freed.
rejected: Kubernetes will never run it (a policy, a quota, a kubelet admission error); the reason says which."""


class ResizeRefused(Value, frozen=True, kw_only=True):
    """A change of a container's CPU that will not come: what was asked for, and what it goes on with."""

    wanted_milli: CpuMilli
    """As the ledger counts it."""
    has_milli: CpuMilli | None = None
    """None = nobody knows."""


class Outcome(Message, frozen=True, kw_only=True, tag="pod.outcome.v1"):
    """What the reconciler saw of one request's pod; last per request kept. It is evidence, not an order."""

    uid: RequestUid
    namespace: NamespaceName
    name: RequestName
    phase: OutcomePhase
    pod: ShortText
    pod_uid: ShortText = ""
    node: NodeName = NodeName("")
    exit_code: Integer | None = None
    reason: ShortText = ""
    ledger_sequence: Sequence = 0
    """The commit whose decision this pod carries."""
    attempt: Count = 0
    """Which pod of the request it was: one that had to leave and is placed again gets another."""
    resize_refused: ResizeRefused | None = None
    """Kubernetes will not give its container what the ledger counts; `reason` says why. What it defers is no refusal.
    """
    cause: ShortText = ""


class Allocation(Value, frozen=True, kw_only=True):
    """A running allocation as Kubernetes alone remembers it, read back from the annotations of its pod."""

    uid: RequestUid
    namespace: NamespaceName
    epoch: ShortText
    ledger_sequence: Sequence
    request: PodRequest
    node: NodeName
    slices: tuple[CardSlice, ...]
    pod: ShortText
    running: bool


class AskAllocations(Message, frozen=True, kw_only=True, tag="ask.allocations.v1"):
    """To the reconciler: which pods carry our allocations? Asked when the ledger is empty, and by the audit."""

    after: ShortText = ""
    """Continue after this `namespace/pod`."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class AllocationsPage(Message, frozen=True, kw_only=True, tag="answer.allocations.v1"):
    """A page of allocations in order of `namespace/pod`; `more` when the next page should be asked for."""

    items: tuple[Allocation, ...]
    unreadable: tuple[ShortText, ...] = ()
    """Pods that carry our label and whose annotations cannot be read; an operator must look at them."""
    last: ShortText = ""
    more: bool = False


EventPhase = Literal[
    "accepted",
    "refused",
    "pending",
    "placed",
    "waiting",
    "bound",
    "running",
    "ended",
    "withdrawn",
    "released",
    "resized",
    "nominated",
    "evicting",
    "requeued",
    "squeezed",
]
"""waiting: it has a place and gets no further, with Kubernetes' own words why.
squeezed: a process of nobody holds memory of its card that was sold before it came; nothing was taken back."""


class RequestEvent(Message, frozen=True, kw_only=True, tag="request.event.v1"):
    """A step in the life of a request, on `gpubus.v1.events.<namespace>.<name>`."""

    namespace: NamespaceName
    name: RequestName
    uid: RequestUid = RequestUid("")
    phase: EventPhase
    text: ShortText = ""
    reasons: tuple[Reason, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    node: ShortText = ""
    slices: tuple[CardSlice, ...] = ()
    pod: ShortText = ""
    ledger_sequence: Sequence = 0
    """The commit that this step stands in; 0 when it changed nothing."""
    request_sequence: Sequence = 0
    """The message in the requests stream that this answers; 0 for request/reply submits."""
    at_ms: Count = 0
    cause: ShortText = ""


class DeadLetter(Message, frozen=True, kw_only=True, tag="deadletter.v1"):
    """A message that could not be understood, with the reason; the raw bytes are capped."""

    origin_stream: ShortText
    origin_subject: ShortText
    origin_sequence: Sequence
    reason: ShortText
    raw_base64: Annotated[str, Meta(max_length=16_384)] = ""
    truncated: bool = False
    headers: dict[str, str] = {}


class ShareAssignment(Value, frozen=True, kw_only=True):
    """What one pod may use on one card of this node."""

    uid: RequestUid
    namespace: NamespaceName
    pod: ShortText
    card: ShortText
    share_milli: ShareMilli
    memory_mib: MemoryMib
    port: Port = 0
    """Where the pod's manager listens, on a card whose shares a token server deals out; 0 = none was free, or needed.
    It is the pod's for as long as it is listed."""


class PodOnNode(Value, frozen=True, kw_only=True):
    """A pod that the ledger counts on this node, with what Kubernetes says of it; empty = not known yet."""

    uid: RequestUid
    pod_uid: ShortText = ""
    container_id: ShortText = ""
    """Of its one container, without the runtime's name before it; another one after each restart."""
    cpu_limit_milli: CpuMilli = 0
    """The CPU limit that Kubernetes enforces on the container; 0 = none."""


class NodeShares(Message, frozen=True, kw_only=True, tag="node.shares.v1"):
    """Desired state of one node's cards: a full snapshot, last one kept; an older sequence is refused."""

    node: NodeName
    epoch: ShortText
    ledger_sequence: Sequence
    assignments: tuple[ShareAssignment, ...] = ()
    pods: tuple[PodOnNode, ...] = ()
    """By uid; also those without a card."""
    last_port: Port = 0
    """The port that was given out last: the next search begins after it, so that none is used again at once."""
    cause: ShortText = ""


__all__ = [
    "Allocation",
    "AllocationsPage",
    "AskAllocations",
    "DeadLetter",
    "EventPhase",
    "NodeShares",
    "Outcome",
    "OutcomePhase",
    "PodOnNode",
    "Reason",
    "Refusal",
    "RequestEvent",
    "ResizeRefused",
    "ShareAssignment",
]
