"""The whole answer to "why is it where it is, or nowhere?" and to "where would it go?".

In: a state, a request (of the state, or only imagined), the default policy by name. Out: an `Explanation`: reasons with
numbers, the nearest change that would fit, and verdicts on nodes. Nothing is changed.

What is placed is answered from its decision (placement, rationale, ledger sequence); what is pending is worked out
anew against this state. Nodes: the best `FEASIBLE_SHOWN` with their scores by rule, then the `REJECTED_SHOWN` closest
of the others with their first reason; both in total orders (of `ranking` and of `reasons`). Numbers are those of one
card or one node, never a sum over cards.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bus.ledger.state import LedgerState, RequestState
from contracts.answers import Explanation, Nearest, NodeVerdict
from contracts.outcomes import Reason
from contracts.requests import PodRequest
from contracts.units import RequestUid
from scheduler.core.applied import applied
from scheduler.core.around import PREFERENCE, Surroundings
from scheduler.core.decide import Placed, able, around_for, place, why_not
from scheduler.core.failing import PolicyFailed
from scheduler.core.feasibility import fits
from scheduler.core.feasibility.fast import Choice
from scheduler.core.gang_told import gang_reasons
from scheduler.core.mix import Mix
from scheduler.core.nearest import nearest_change
from scheduler.core.nearest_text import nearest
from scheduler.core.policies import DEFAULT_POLICY, POLICIES, Policy, UnknownPolicy, policy_for, score_parts
from scheduler.core.ranking import Rankings
from scheduler.core.reasons import closest
from scheduler.core.request import Shape, shape_of
from scheduler.core.ruled_out import ruled_out
from scheduler.core.terms import Asker
from scheduler.core.view import NodeView

FEASIBLE_SHOWN = 5
REJECTED_SHOWN = 5


def explain(
    state: LedgerState,
    request: RequestState,
    *,
    default_policy: str = DEFAULT_POLICY.name,
    rankings: Rankings | None = None,
) -> Explanation:
    """One request of the state. `rankings`: those kept for this state, if there are any; else all nodes are scored."""
    asked = request.request
    told = Explanation(
        known=True,
        namespace=request.accepted.namespace,
        name=asked.name,
        uid=request.uid,
        phase=request.phase,
        ask=asked.gpu,
        placement=request.placement,
        rationale=request.rationale,
        ledger_sequence=request.decided_at,
        policy=request.rationale.policy if request.rationale else asked.policy or default_policy,
        trace=request.accepted.trace,
    )
    if request.phase != "pending":
        return msgspec.structs.replace(told, reasons=tuple(_of_placed(request)))
    rankings = rankings or Rankings()
    found = _work_out(state, request.accepted.namespace, asked, default_policy, rankings)
    gang = gang_reasons(state, request, POLICIES[default_policy], rankings) if found.placed else ()
    return _merged(told, found, reasons=(*gang, *found.reasons))


def _of_placed(request: RequestState) -> Iterator[Reason]:
    """What keeps its pod, and why it has not the size that was last asked for."""
    if request.live and request.detail:
        yield Reason(code="kubernetes", text=request.detail)
    if request.live and request.put_back:
        yield Reason(code="resize", text=f"its last resize was put back: {request.put_back}"[:1024])


def what_if(
    state: LedgerState,
    namespace: str,
    request: PodRequest,
    *,
    default_policy: str = DEFAULT_POLICY.name,
    rankings: Rankings | None = None,
) -> Explanation:
    """Where a request would go if it were the next one; `placement` and `rationale` are what would be decided."""
    found = _work_out(state, namespace, request, default_policy, rankings or Rankings())
    told = Explanation(
        known=True,
        namespace=namespace,
        name=request.name,
        phase="would be placed" if found.placed else "would wait",
        ask=request.gpu,
        placement=found.placed.placement if found.placed else None,
        rationale=found.placed.rationale if found.placed else None,
        ledger_sequence=state.sequence,
        policy=request.policy or default_policy,
    )
    return _merged(told, found, reasons=found.reasons)


class _Found(msgspec.Struct, frozen=True):
    """What a request meets in a state."""

    placed: Placed | None = None
    reasons: tuple[Reason, ...] = ()
    nearest: Nearest | None = None
    nodes: tuple[NodeVerdict, ...] = ()
    sequence: int = 0


def _merged(told: Explanation, found: _Found, *, reasons: tuple[Reason, ...]) -> Explanation:
    return msgspec.structs.replace(
        told, reasons=reasons, nearest=found.nearest, nodes=found.nodes, ledger_sequence=found.sequence
    )


def _work_out(
    state: LedgerState, namespace: str, request: PodRequest, default_policy: str, rankings: Rankings
) -> _Found:
    shape, asker = shape_of(request, namespace), Asker(namespace, request.pod.labels)
    try:
        policy = policy_for(shape, POLICIES[default_policy])
    except UnknownPolicy as error:
        return _Found(reasons=(Reason(code="policy", text=str(error)),), sequence=state.sequence)
    rankings.sync(state)
    around = around_for(shape, asker, rankings)
    placed = place(_NOBODY, shape, policy, rankings, asker)
    policy, _ = able(shape, policy, rankings)
    change = None if placed else nearest_change(shape, state.nodes, state.requests, around)
    return _Found(
        placed=placed,
        reasons=() if placed else why_not(state, shape, policy, rankings, asker),
        nearest=nearest(shape, change) if change else None,
        nodes=(*_feasible(shape, policy, rankings, around), *_rejected(state, shape, policy, rankings, around)),
        sequence=state.sequence,
    )


_NOBODY = RequestUid("")
"""The uid of a request that is only imagined."""


def _feasible(shape: Shape, policy: Policy, rankings: Rankings, around: Surroundings) -> list[NodeVerdict]:
    ranking = rankings.ranked(shape, policy)
    verdicts = []
    for key in applied(ranking, rankings, around, wanted=FEASIBLE_SHOWN).order[:FEASIBLE_SHOWN]:
        name, score = rankings.read(key)
        view = rankings.views[name]
        chosen = fits(shape, view, policy.order, ranking.mix) or ()
        parts = _parts(policy, shape, view, chosen, ranking.mix)
        preferred = {kind: points * PREFERENCE for kind, points in around.parts(name).items()}
        verdicts.append(NodeVerdict(node=name, score=score, scores=parts | preferred))
    return verdicts


def _parts(policy: Policy, shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> dict[str, int]:
    """Scores by rule; none from a policy that answered for a decision and does not for people."""
    try:
        return score_parts(policy, shape, view, chosen, mix)
    except PolicyFailed:
        return {}


def _rejected(
    state: LedgerState, shape: Shape, policy: Policy, rankings: Rankings, around: Surroundings
) -> list[NodeVerdict]:
    ranking = rankings.ranked(shape, policy)
    outside = ruled_out(ranking, rankings, around) if around.hard else ()
    found = [*ranking.refusals.found(rankings.views, state), *outside]
    return [NodeVerdict(node=reason.node, reason=reason) for reason in closest(found, REJECTED_SHOWN)]
