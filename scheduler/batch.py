"""One turn of the scheduler: inputs in, one commit with everything that must accompany it out.

The engine folds as it decides; here its records become a commit, and answers and dead letters are collected.
Dead letters are stored *before* the commit that moves the position past their messages, answers and events (refusals
are such) are sent *after* it: whatever crashes in between, nothing is lost and nothing is said too early. No I/O here;
spans are opened and closed for sampled requests only (three spans of some 21 microseconds each).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from bus.headers import traceparent_in
from bus.ledger.append import commit_after
from bus.ledger.fold import seal
from bus.protocol import Received
from bus.runtime import semconv
from bus.runtime.tracing import Attributes, Span, SpanKind, context_from, span, traceparent_of, tracer
from contracts.decisions import Accepted, Commit, HealthSet, Reserved, Withdrawn
from contracts.inventory import CordonCard, NodeFacts, NodeInventory
from contracts.outcomes import Outcome, Refusal
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest, Resize, Withdraw
from contracts.units import RequestUid, request_key
from scheduler.admission import Admitted, Refused, Unreadable, Verdict, admit, namespace_fault
from scheduler.core.engine import Answer, Engine
from scheduler.core.queue.desk import always
from scheduler.inbox import Fact, FromCaller, FromStream, Input, StillHere
from scheduler.sampling import Sampler


class Prepared(msgspec.Struct, kw_only=True):
    """A commit that waits to be stored, and what goes before and after it."""

    inputs: Sequence[Input]
    left: Sequence[Input] = ()
    """Inputs that this commit has no room for."""
    commit: Commit | None = None
    """None: the inputs changed nothing."""
    unreadable: list[tuple[Received, str]] = []
    answers: list[tuple[FromCaller, Answer]] = []
    spans: list[Span] = []
    """`commit` spans to be ended when it is stored."""


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """Who signs the commits."""

    incarnation: str
    term: int
    policy_version: str


class Desk:
    """Turns batches of inputs into commits against one engine.

    Args:
        engine: owns the assumed state.
        author: signs.
        policies: names that requests may ask for.
        sampler: which requests begin a recorded trace.
    """

    def __init__(self, engine: Engine, author: Author, *, policies: frozenset[str], sampler: Sampler) -> None:
        self.engine = engine
        self.author = author
        self.policies = policies
        self.sampler = sampler
        self._decided_on: dict[str, str] = {}
        self.traces: dict[RequestUid, str] = {}
        """Traceparents of requests accepted or waiting in this term, for their decide spans."""

    def prepare(self, inputs: Sequence[Input], *, now_ms: int, may_go_on: Callable[[], bool] = always) -> Prepared:
        """Judge, accept and decide; fold and seal. The state has moved on when this returns.

        Args:
            inputs: of these the commit takes as many as it has room for.
            now_ms: stands in the commit.
            may_go_on: asked between decisions; when it says no, the rest is for the next turn (`engine.unfinished`).
        """
        prepared = Prepared(inputs=inputs)
        through = self.engine.state.requests_through
        for index, item in enumerate(inputs):
            if self.engine.laden:
                prepared.inputs, prepared.left = inputs[:index], inputs[index:]
                break
            if isinstance(item, Fact):
                self._fact(item)
            elif isinstance(item, FromCaller):
                self._call(item, prepared, now_ms)
            elif isinstance(item, FromStream) and item.message.sequence > through:
                self._stream(item, prepared, now_ms)
                through = item.message.sequence
        self.engine.schedule(may_go_on)
        self._commit(prepared, through, now_ms, anyway=any(isinstance(item, StillHere) for item in inputs))
        return prepared

    # --- inputs ----------------------------------------------------------------------------------------------------

    def _fact(self, item: Fact) -> None:
        seen = item.seen
        if isinstance(seen, Outcome):
            self.engine.outcome(seen)
        elif isinstance(seen, NodeInventory):
            self.engine.inventory(seen)
        elif isinstance(seen, NodeFacts):
            self.engine.facts(seen)
        elif isinstance(seen, HealthSet):
            self.engine.health(seen)
        elif isinstance(seen, CordonCard):
            self.engine.cordon(seen)
        elif isinstance(seen, NamespaceQuota):
            self.engine.quota(seen)

    def _call(self, item: FromCaller, prepared: Prepared, now_ms: int) -> None:
        verdict = self._admit(item)
        if isinstance(verdict, Admitted):
            answer = self._enter(item.namespace, verdict.message, item.message, now_ms, sequence=0)
        elif isinstance(verdict, Refused):
            answer = Answer(refusals=verdict.refusals)
        else:
            refusal = Refusal(field="(message)", value="", bound="a pod request", text=verdict.reason)
            answer = Answer(refusals=(refusal,))
        prepared.answers.append((item, answer))

    def _stream(self, item: FromStream, prepared: Prepared, now_ms: int) -> None:
        message, verdict = item.message, self._admit(item)
        if isinstance(verdict, Admitted):
            answer = self._enter(item.namespace, verdict.message, message, now_ms, sequence=message.sequence)
            name, refusals = verdict.message.name, answer.refusals
        elif isinstance(verdict, Refused):
            name, refusals = verdict.name, verdict.refusals
        else:
            prepared.unreadable.append((message, verdict.reason))
            return
        if refusals:
            self.engine.refuse(item.namespace, name, refusals, sequence=message.sequence)

    def _admit(self, item: FromStream | FromCaller) -> Verdict:
        """The namespace is judged with the message: it comes from the subject, and strangers choose subjects."""
        fault = "" if item.message.malformed else namespace_fault(item.namespace)
        if fault:
            return Unreadable(reason=fault)
        return admit(item.message.data, malformed=item.message.malformed, policies=self.policies)

    def _enter(
        self, namespace: str, message: PodRequest | Withdraw | Resize, received: Received, now_ms: int, *, sequence: int
    ) -> Answer:
        if isinstance(message, Withdraw):
            return self.engine.withdraw(namespace, message)
        if isinstance(message, Resize):
            return self.engine.resize(namespace, message)
        trace = self._admit_span(namespace, message, received)
        answer = self.engine.submit(namespace, message, trace=trace, sequence=sequence, now_ms=now_ms)
        if trace and answer.uid and not answer.duplicate:
            self.traces[answer.uid] = trace
        return answer

    # --- the commit ------------------------------------------------------------------------------------------------

    def _commit(self, prepared: Prepared, through: int, now_ms: int, *, anyway: bool) -> None:
        state = self.engine.state
        records = self.engine.take()
        if not records and through == state.requests_through and not anyway:
            return
        commit = commit_after(
            state,
            records,
            author=self.author.incarnation,
            term=self.author.term,
            policy_version=self.author.policy_version,
            requests_through=through,
            at_ms=now_ms,
        )
        if self.traces:
            prepared.spans = self._decide_spans(commit)
        seal(state, commit, state.sequence + 1)
        prepared.commit = commit

    # --- traces ----------------------------------------------------------------------------------------------------

    def _admit_span(self, namespace: str, request: PodRequest, received: Received) -> str:
        """The traceparent that later steps are children of; empty when this request is not sampled."""
        parent = traceparent_in(received.headers)
        if not self.sampler.wants(parent):
            return ""
        attributes = {semconv.REQUEST_KEY: request_key(namespace, request.name)}
        if not parent:
            parent = self._submit_span(received, attributes)
        with span("admit", parent=parent, kind=SpanKind.CONSUMER, attributes=attributes) as admitted:
            return traceparent_of(admitted)

    @staticmethod
    def _submit_span(received: Received, attributes: Mapping[str, str]) -> str:
        """A request that came without a trace begins one, as of when the server stored it."""
        start_ns = int(received.stored_at * 1e9) or None
        with span("submit", parent="", kind=SpanKind.PRODUCER, attributes=attributes, start_ns=start_ns) as submitted:
            return traceparent_of(submitted)

    def _decide_spans(self, commit: Commit) -> list[Span]:
        """`decide` spans of what was placed, closed, and one open `commit` span for each request that took part."""
        begun_ns = time.time_ns()
        traced: dict[RequestUid, str] = {}
        for record in commit.records:
            if isinstance(record, Withdrawn):
                self.traces.pop(record.uid, None)
            elif isinstance(record, Reserved | Accepted) and (trace := self.traces.get(record.uid)) is not None:
                traced[record.uid] = trace
                if isinstance(record, Reserved):
                    del self.traces[record.uid]
                    self._decide_span(record, trace, commit.predecessor)
        return [
            tracer().start_span(
                "commit",
                context=context_from(trace),
                attributes={semconv.REQUEST_UID: uid, semconv.EPOCH: commit.epoch},
                start_time=begun_ns,
            )
            for uid, trace in traced.items()
        ]

    def _decide_span(self, record: Reserved, trace: str, predecessor: int) -> None:
        """Links lead to the last traced decision that changed the chosen node: part of what this one relied on."""
        why, node = record.rationale, record.placement.node
        attributes: Attributes = {
            semconv.REQUEST_UID: record.uid,
            semconv.NODE: node,
            semconv.CARDS: [piece.card for piece in record.placement.slices],
            semconv.POLICY: why.policy,
            semconv.SCORE: why.chosen.score,
            semconv.FEASIBLE_NODES: why.feasible_nodes,
            semconv.REJECTED_NODES: why.rejected_nodes,
            semconv.LEDGER_SEQUENCE: predecessor,
        }
        relied_on = self._decided_on.get(node, "")
        with span("decide", parent=trace, attributes=attributes, links=(relied_on,)) as decided:
            self._decided_on[node] = traceparent_of(decided)
