"""One request, one state, one decision.

In: the state (ahead of the log or not), the request, the default policy, the rankings kept for this state. Out:
`Placed` with the placement and its rationale, or `Unplaced` with reasons that hold numbers. Nothing is changed: the
caller turns a `Placed` into a `Reserved` record and folds it, and the next decision sees it.

What to do with an `Unplaced` (wait, preempt, refuse) is not decided here.
"""

from __future__ import annotations

import hashlib

import msgspec

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Candidate, CardSlice, Placement, Rationale, Reserved
from contracts.outcomes import Reason
from contracts.units import CardUuid, NodeName, RequestUid
from scheduler.core.feasibility import fits
from scheduler.core.feasibility.fast import Choice
from scheduler.core.policies import DEFAULT_POLICY, Policy, policy_for
from scheduler.core.ranking import Ranking, Rankings
from scheduler.core.request import Shape, memory_on, shape_of


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The request gets this."""

    uid: RequestUid
    placement: Placement
    rationale: Rationale

    def record(self) -> Reserved:
        """The record that makes it so."""
        return Reserved(uid=self.uid, placement=self.placement, rationale=self.rationale)


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """It fits nowhere now; the reason that came closest first."""

    uid: RequestUid
    reasons: tuple[Reason, ...]


Decision = Placed | Unplaced


def decide(
    state: LedgerState, request: RequestState, policy: Policy = DEFAULT_POLICY, rankings: Rankings | None = None
) -> Decision:
    """Where the request goes in this state; a policy named by the request stands above `policy`.

    Raises:
        UnknownPolicy: the request names a policy that is not in the table.
    """
    rankings = rankings or Rankings()
    rankings.sync(state)
    shape = shape_of(request.accepted.request)
    policy = policy_for(shape, policy)
    placed = place(request.uid, shape, policy, rankings)
    if placed is not None:
        return placed
    return Unplaced(uid=request.uid, reasons=why_not(state, shape, policy, rankings))


def why_not(state: LedgerState, shape: Shape, policy: Policy, rankings: Rankings) -> tuple[Reason, ...]:
    """Reasons against every node, the closest first; only what changed since the last time is worked out again.

    The first time costs about 30 us a node, then 1 us a node. `rankings` are synchronised with `state`.
    """
    return rankings.ranked(shape, policy).refusals.against(rankings.views, state)


def place(uid: RequestUid, shape: Shape, policy: Policy, rankings: Rankings) -> Placed | None:
    """The best node of synchronised rankings, or None, which costs a few microseconds: for retries of what waits."""
    ranking = rankings.ranked(shape, policy)
    if not ranking.order:
        return None
    at = drawn(uid, ranking.equals) if policy.draws else 0
    node, _ = rankings.read(ranking.order[at])
    chosen = fits(shape, rankings.views[node], policy.order, ranking.mix)
    if chosen is None:
        raise AssertionError(f"{node} is ranked for {shape} and does not fit")
    return Placed(uid=uid, placement=placement_of(shape, node, chosen), rationale=_rationale(ranking, rankings, at))


def placement_of(shape: Shape, node: str, chosen: Choice) -> Placement:
    """The slices, in the order of the cards on the node."""
    cards = chosen if len(chosen) < 2 else sorted(chosen, key=lambda card: card.position)  # noqa: PLR2004
    return Placement(
        node=NodeName(node),
        slices=tuple(
            CardSlice(
                card=CardUuid(card.uuid),
                share_milli=shape.share_milli,
                memory_mib=memory_on(card.capacity_mib, shape, known=card.known),
            )
            for card in cards
        ),
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.host_memory_mib,
    )


def drawn(uid: RequestUid, count: int) -> int:
    """A number from 0 to `count` - 1 that looks random and is the same on any machine: SHA-256 of the uid."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8]) % count


def _rationale(ranking: Ranking, rankings: Rankings, at: int) -> Rationale:
    order = ranking.order
    other = 0 if at else 1
    return Rationale(
        policy=ranking.policy.name,
        chosen=_candidate(rankings, order[at]),
        runner_up=_candidate(rankings, order[other]) if len(order) > other else None,
        feasible_nodes=len(order),
        rejected_nodes=len(rankings.views) - len(order),
    )


def _candidate(rankings: Rankings, key: int) -> Candidate:
    node, score = rankings.read(key)
    return Candidate(node=NodeName(node), score=score)
