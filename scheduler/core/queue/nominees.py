"""Those who have a place in sight: given it when all of it is free, or sent back to wait for something else.

In: a state with nominated requests. Out: for each its `Reserved`, or why its place is not to be waited for any more, or
nothing yet. All of it follows from the state, so that a replay comes to the same decision.

A place is given up when
    its node or cards would not take it even if they were empty
    somebody whom it waits for should have gone long ago (`loads.LINGER_MS`)
    nobody is leaving any more and it is still not free: somebody else's pod, or a smaller card, has taken it
    it is free, and some rule is against it now: a neighbour's tag, a taint, no room for one more pod
    its namespace is over its quota, which was lowered meanwhile
"""

from __future__ import annotations

from bus.ledger.holds import complete, count
from bus.ledger.rules import over_quota
from bus.ledger.state import LedgerState, NodeState, RequestState
from contracts.decisions import Candidate, Nominated, Rationale, Reserved
from contracts.outcomes import Reason
from scheduler.core.queue.loads import lingers
from scheduler.core.queue.proof import emptied, only_cards
from scheduler.core.queue.quota import reason as quota_reason
from scheduler.core.reasons import node_reason
from scheduler.core.request import shape_for

SHOWN = 8
"""Names of those who must leave, in one answer."""


def fulfilment(state: LedgerState, request: RequestState, policy: str) -> Reserved | None:
    """The decision of a request whose whole place is free; None when it is not yet. `policy`: of the service."""
    wanted = request.nomination
    if wanted is None or not complete(request) or _against_now(state, request, wanted):
        return None
    return Reserved(
        uid=request.uid,
        placement=wanted.placement,
        rationale=Rationale(
            policy=request.request.policy or policy,
            chosen=Candidate(node=wanted.placement.node, score=0),
            feasible_nodes=1,
            rejected_nodes=len(state.nodes) - 1,
            nominated=request.nominated_at,
        ),
    )


def in_vain(state: LedgerState, request: RequestState) -> str:
    """Why its place is not to be waited for any more; empty when it is."""
    wanted = request.nomination
    if wanted is None:
        return ""
    over = over_quota(state, request.accepted.namespace, 0, 0)
    if over is not None:
        return quota_reason(over).text
    node = state.nodes[wanted.placement.node]
    if against := _rule(state, request, emptied(node, lambda _: False), wanted):
        return against
    against = _against_now(state, request, wanted) if complete(request) else ""
    if complete(request) and not against:
        return ""
    idle = nobody_leaves(state, node)
    if not idle or wanted.why == "drains":
        return against if idle else ""  # whoever is leaving may be what the rule is against
    return against or idle


def _against_now(state: LedgerState, request: RequestState, wanted: Nominated) -> str:
    """The rule that is against the place as the node is now, with what is held for others."""
    node = state.nodes[wanted.placement.node]
    bare = emptied(node, lambda _: True)
    for uid, hold in node.holds.items():
        if uid != request.uid:
            count(bare, hold, 1)
    return _rule(state, request, bare, wanted)


def _rule(state: LedgerState, request: RequestState, bare: NodeState, wanted: Nominated) -> str:
    only_cards(bare, wanted.placement)
    found = node_reason(shape_for(request), bare, state.requests)
    return "" if found is None else found[1].text


def nobody_leaves(state: LedgerState, node: NodeState) -> str:
    """Why a place on the node that cannot be taken now will not be later; empty while somebody leaves."""
    leaving = [r for uid in node.residents if (r := state.requests[uid]).leaving]
    overdue = [r.key for r in leaving if lingers(r, state.clock_ms)]
    if len(overdue) < len(leaving):
        return ""
    if overdue:
        return f"{', '.join(sorted(overdue)[:SHOWN])} should have left {node.name} and did not"
    return f"nobody leaves {node.name} any more, and the place is not free"


def _in_the_way(request: RequestState, wanted: Nominated) -> bool:
    cards = {piece.card for piece in wanted.placement.slices}
    held = request.placement.slices if request.placement is not None else ()
    return request.uid in wanted.victims or any(piece.card in cards for piece in held)


def waits_for(state: LedgerState, request: RequestState) -> list[str]:
    """Who is still in the place that it waits for, as `namespace/name`, who has been told to leave first."""
    wanted = request.nomination
    node = state.nodes.get(wanted.placement.node) if wanted is not None else None
    if wanted is None or node is None or complete(request):
        return []
    there = [r for uid in node.residents if _in_the_way(r := state.requests[uid], wanted)]
    return [r.key for r in sorted(there, key=lambda r: (not r.leaving, r.key))]


def reason(state: LedgerState, request: RequestState) -> Reason | None:
    """What a nominated request waits for, in numbers."""
    wanted, held = request.nomination, request.held
    if wanted is None or held is None:
        return None
    names = waits_for(state, request)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    who = f", until {', '.join(names[:SHOWN])}{more} {'has' if len(names) == 1 else 'have'} left" if names else ""
    slices = wanted.placement.slices
    return Reason(
        code="nominated",
        text=f"a place on {wanted.placement.node} is kept for it{who}"[:1024],
        needed=sum(piece.share_milli for piece in slices),
        free=sum(milli for milli, _ in held.cards.values()),
        unit="thousandths",
        nodes=1,
        node=wanted.placement.node,
    )
