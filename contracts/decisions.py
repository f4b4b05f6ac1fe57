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
    chosen: Candidate
    runner_up: Candidate | None = None
    feasible_nodes: Count
    rejected_nodes: Count


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


class Released(Value, frozen=True, kw_only=True, tag="released"):
    """The slice is free again. Written after the fact is seen, never because time has passed."""

    uid: RequestUid
    evidence: Literal["ended", "gone", "never-created", "node-gone", "rejected"]
    detail: ShortText = ""


class Observed(Value, frozen=True, kw_only=True, tag="observed"):
    """How far the pod of a placed request has come, as last seen in Kubernetes."""

    uid: RequestUid
    phase: Literal["bound", "running"]
    pod: ShortText = ""


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
    "Observed",
    "Placement",
    "Rationale",
    "Record",
    "Released",
    "Reserved",
    "Resized",
    "Withdrawn",
]
