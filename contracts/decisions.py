"""Decisions and the ledger: the records that the single truth is made of, and the commit that carries them.

A commit is one message on one literal subject, published with the sequence of the last commit its author had folded.
It names its epoch, its number, its predecessor, its author, the policy version and its causes, so that an unbroken
chain and the inputs of every decision can be proved from the log alone. Only the scheduler writes it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.inventory import CardHealth, NodeFacts, NodeInventory
from contracts.messages import Message, Value
from contracts.quotas import NamespaceQuota
from contracts.reasons import Refusal
from contracts.requests import PodRequest
from contracts.units import (
    MAX_INTEGER,
    CardUuid,
    Count,
    CpuMilli,
    Integer,
    MemoryMib,
    NamespaceName,
    NodeName,
    RequestName,
    RequestUid,
    Sequence,
    ShareMilli,
    ShortText,
)


class CardSlice(Value, frozen=True, kw_only=True):
    """A piece of one card: what is guaranteed and counted."""

    card: CardUuid
    share_milli: ShareMilli
    memory_mib: MemoryMib


class Placement(Value, frozen=True, kw_only=True):
    """Where a request landed. `slices` name distinct cards of `node`; empty for a request without cards."""

    node: NodeName
    slices: tuple[CardSlice, ...] = ()
    cpu_milli: CpuMilli = 0
    memory_mib: MemoryMib = 0


class Candidate(Value, frozen=True, kw_only=True):
    """A node that was considered, with its total score; higher is better."""

    node: NodeName
    score: Integer


class Rationale(Value, frozen=True, kw_only=True):
    """Why a placement was chosen: enough to read it, and with the log prefix to compute it again."""

    policy: ShortText
    version: Count = 1
    """Of the policy: another version may decide otherwise."""
    chosen: Candidate
    runner_up: Candidate | None = None
    feasible_nodes: Count
    rejected_nodes: Count
    ties: ShortText = "digest of the node's name, then the name"
    """Which of several nodes with the best score is taken."""
    parts: dict[ShortText, Integer] = {}
    """What the score of the chosen node is made of, in millionths of a card, less is worse; what is 0 is left out. Only
    of policies that weigh costs against each other."""
    nominated: Count = 0
    """Number of the commit with the nomination that this fulfils: the place was chosen then. 0 = chosen now."""
    instead_of: ShortText = ""
    """The policy that was to decide and why it could not, as `mine: raised KeyError`; `policy` did. Empty = it did."""


# --- records -------------------------------------------------------------------------------------------------------


class EpochStarted(Value, frozen=True, kw_only=True, tag="epoch"):
    """The log begins, or begins again after a rebuild; a different epoch in memory means stop and rebuild."""

    epoch: ShortText
    reason: ShortText


class Accepted(Value, frozen=True, kw_only=True, tag="accepted"):
    """The request is in the queue, which is part of the state. This record *is* the acceptance."""

    uid: RequestUid
    namespace: NamespaceName
    request: PodRequest
    trace: ShortText = ""
    """W3C traceparent of the submit, carried to whoever acts on the request later."""
    request_sequence: Sequence = 0
    """The message in the requests stream that this accepts; 0 for request/reply submits."""
    submitted_ms: Count = 0
    """Wall clock of the author at acceptance: the queue's age and display; nothing is freed by it."""


class Refused(Value, frozen=True, kw_only=True, tag="refused"):
    """A message of the requests stream is not accepted. This record *is* the refusal.

    It is told after the commit holds, so that of two schedulers with the same message only one has said anything.
    """

    namespace: NamespaceName
    name: RequestName
    request_sequence: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """The message in the requests stream; a submit by request/reply is refused in its answer, without a record."""
    refusals: Annotated[tuple[Refusal, ...], Meta(max_length=64)]


class Withdrawn(Value, frozen=True, kw_only=True, tag="withdrawn"):
    """The user takes the request back. Placed ones are released on evidence, later."""

    uid: RequestUid
    reason: ShortText = ""


class Reserved(Value, frozen=True, kw_only=True, tag="reserved"):
    """The decision: this request gets these slices."""

    uid: RequestUid
    placement: Placement
    rationale: Rationale


class Adopted(Value, frozen=True, kw_only=True, tag="adopted"):
    """A placement found in Kubernetes when the ledger was rebuilt: it is counted whatever the inventory says."""

    uid: RequestUid
    placement: Placement
    pod: ShortText = ""
    running: bool = False


class Resized(Value, frozen=True, kw_only=True, tag="resized"):
    """The slices of a placed request changed in place: every slice gets the same share and memory."""

    uid: RequestUid
    share_milli: ShareMilli
    memory_mib: MemoryMib
    cpu_milli: CpuMilli | None = None
    """What the node counts of its CPU for it from now on; absent = as before."""
    reason: ShortText = ""
    """Why a resize is put back: Kubernetes refused it after the ledger had taken it. Empty = somebody asked for it."""


class Released(Value, frozen=True, kw_only=True, tag="released"):
    """The slice is free again. Written after the fact is seen, never because time has passed."""

    uid: RequestUid
    evidence: Literal["ended", "gone", "never-created", "node-gone", "rejected"]
    detail: ShortText = ""
    requeue: bool = False
    """It had to leave for another request and waits again, under the same uid, with one attempt more."""


class Nominated(Value, frozen=True, kw_only=True, tag="nominated"):
    """A waiting request has a place in sight: what is free of it now is held for it, what is freed of it later too.

    `victims` are told to leave in the same breath. Nothing is sold by this: the request is placed when all of its place
    is free, on evidence that whoever held it has gone.
    """

    uid: RequestUid
    placement: Placement
    victims: Annotated[tuple[RequestUid, ...], Meta(max_length=1024)] = ()
    why: Literal["preempts", "ending", "drains"]
    """Its victims must leave, or somebody is leaving already, or it waits first in the queue for others to end."""
    expected_ms: Count | None = None
    """When the place should be free, by the ends that its holders expect; None = nobody knows."""
    version: Count = 0
    """Of the rules by which the place was chosen: another version may choose otherwise. 0 = before they had numbers."""


class NominationEnded(Value, frozen=True, kw_only=True, tag="nomination-ended"):
    """The place is not to be waited for any more; what was held for the request is free for all."""

    uid: RequestUid
    reason: ShortText = ""


class QuotaSet(Value, frozen=True, kw_only=True, tag="quota"):
    """What a namespace may hold from now on; what it holds already stays."""

    quota: NamespaceQuota


class Observed(Value, frozen=True, kw_only=True, tag="observed"):
    """How far the pod of a placed request has come, as last seen in Kubernetes."""

    uid: RequestUid
    phase: Literal["placed", "bound", "running"]
    pod: ShortText = ""
    detail: ShortText = ""
    """Why it gets no further: a quota that refuses the pod, an image that is missing, in Kubernetes' own words."""


class InventorySet(Value, frozen=True, kw_only=True, tag="inventory"):
    """The cards of a node, as its monitor reported them."""

    inventory: NodeInventory


class FactsSet(Value, frozen=True, kw_only=True, tag="facts"):
    """A node as Kubernetes has it; `gone` removes the node once nothing is placed there."""

    facts: NodeFacts


class HealthSet(Value, frozen=True, kw_only=True, tag="health"):
    """Freshness of a node: `suspect` takes no new placements and frees nothing."""

    node: NodeName
    health: Literal["fresh", "suspect"]
    reason: ShortText = ""


class CardHealthSet(Value, frozen=True, kw_only=True, tag="card-health"):
    """Health of one card, or an operator's cordon."""

    node: NodeName
    card: CardUuid
    health: CardHealth
    reason: ShortText = ""
    at_ms: Count = 0
    """Wall clock of who said so, for people."""


Record = (
    EpochStarted
    | Accepted
    | Withdrawn
    | Reserved
    | Adopted
    | Resized
    | Released
    | Observed
    | InventorySet
    | FactsSet
    | HealthSet
    | CardHealthSet
    | Nominated
    | NominationEnded
    | QuotaSet
    | Refused
)


class Commit(Message, frozen=True, kw_only=True, tag="ledger.commit.v1"):
    """One atomic step of the ledger."""

    pool: ShortText
    epoch: ShortText
    number: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """1, 2, 3, … without a gap within the stream."""
    predecessor: Sequence
    """Stream sequence of the commit before this one; equals the expected-last-sequence it was published with."""
    author: ShortText
    """Incarnation of the scheduler that wrote it."""
    term: Count = 0
    """Lease sequence of the author: which leadership it wrote under."""
    policy_version: ShortText = ""
    requests_through: Sequence = 0
    """Everything in the requests stream up to here is handled: accepted, refused or dead-lettered."""
    at_ms: Count = 0
    """Wall clock of the author, for people."""
    records: Annotated[tuple[Record, ...], Meta(max_length=5000)]
    causes: Annotated[tuple[ShortText, ...], Meta(max_length=64)] = ()


class CheckpointHead(Message, frozen=True, kw_only=True, tag="ledger.checkpoint.v1"):
    """A projection of the ledger at one sequence, in numbered chunks after this head; never truth."""

    pool: ShortText
    epoch: ShortText
    ledger_sequence: Sequence
    number: Count
    digest: ShortText
    """SHA-256 of the uncompressed state; a reader that computes another one ignores the checkpoint."""
    chunks: Count
    bytes_total: Count


__all__ = [
    "Accepted",
    "Adopted",
    "Candidate",
    "CardHealthSet",
    "CardSlice",
    "CheckpointHead",
    "Commit",
    "EpochStarted",
    "FactsSet",
    "HealthSet",
    "InventorySet",
    "Nominated",
    "NominationEnded",
    "Observed",
    "Placement",
    "QuotaSet",
    "Rationale",
    "Record",
    "Refused",
    "Released",
    "Reserved",
    "Resized",
    "Withdrawn",
]
