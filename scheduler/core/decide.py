"""One request, one state, one decision.

In: the state (ahead of the log or not), the request, the default policy, the rankings kept for this state. Out:
`Placed` with the placement and its rationale, or `Unplaced` with reasons that hold numbers. Nothing is changed: the
caller turns a `Placed` into a `Reserved` record and folds it, and the next decision sees it.

What to do with an `Unplaced` (wait, preempt, refuse) is not decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import msgspec

from bus.ledger.state import CardState, LedgerState, NodeState, RequestState
from contracts.decisions import Candidate, CardSlice, Placement, Rationale, Reserved
from contracts.outcomes import Reason
from contracts.units import CardUuid, NodeName, RequestUid
from scheduler.core.applied import Applied, applied, equals
from scheduler.core.around import Surroundings
from scheduler.core.cheapest import Cheapest
from scheduler.core.failing import PolicyFailed
from scheduler.core.feasibility import fits
from scheduler.core.feasibility.fast import Choice
from scheduler.core.policies import DEFAULT_POLICY, Policy, policy_for, score_parts
from scheduler.core.ranking import ASK, Rankings
from scheduler.core.reasons import merged
from scheduler.core.request import Shape, memory_on, shape_for
from scheduler.core.ruled_out import ruled_out
from scheduler.core.surroundings import surroundings
from scheduler.core.terms import NOBODY, Asker, asker_of


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The request gets this."""

    uid: RequestUid
    placement: Placement
    rationale: Rationale

    def record(self) -> Reserved:
        """The record that makes it so."""
        return Reserved(uid=self.uid, placement=self.placement, rationale=self.rationale)

    def instead_of(self, failure: str) -> Placed:
        """The same, decided because another policy could not."""
        rationale = msgspec.structs.replace(self.rationale, instead_of=failure)
        return Placed(uid=self.uid, placement=self.placement, rationale=rationale)


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
    shape, asker = shape_for(request), asker_of(request)
    policy = policy_for(shape, policy)
    placed = place(request.uid, shape, policy, rankings, asker)
    if placed is not None:
        return placed
    return Unplaced(uid=request.uid, reasons=why_not(state, shape, policy, rankings, asker))


def why_not(
    state: LedgerState, shape: Shape, policy: Policy, rankings: Rankings, asker: Asker = NOBODY
) -> tuple[Reason, ...]:
    """Reasons against every node, the closest first; only what changed since the last time is worked out again.

    The first time costs about 30 us a node, then 1 us a node. `rankings` are synchronised with `state`.
    """
    policy, _ = able(shape, policy, rankings)
    ranking = rankings.ranked(shape, policy)
    around = around_for(shape, asker, rankings)
    if not around.hard or not rankings.views:
        return ranking.refusals.against(rankings.views, state)
    return merged([*ranking.refusals.found(rankings.views, state), *ruled_out(ranking, rankings, around)])


def able(shape: Shape, policy: Policy, rankings: Rankings) -> tuple[Policy, str]:
    """The policy and nothing, or the default one and why the other cannot score the shape now."""
    if policy.may_fail:
        try:
            rankings.ranked(shape, policy)
        except PolicyFailed as failure:
            return DEFAULT_POLICY, failure.told
    return policy, ""


def around_for(shape: Shape, asker: Asker, rankings: Rankings) -> Surroundings:
    """What the surroundings of nodes mean for this shape and asker now."""
    return surroundings(shape, asker, rankings.domains, rankings.views, rankings.requests)


def place(
    uid: RequestUid,
    shape: Shape,
    policy: Policy,
    rankings: Rankings,
    asker: Asker = NOBODY,
    *,
    only: Collection[str] | None = None,
) -> Placed | None:
    """The best node of synchronised rankings, or None, which costs a few microseconds: for retries of what waits.

    `asker` is whom the residents' anti-affinity may keep away, `only` the nodes to choose from, None = all.
    """
    if policy.may_fail:
        policy, failure = able(shape, policy, rankings)
        if failure:
            instead = place(uid, shape, policy, rankings, asker, only=only)
            return None if instead is None else instead.instead_of(failure)
    cheapest = rankings.cheapest(shape, policy) if only is None else ASK
    if cheapest is None:
        return None
    if cheapest != ASK:
        return _at_least_cost(uid, shape, policy, rankings, cheapest)
    ranking = rankings.ranked(shape, policy)
    if not ranking.order:
        return None
    around = around_for(shape, asker, rankings)
    found = applied(ranking, rankings, around, wanted=None if policy.draws else 2, only=only)
    if not found.order:
        return None
    at = drawn(uid, equals(found.order)) if policy.draws else 0
    node, _ = rankings.read(found.order[at])
    chosen = fits(shape, rankings.views[node], policy.order, ranking.mix)
    if chosen is None:
        raise AssertionError(f"{node} is ranked for {shape} and does not fit")
    rationale = _rationale(policy, found, rankings, at)
    return Placed(uid=uid, placement=placement_of(shape, node, chosen), rationale=rationale)


def _at_least_cost(uid: RequestUid, shape: Shape, policy: Policy, rankings: Rankings, found: Cheapest) -> Placed:
    """The cheapest node as a decision."""
    node, parts = found.node, found.parts
    if found.positions is None:
        view, mix = rankings.views[node.name], rankings.mix_for(policy)
        chosen = fits(shape, view, policy.order, mix)
        if chosen is None:
            raise AssertionError(f"{node.name} is ranked for {shape} and does not fit")
        placement = placement_of(shape, node.name, chosen)
        parts = {name: value for name, value in score_parts(policy, shape, view, chosen, mix).items() if value}
    else:
        placement = _placement_at(shape, node, found.positions)
        rankings.expect(uid, found, policy)
    other = found.runner_up
    rationale = Rationale(
        policy=policy.name,
        version=policy.version,
        chosen=Candidate(node=NodeName(node.name), score=found.score),
        runner_up=Candidate(node=NodeName(other[0]), score=other[1]) if other is not None else None,
        feasible_nodes=found.feasible,
        rejected_nodes=len(rankings.views) - found.feasible,
        parts=parts,
    )
    return Placed(uid=uid, placement=placement, rationale=rationale)


def _placement_at(shape: Shape, node: NodeState, positions: tuple[int, ...]) -> Placement:
    """The slices on the cards at these positions."""
    cards = list(node.cards.values())
    slices = tuple([_slice(shape, cards[at]) for at in positions])
    return Placement(
        node=NodeName(node.name), slices=slices, cpu_milli=shape.cpu_milli, memory_mib=shape.host_memory_mib
    )


def _slice(shape: Shape, card: CardState) -> CardSlice:
    memory_mib = shape.memory_mib if shape.memory_mib is not None else memory_on(card.capacity_mib, shape)
    return CardSlice(card=CardUuid(card.card.uuid), share_milli=shape.share_milli, memory_mib=memory_mib)


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


def _rationale(policy: Policy, found: Applied, rankings: Rankings, at: int) -> Rationale:
    order = found.order
    other = 0 if at else 1
    return Rationale(
        policy=policy.name,
        version=policy.version,
        chosen=_candidate(rankings, order[at]),
        runner_up=_candidate(rankings, order[other]) if len(order) > other else None,
        feasible_nodes=found.feasible,
        rejected_nodes=len(rankings.views) - found.feasible,
    )


def _candidate(rankings: Rankings, key: int) -> Candidate:
    node, score = rankings.read(key)
    return Candidate(node=NodeName(node), score=score)
