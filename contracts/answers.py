"""Request/reply: submit, what-if, explain and the views that the command line prints.

An answer to a submit is a promise: `accepted` with a uid is sent after the record is committed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.decisions import Placement, Rationale
from contracts.inventory import Card
from contracts.messages import Message, Value
from contracts.outcomes import Reason, Refusal
from contracts.requests import GpuAsk
from contracts.units import Count, CpuMilli, Integer, MemoryMib, RequestName, RequestUid, Sequence, ShortText, UsedMilli


class SubmitReply(Message, frozen=True, kw_only=True, tag="answer.submit.v1"):
    """Accepted with its uid after the commit, or refused with every field that is wrong."""

    accepted: bool
    uid: RequestUid = RequestUid("")
    ledger_sequence: Sequence = 0
    duplicate: bool = False
    """The same request was accepted before; the uid is that of the first."""
    refusals: tuple[Refusal, ...] = ()


class AskExplain(Message, frozen=True, kw_only=True, tag="ask.explain.v1"):
    """Why is this request where it is, or why is it nowhere? By name, in the namespace of the subject."""

    name: RequestName


class NodeVerdict(Value, frozen=True, kw_only=True):
    """One node as the decision sees it: feasible with a score, or the first reason against it."""

    node: ShortText
    score: Integer | None = None
    scores: dict[ShortText, Integer] = {}
    """Per scoring rule, weighted."""
    reason: Reason | None = None


class Nearest(Value, frozen=True, kw_only=True):
    """The smallest change that would make it fit, and where."""

    text: ShortText
    node: ShortText = ""
    card: ShortText = ""
    missing: Count = 0
    unit: ShortText = ""


class QueueView(Value, frozen=True, kw_only=True):
    """Where a pending request stands."""

    position: Count
    """1 = first. A gang counts once."""
    pending: Count
    """So many stand in the queue."""
    priority: Integer = 0
    aged: Count = 0
    """Points that its wait has brought it so far."""
    waited_s: Count = 0
    share_ppm: Count = 0
    """The dominant share of its namespace: the part of all cards that it holds, in millionths."""
    weight: Count = 1
    nominated: ShortText = ""
    """Node whose place is held for it."""
    waits_for: tuple[ShortText, ...] = ()
    """Who has to leave that place first, as `namespace/name`."""


class Explanation(Message, frozen=True, kw_only=True, tag="answer.explain.v1"):
    """The whole answer to `explain` and `what-if`."""

    known: bool
    namespace: ShortText = ""
    name: ShortText = ""
    uid: RequestUid = RequestUid("")
    phase: ShortText = ""
    ask: GpuAsk | None = None
    placement: Placement | None = None
    rationale: Rationale | None = None
    reasons: tuple[Reason, ...] = ()
    nearest: Nearest | None = None
    nodes: tuple[NodeVerdict, ...] = ()
    """The best few feasible nodes, then the closest of the others."""
    ledger_sequence: Sequence = 0
    """The commit this answer was computed at (`explain` of a pending one, `what-if`) or decided in."""
    policy: ShortText = ""
    trace: ShortText = ""
    queue: QueueView | None = None
    """Of a pending one."""


class AskState(Message, frozen=True, kw_only=True, tag="ask.state.v1"):
    """A view of the ledger for people: requests, cards or nodes, one page."""

    what: Literal["requests", "cards", "nodes", "quotas", "summary"]
    namespace: ShortText = ""
    after: ShortText = ""
    limit: Annotated[int, Meta(ge=1, le=2000)] = 500


class RequestView(Value, frozen=True, kw_only=True):
    """One request."""

    namespace: ShortText
    name: ShortText
    uid: RequestUid
    phase: ShortText
    cards: Count
    share_milli: UsedMilli
    memory_mib: MemoryMib | None
    node: ShortText = ""
    slices: tuple[ShortText, ...] = ()
    pod: ShortText = ""
    priority: Integer = 0
    gang: ShortText = ""
    reason: ShortText = ""
    submitted_ms: Count = 0
    nominated: ShortText = ""
    """Node whose place is held for a pending one."""
    attempt: Count = 0
    """How often it had to leave a place before."""


class CardView(Value, frozen=True, kw_only=True):
    """One card: what it is and what is sold of it."""

    node: ShortText
    card: Card
    used_milli: UsedMilli
    used_mib: MemoryMib
    sellable_mib: MemoryMib
    residents: tuple[ShortText, ...] = ()
    health: ShortText = ""
    """In one or two words: what keeps the card from taking more, or `healthy`."""
    cordoned: bool = False
    reason: ShortText = ""
    """Why it is not offered: the operator's words, then the monitor's."""
    since_ms: Count = 0
    """Wall clock when this began, for people; 0 = not known."""


class NodeView(Value, frozen=True, kw_only=True):
    """One node."""

    node: ShortText
    health: ShortText
    ready: bool
    cards: Count
    used_cpu_milli: CpuMilli
    allocatable_cpu_milli: CpuMilli
    used_memory_mib: MemoryMib
    allocatable_memory_mib: MemoryMib
    used_card_milli: Count
    reason: ShortText = ""


class QuotaView(Value, frozen=True, kw_only=True):
    """One namespace: what it may hold and what it holds."""

    namespace: ShortText
    mapped: bool
    """False: quotas are on and it has none, so that it may hold nothing."""
    share_milli: Count | None = None
    memory_mib: Count | None = None
    used_milli: Count = 0
    used_mib: Count = 0
    weight: Count = 1
    max_priority: Integer | None = None


class Summary(Value, frozen=True, kw_only=True):
    """The state in one line: every accepted request is in exactly one of these."""

    accepted: Count = 0
    pending: Count = 0
    placed: Count = 0
    running: Count = 0
    withdrawn: Count = 0
    ended: Count = 0
    over_commits: Count = 0
    nodes: Count = 0
    cards: Count = 0


class StateView(Message, frozen=True, kw_only=True, tag="answer.state.v1"):
    """A page of one view, at one ledger sequence."""

    ledger_sequence: Sequence
    epoch: ShortText = ""
    policy: ShortText = ""
    requests: tuple[RequestView, ...] = ()
    cards: tuple[CardView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    quotas: tuple[QuotaView, ...] = ()
    summary: Summary | None = None
    last: ShortText = ""
    more: bool = False
