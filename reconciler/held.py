"""What a plan knows of a placed request, and the words that all plans are made of. Pure.

In: a request of the ledger, its pod as seen. Out: its pod's name, what is wrong with a binding, annotations to write
again, outcomes to publish. Which of these is done when, is decided in `plan` (pods of ours) and `foreign_plan`.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.decisions import Placement
from contracts.outcomes import Outcome, OutcomePhase, ResizeRefused
from contracts.units import NodeName, pod_name
from reconciler import marks
from reconciler.foreign import made_up
from reconciler.seen import Seen
from reconciler.steps import Bind, Blocked, Delete, Publish, Step, Ungate, Wait

FINAL = 2
RANK: dict[OutcomePhase, int] = {
    "waiting": -1,
    "bound": 0,
    "running": 1,
    "ended": FINAL,
    "gone": FINAL,
    "rejected": FINAL,
}
"""Outcomes only go forward; the last three are the last word about a request."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A live request with its placement, and what has come of it so far."""

    epoch: str
    request: RequestState
    placement: Placement
    said: Outcome | None
    blocked: Blocked | None
    maybe_bound: bool
    waits_for: str = ""
    leaves: str = ""
    isolation: dict[str, str] = {}

    @property
    def leaving(self) -> str:
        """Why its pod must go; empty when it stays."""
        if self.request.withdrawn:
            return "withdrawn"
        return f"evicted for {self.request.evicted_for}" if self.request.evicted_for else self.leaves

    @property
    def was_bound(self) -> bool:
        """Its pod may have run, as the ledger or our own last word has it."""
        return self.request.phase != "placed" or (self.said is not None and self.said.phase != "waiting")


def pod_of(request: RequestState) -> str:
    """The name of a request's pod: the one somebody else made, the one it was adopted with, else the one it gets.

    A request that had to leave and is placed again gets a pod of another name: the old one may still be there.
    """
    external = request.request.external
    if external is not None:  # one that was made up is never taken for the pod's own: no pod has such a name
        return f"{external.name}!{request.request.name}" if made_up(request.request) else external.name
    if request.pod or not request.attempt:
        return request.pod or _pod_name(request.request.name, request.uid)
    return _pod_name(request.request.name, f"{request.uid}.{request.attempt}.{request.decided_at}")


_pod_name = lru_cache(maxsize=32_768)(pod_name)  # a digest each, asked several times for each pod


def spoken_of(held: Held, seen: Seen) -> bool:
    """The very pod that an outcome was published of, whatever its annotations say now."""
    return held.said is not None and held.said.pod_uid != "" and held.said.pod_uid == seen.pod_uid


def bind(seen: Seen) -> Step:
    """Our gate is lifted first; those of others are waited for."""
    if marks.GATE in seen.gates:
        return Ungate(index=seen.gates.index(marks.GATE))
    if seen.gates:
        return Wait(reason=f"scheduling gates of others are left: {', '.join(seen.gates)}")
    return Bind(pod_uid=seen.pod_uid)


def fault_of(placement: Placement, seen: Seen) -> str:
    """Why this binding is not the ledger's; empty when it is. Such a pod runs without its cards, or with others'."""
    if seen.node != placement.node:
        return f"bound to {seen.node} instead of {placement.node}"
    if not seen.bound_by_us:
        return f"bound to {seen.node} by somebody else"
    if set(filter(None, seen.cards.split(","))) != {piece.card for piece in placement.slices}:
        return f"carries the cards {seen.cards or 'of nobody'}, which are not those of its placement"
    return ""


def repairs(held: Held, seen: Seen, fault: str) -> dict[str, str]:
    """Annotations to write again; empty when they are right."""
    slices = held.placement.slices
    stale = {name: value for name, value in held.isolation.items() if value and seen.isolation.get(name) != value}
    if not fault:
        wanted = marks.shares_text(slices)
        return ({} if seen.shares == wanted else {marks.SHARES: wanted}) | marks.isolation_marks(stale)
    uid, at = held.request.uid, held.request.decided_at
    own = marks.binding_marks(uid, slices, node=seen.node, epoch=held.epoch, sequence=at)
    return {marks.UID: uid} | own | marks.isolation_marks(stale)


# --- what is done and said -------------------------------------------------------------------------------------------


def say(held: Held, seen: Seen, *, refused: ResizeRefused | None = None) -> Step:
    """Publish how far it is, and which change of its CPU will not come, if that is news."""
    if seen.phase == "unbound":
        raise AssertionError(f"{held.request.uid}: nothing is said of an unbound pod")
    said, outcome = held.said, outcome_of(held.request, seen.phase, seen=seen, reason=seen.reason)
    if refused is not None:
        outcome = replace(outcome, resize_refused=refused)
    if said and (outcome == said or RANK[outcome.phase] < RANK[said.phase]):
        return Wait(reason=f"{said.phase}; said so")
    return Publish(outcome=outcome)


def delete(seen: Seen, reason: str) -> Delete:
    """With its own grace, at least a second: grace 0 removes the object while the process lives on."""
    return Delete(pod_uid=seen.pod_uid, grace_s=max(1, seen.grace_s), reason=reason)


def outcome_of(request: RequestState, phase: OutcomePhase, *, seen: Seen | None = None, reason: str = "") -> Outcome:
    """Of a request and, as far as it is seen, of its pod."""
    node = seen.node if seen else (request.placement.node if request.placement else "")
    return Outcome(
        uid=request.uid,
        namespace=request.accepted.namespace,
        name=request.request.name,
        phase=phase,
        pod=pod_of(request),
        pod_uid=seen.pod_uid if seen else "",
        node=NodeName(node),
        exit_code=seen.exit_code if seen else None,
        reason=reason[:1024],
        ledger_sequence=request.decided_at,
        attempt=request.attempt,
        cause=request.uid,
    )
