"""What to do about one pod: one action, from what the ledger says and what Kubernetes shows. Level-triggered.

What flows in: the ledger's view of the request, the pod as seen (or None), what was last said of it, what the last
call was refused with. What flows out: exactly one action; the shell does it and asks again, until the answer is Wait.
No event, no history and no order of events matters, so a crash anywhere and a start anew come to the same end.

    ledger ↓      pod →   none            unbound         bound             terminal           not ours
    not decided           Wait            Wait            Wait              Wait               Wait
    placed                Create          Bind            Publish           Publish ended      Conflict
    placed, was bound     Publish gone    Publish gone    Publish           Publish ended      Wait
    withdrawn, evicted    Publish gone    Delete          Delete            Publish ended      Publish gone
    finished, unknown     Wait            Delete          Delete            Wait, then Delete  Wait
    other epoch           -               Wait            Wait              Wait               -

Whatever would free a slice is said only of what is seen; time alone and an unknown node change nothing. A pod that is
not ours is never touched. Deleting is always graceful and names the life that is meant.
"""

from __future__ import annotations

from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.outcomes import ResizeRefused
from reconciler import foreign_plan
from reconciler.held import FINAL, RANK, Held, bind, delete, fault_of, outcome_of, pod_of, repairs, say, spoken_of
from reconciler.seen import Seen
from reconciler.steps import Annotate, Blocked, Case, Conflict, Create, Publish, Resize, Step, Wait

__all__ = ["plan", "pod_of"]


def plan(case: Case) -> Step:
    """The one action."""
    if behind := _behind(case):
        return behind
    request = case.request
    if request is None or not request.live:
        return _over(case)
    return _held(case, request)


def _held(case: Case, request: RequestState) -> Step:
    """Of a live request."""
    if request.placement is None:
        return Wait(reason="not placed")
    if case.said and RANK[case.said.phase] == FINAL:
        return Wait(reason=f"{case.said.phase}; the scheduler has been told")
    begun = (case.seen is not None and case.seen.node != "") or _spoken(case, request)
    lost = Blocked(code="card-lost", reason=case.leaves, final=True)
    held = Held(
        epoch=case.epoch,
        request=request,
        placement=request.placement,
        said=case.said,
        blocked=lost if case.leaves and not begun else case.blocked,
        maybe_bound=case.maybe_bound,
        waits_for=case.waits_for,
        leaves=case.leaves if begun else "",
        isolation=case.isolation,
    )
    seen = case.seen
    if request.request.external is not None:
        return foreign_plan.plan(held, request.request.external, seen)
    if seen is None:
        return _absent(held)
    return next(step for rule in _PRESENT if (step := rule(held, seen)) is not None)


def _spoken(case: Case, request: RequestState) -> bool:
    """The ledger or our own last word has it that its pod was bound."""
    return request.phase != "placed" or (case.said is not None and case.said.phase != "waiting")


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
    return _kept_for_logs(case, seen) if seen.terminal else delete(seen, "the ledger has released it")


def _kept_for_logs(case: Case, seen: Seen) -> Step:
    if seen.foreign:
        return Wait(reason="ended; its owner keeps it or not")
    if case.request is not None and case.request.withdrawn:
        return delete(seen, "withdrawn and ended")
    if case.keep_ended_s is None:
        return Wait(reason="ended; kept for its logs")
    left_s = case.keep_ended_s - case.ended_for_s
    if left_s > 0:
        return Wait(reason="ended; kept for its logs", again_s=left_s)
    return delete(seen, f"ended {case.keep_ended_s:g} s ago")


# --- placed, and no pod ----------------------------------------------------------------------------------------------


def _absent(held: Held) -> Step:
    """Never made, or made and gone. A pod that was bound may have run: it is not made twice."""
    if held.leaving:
        return Publish(outcome=outcome_of(held.request, "gone", reason=held.leaving))
    if held.was_bound or held.maybe_bound:
        return Publish(outcome=outcome_of(held.request, "gone", reason="its pod was deleted"))
    blocked = held.blocked
    if blocked is None:
        return Create()
    if blocked.final:
        return Publish(outcome=outcome_of(held.request, "rejected", reason=f"{blocked.code}: {blocked.reason}"))
    word = outcome_of(held.request, "waiting", reason=f"{blocked.code}: {blocked.reason}")
    return Wait(reason=word.reason) if held.said == word else Publish(outcome=word)


# --- placed, and a pod of that name: the first rule that answers -----------------------------------------------------


def _occupied(held: Held, seen: Seen) -> Step | None:
    """Another pod has the name. If ours was bound, this may be ours with everything taken off: nothing is freed."""
    if (seen.mark is not None and seen.mark.uid == held.request.uid) or spoken_of(held, seen):
        return None
    if held.was_bound and seen.node:
        return Wait(reason="its pod lost its annotations, or another took its name; counted until that pod is gone")
    if held.was_bound or held.leaving:
        return Publish(outcome=outcome_of(held.request, "gone", reason="its name is taken by another pod"))
    whose = f"of request {seen.mark.uid}" if seen.mark and seen.managed else "that is not managed here"
    reason = f"name-taken: there is a pod of this name {whose}"
    return Conflict(outcome=outcome_of(held.request, "rejected", reason=reason))


def _another_life(held: Held, seen: Seen) -> Step | None:
    """The pod that was bound is gone, and somebody made another with its name and marks."""
    other = held.said is not None and held.said.pod_uid not in ("", seen.pod_uid)
    if not held.was_bound or (seen.node and not other):
        return None
    return Publish(outcome=outcome_of(held.request, "gone", reason="its pod was deleted; there is another of its name"))


def _ended(held: Held, seen: Seen) -> Step | None:
    """A kubelet reports the end of a pod that is being deleted before its object goes: say why it ended."""
    if not seen.terminal:
        return None
    fault = "" if spoken_of(held, seen) else fault_of(held.placement, seen)
    if fault and seen.terminating:
        return Wait(reason=f"terminating: {fault}")
    why = (held.leaving or "its pod was deleted") if seen.terminating else ""
    return say(held, replace(seen, reason=": ".join(filter(None, (why, seen.reason)))))


def _unbound(held: Held, seen: Seen) -> Step | None:
    """Made and not bound: it never ran."""
    if seen.node:
        return None
    if seen.terminating:
        return Wait(reason="terminating before it was bound")
    if held.leaving:
        return delete(seen, held.leaving)
    if held.blocked:
        return _refused_binding(held.blocked, seen)
    return Wait(reason=held.waits_for) if held.waits_for else bind(seen)


def _refused_binding(blocked: Blocked, seen: Seen) -> Step:
    reason = f"{blocked.code}: {blocked.reason}"
    return delete(seen, reason) if blocked.final else Wait(reason=reason)


def _bound(held: Held, seen: Seen) -> Step:
    """Bound and not ended."""
    fault = fault_of(held.placement, seen)
    if fault and (seen.node != held.placement.node or not spoken_of(held, seen)):
        return Wait(reason=f"terminating: {fault}") if seen.terminating else delete(seen, fault)
    if held.leaving and not seen.terminating:
        return delete(seen, held.leaving)
    repair = {} if seen.terminating else repairs(held, seen, fault)
    if repair:
        return Annotate(marks=repair)
    return _resize(held, seen) or say(held, seen)


def _resize(held: Held, seen: Seen) -> Step | None:
    """The ledger counts another CPU request than the container has: it is changed in place.

    Never to or from none, which would be another class of service and is refused.
    """
    wanted = held.placement.cpu_milli
    if seen.terminating or not wanted or not seen.cpu_milli:
        return None
    if seen.cpu_milli == wanted:
        return _refused(held, seen, seen.cpu_has_milli, seen.reason) if seen.resize == "infeasible" else None
    if held.blocked is None or held.blocked.cpu_milli != wanted:
        return Resize(cpu_milli=wanted)
    why = f"resize to {wanted}m refused: {held.blocked.code}: {held.blocked.reason}"
    return _refused(held, seen, seen.cpu_milli, why[:1000])


def _refused(held: Held, seen: Seen, has_milli: int | None, why: str) -> Step:
    """For the scheduler to count again what the container goes on with."""
    refused = ResizeRefused(wanted_milli=held.placement.cpu_milli, has_milli=has_milli)
    return say(held, replace(seen, reason=why), refused=refused)


_PRESENT = (_occupied, _another_life, _ended, _unbound, _bound)
