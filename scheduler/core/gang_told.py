"""Why a gang waits, in numbers of its members.

In: a state, a pending member. Out: reasons; none when all of its gang would be placed, or when it has a place in sight.
"""

from __future__ import annotations

from bus.ledger.state import LedgerState, RequestState
from contracts.outcomes import Reason
from scheduler.core.decide import Unplaced
from scheduler.core.gang import gang_key, place_gang
from scheduler.core.policies import DEFAULT_POLICY, Policy
from scheduler.core.ranking import Rankings


def gang_reasons(
    state: LedgerState,
    request: RequestState,
    policy: Policy = DEFAULT_POLICY,
    rankings: Rankings | None = None,
) -> tuple[Reason, ...]:
    """Why a pending member of a gang waits although it would fit alone; nothing for a request without a gang."""
    gang = request.request.gang
    if gang is None:
        return ()
    key = (request.accepted.namespace, gang.name)
    members = [other for other in state.pending.values() if gang_key(other) == key]
    if request.nomination is not None:
        return ()
    needed = max(each.needed for member in members if (each := member.request.gang) is not None)
    others = [r for r in (*state.requests.values(), *state.recent.values()) if r.decided_at and gang_key(r) == key]
    begun, sighted = sum(not r.evicted_for for r in others), sum(r.nomination is not None for r in members)
    if (there := begun + len(members)) < needed:
        return (_incomplete(gang.name, there, needed, sum(bool(r.evicted_for) and r.live for r in others)),)
    if sighted and begun < needed:
        return (_joins(gang.name, len(members), sighted),)
    members = [member for member in members if member.nomination is None]
    decision = place_gang(state, members, policy, rankings)
    return decision.reasons if isinstance(decision, Unplaced) else ()


def _joins(gang: str, members: int, sighted: int) -> Reason:
    text = f"gang {gang}: {sighted} of {members} members have places in sight; it joins them when these are taken"
    return Reason(code="gang", text=text, needed=members, free=sighted, unit="members")


def _incomplete(gang: str, there: int, needed: int, leaving: int) -> Reason:
    more = f"; {leaving} have to leave their places and wait again first" if leaving else ""
    text = f"gang {gang}: {there} of {needed} members have arrived{more}"
    return Reason(code="gang", text=text, needed=needed, free=there, unit="members")
