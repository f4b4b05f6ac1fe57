"""What to do about one pod: one action, from what the ledger says and what Kubernetes shows. Level-triggered.

What flows in: the ledger's view of the request, the pod as seen (or None), what was last said of it, what the last
call was refused with. What flows out: exactly one action; the shell does it and asks again, until the answer is Wait.
No event, no history and no order of events matters, so a crash anywhere and a start anew come to the same end.

    ledger ↓      pod →   none            unbound         bound             terminal           not ours
    not decided           Wait            Wait            Wait              Wait               Wait
    placed                Create          Bind            Publish           Publish ended      Conflict
    placed, was bound     Publish gone    Publish gone    Publish           Publish ended      Wait
    withdrawn             Publish gone    Delete          Delete            Publish ended      Publish gone
    finished, unknown     Wait            Delete          Delete            Wait, then Delete  Wait
    other epoch           -               Wait            Wait              Wait               -

Whatever would free a slice is said only of what is seen; time alone and an unknown node change nothing. A pod that is
not ours is never touched. Deleting is always graceful and names the life that is meant.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.decisions import Placement
from contracts.outcomes import Outcome, OutcomePhase
from contracts.units import NodeName, pod_name
from reconciler import marks
from reconciler.seen import Seen
from reconciler.steps import Annotate, Bind, Blocked, Case, Conflict, Create, Delete, Publish, Step, Ungate, Wait

FINAL = 2
RANK: dict[OutcomePhase, int] = {"bound": 0, "running": 1, "ended": FINAL, "gone": FINAL, "rejected": FINAL}
"""Outcomes only go forward; the last three are the last word about a request."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A live request with its placement, and what has come of it so far."""

    epoch: str
    request: RequestState
    placement: Placement
    said: Outcome | None
    blocked: Blocked | None
    maybe_bound: bool

    @property
    def was_bound(self) -> bool:
        """Its pod may have run, as the ledger or our own last word has it."""
        return self.request.phase != "placed" or self.said is not None


def plan(case: Case) -> Step:
    """The one action."""
    if behind := _behind(case):
        return behind
    request = case.request
    if request is None or not request.live:
        return _over(case)
    if request.placement is None:
        return Wait(reason="not placed")
    if case.said and RANK[case.said.phase] == FINAL:
        return Wait(reason=f"{case.said.phase}; the scheduler has been told")
    held = Held(
        epoch=case.epoch,
        request=request,
        placement=request.placement,
        said=case.said,
        blocked=case.blocked,
        maybe_bound=case.maybe_bound,
    )
    seen = case.seen
    if seen is None:
        return _absent(held)
    return next(step for rule in _PRESENT if (step := rule(held, seen)) is not None)


def pod_of(request: RequestState) -> str:
    """The name of a request's pod: the one it was adopted with, else the one it gets."""
    return request.pod or _pod_name(request.request.name, request.uid)


_pod_name = lru_cache(maxsize=32_768)(pod_name)  # a digest each, asked several times for each pod


def _behind(case: Case) -> Step | None:
    """Never act on less than what the pod already carries."""
    mark = case.seen.mark if case.seen else None
    if mark is None or mark.epoch != case.epoch or mark.sequence <= case.sequence:
        return None
    if case.request is not None and case.request.uid != mark.uid:
        return None
    return Wait(reason=f"the pod carries commit {mark.sequence}, the ledger is read to {case.sequence}")


# --- the ledger holds nothing (any more) -----------------------------------------------------------------------------


def _over(case: Case) -> Step:
    seen = case.seen
    if seen is None:
        return Wait(reason="nothing wanted, nothing there")
    if not seen.managed or seen.mark is None:
        return Wait(reason="not ours")
    if case.request is None and seen.mark.epoch != case.epoch:
        return Wait(reason=f"of epoch {seen.mark.epoch}: a rebuild adopts it, nobody else")
    if seen.terminating:
        return Wait(reason="terminating")
    return _kept_for_logs(case, seen) if seen.terminal else _delete(seen, "the ledger has released it")


def _kept_for_logs(case: Case, seen: Seen) -> Step:
    if case.request is not None and case.request.withdrawn:
        return _delete(seen, "withdrawn and ended")
    if case.keep_ended_s is None:
        return Wait(reason="ended; kept for its logs")
    left_s = case.keep_ended_s - case.ended_for_s
    if left_s > 0:
        return Wait(reason="ended; kept for its logs", again_s=left_s)
    return _delete(seen, f"ended {case.keep_ended_s:g} s ago")


# --- placed, and no pod ----------------------------------------------------------------------------------------------


def _absent(held: Held) -> Step:
    """Never made, or made and gone. A pod that was bound may have run: it is not made twice."""
    if held.request.withdrawn:
        return Publish(outcome=_outcome(held.request, "gone", reason="withdrawn"))
    if held.was_bound or held.maybe_bound:
        return Publish(outcome=_outcome(held.request, "gone", reason="its pod was deleted"))
    blocked = held.blocked
    if blocked is None:
        return Create()
    if blocked.final:
        return Publish(outcome=_outcome(held.request, "rejected", reason=f"{blocked.code}: {blocked.reason}"))
    return Wait(reason=f"{blocked.code}: {blocked.reason}")


# --- placed, and a pod of that name: the first rule that answers -----------------------------------------------------


def _occupied(held: Held, seen: Seen) -> Step | None:
    """Another pod has the name. If ours was bound, this may be ours with everything taken off: nothing is freed."""
    if (seen.mark is not None and seen.mark.uid == held.request.uid) or _spoken_of(held, seen):
        return None
    if held.was_bound and seen.node:
        return Wait(reason="its pod lost its annotations, or another took its name; counted until that pod is gone")
    if held.was_bound or held.request.withdrawn:
        return Publish(outcome=_outcome(held.request, "gone", reason="its name is taken by another pod"))
    whose = f"of request {seen.mark.uid}" if seen.mark and seen.managed else "that is not managed here"
    reason = f"name-taken: there is a pod of this name {whose}"
    return Conflict(outcome=_outcome(held.request, "rejected", reason=reason))


def _spoken_of(held: Held, seen: Seen) -> bool:
    """The very pod that an outcome was published of, whatever its annotations say now."""
    return held.said is not None and held.said.pod_uid != "" and held.said.pod_uid == seen.pod_uid


def _another_life(held: Held, seen: Seen) -> Step | None:
    """The pod that was bound is gone, and somebody made another with its name and marks."""
    other = held.said is not None and held.said.pod_uid not in ("", seen.pod_uid)
    if not held.was_bound or (seen.node and not other):
        return None
    return Publish(outcome=_outcome(held.request, "gone", reason="its pod was deleted; there is another of its name"))


def _ended(held: Held, seen: Seen) -> Step | None:
    """A kubelet reports the end of a pod that is being deleted before its object goes: say why it ended."""
    if not seen.terminal:
        return None
    fault = "" if _spoken_of(held, seen) else _fault(held.placement, seen)
    if fault and seen.terminating:
        return Wait(reason=f"terminating: {fault}")
    why = ("withdrawn" if held.request.withdrawn else "its pod was deleted") if seen.terminating else ""
    return _say(held, replace(seen, reason=": ".join(filter(None, (why, seen.reason)))))


def _unbound(held: Held, seen: Seen) -> Step | None:
    """Made and not bound: it never ran."""
    if seen.node:
        return None
    if seen.terminating:
        return Wait(reason="terminating before it was bound")
    if held.request.withdrawn:
        return _delete(seen, "withdrawn")
    return _refused_binding(held.blocked, seen) if held.blocked else _bind(seen)


def _refused_binding(blocked: Blocked, seen: Seen) -> Step:
    reason = f"{blocked.code}: {blocked.reason}"
    return _delete(seen, reason) if blocked.final else Wait(reason=reason)


def _bind(seen: Seen) -> Step:
    if marks.GATE in seen.gates:
        return Ungate(index=seen.gates.index(marks.GATE))
    if seen.gates:
        return Wait(reason=f"scheduling gates of others are left: {', '.join(seen.gates)}")
    return Bind(pod_uid=seen.pod_uid)


def _bound(held: Held, seen: Seen) -> Step:
    """Bound and not ended."""
    fault = _fault(held.placement, seen)
    if fault and (seen.node != held.placement.node or not _spoken_of(held, seen)):
        return Wait(reason=f"terminating: {fault}") if seen.terminating else _delete(seen, fault)
    if held.request.withdrawn and not seen.terminating:
        return _delete(seen, "withdrawn")
    repair = {} if seen.terminating else _repair(held, seen, fault)
    return Annotate(marks=repair) if repair else _say(held, seen)


def _fault(placement: Placement, seen: Seen) -> str:
    """Why this binding is not the ledger's; empty when it is. Such a pod runs without its cards, or with others'."""
    if seen.node != placement.node:
        return f"bound to {seen.node} instead of {placement.node}"
    if not seen.bound_by_us:
        return f"bound to {seen.node} by somebody else"
    if set(filter(None, seen.cards.split(","))) != {piece.card for piece in placement.slices}:
        return f"carries the cards {seen.cards or 'of nobody'}, which are not those of its placement"
    return ""


def _repair(held: Held, seen: Seen, fault: str) -> dict[str, str]:
    """Annotations to write again; empty when they are right."""
    slices = held.placement.slices
    if not fault:
        wanted = marks.shares_text(slices)
        return {} if seen.shares == wanted else {marks.SHARES: wanted}
    uid, at = held.request.uid, held.request.decided_at
    return {marks.UID: uid} | marks.binding_marks(uid, slices, node=seen.node, epoch=held.epoch, sequence=at)


_PRESENT = (_occupied, _another_life, _ended, _unbound, _bound)


# --- what is done and said -------------------------------------------------------------------------------------------


def _say(held: Held, seen: Seen) -> Step:
    """Publish how far it is, if that is news."""
    if seen.phase == "unbound":
        raise AssertionError(f"{held.request.uid}: nothing is said of an unbound pod")
    said, outcome = held.said, _outcome(held.request, seen.phase, seen=seen, reason=seen.reason)
    if said and (outcome == said or RANK[outcome.phase] < RANK[said.phase]):
        return Wait(reason=f"{said.phase}; said so")
    return Publish(outcome=outcome)


def _delete(seen: Seen, reason: str) -> Delete:
    """With its own grace, at least a second: grace 0 removes the object while the process lives on."""
    return Delete(pod_uid=seen.pod_uid, grace_s=max(1, seen.grace_s), reason=reason)


def _outcome(request: RequestState, phase: OutcomePhase, *, seen: Seen | None = None, reason: str = "") -> Outcome:
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
        cause=request.uid,
    )
