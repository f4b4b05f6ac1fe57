"""What to do about a placed request whose pod somebody else made: the rules that differ from those of our pods. Pure.

In: the request with its placement, and the pod of that name as it is seen. Out: one action. Nothing is ever created;
a pod that was not bound is left to its owner, and so is one that ended. What we bound is ended by us like a pod of
ours, because it holds a card:

    seen ↓                      placed                  withdrawn, evicted
    nothing, or another life    Publish gone            Publish gone
    unbound                     Bind                    Publish gone; Delete while a binding may be on its way
    bound by us                 Publish                 Delete
    bound to another node       Publish gone            Publish gone
    bound there, not by us      Wait: it may be ours with its annotations taken off
    ended                       Publish ended           Publish ended
"""

from __future__ import annotations

from contracts.outcomes import OutcomePhase
from contracts.requests import ExternalPod
from reconciler.foreign import made_up
from reconciler.held import Held, bind, delete, fault_of, outcome_of, repairs, say, spoken_of
from reconciler.seen import Seen
from reconciler.steps import Annotate, Publish, Step, Wait


def plan(held: Held, external: ExternalPod, seen: Seen | None) -> Step:
    """The one action."""
    if made_up(held.request.request):
        reason = "made-up: requests of pods are made by the reconciler, of the pods themselves"
        return Publish(outcome=outcome_of(held.request, "rejected", reason=reason))
    if seen is None:
        return _over(held, held.leaving or "its pod was deleted")
    if seen.pod_uid != external.uid:
        return _over(held, "its pod was deleted; there is another of its name")
    if seen.terminal:
        return say(held, seen)
    return _bound(held, seen) if seen.node else _unbound(held, seen)


def _unbound(held: Held, seen: Seen) -> Step:
    """It never ran, unless a binding of ours is on its way."""
    if seen.terminating:
        return Wait(reason="terminating before it was bound")
    if held.leaving:
        return delete(seen, held.leaving) if held.maybe_bound else _over(held, held.leaving)
    if held.blocked is None:
        return Wait(reason=held.waits_for) if held.waits_for else bind(seen)
    reason = f"{held.blocked.code}: {held.blocked.reason}"
    phase: OutcomePhase = "rejected" if held.blocked.final else "waiting"
    word = outcome_of(held.request, phase, seen=seen, reason=reason)
    return Wait(reason=reason) if held.said == word else Publish(outcome=word)


def _bound(held: Held, seen: Seen) -> Step:
    """Bound and not ended. Who has another node was bound by somebody else, and holds none of our cards."""
    if seen.node != held.placement.node:
        return _over(held, f"bound to {seen.node} by somebody else")
    fault = fault_of(held.placement, seen)
    if fault and not spoken_of(held, seen):
        if seen.bound_by_us:
            return Wait(reason=f"terminating: {fault}") if seen.terminating else delete(seen, fault)
        return Wait(reason=f"{fault}, or its annotations were taken off; counted until it is gone")
    if held.leaving and not seen.terminating:
        return delete(seen, held.leaving)
    stale = {} if seen.terminating else repairs(held, seen, fault)
    return Annotate(marks=stale) if stale else say(held, seen)


def _over(held: Held, reason: str) -> Step:
    return Publish(outcome=outcome_of(held.request, "gone", reason=reason))
