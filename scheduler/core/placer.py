"""What the engine asks of placement, over one assumed state and the rankings kept for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Reserved
from contracts.outcomes import Reason
from scheduler.core.decide import place, why_not
from scheduler.core.feasibility import fits
from scheduler.core.gang import place_gang
from scheduler.core.gang_told import gang_reasons
from scheduler.core.policies import POLICIES, policy_for
from scheduler.core.ranking import Rankings
from scheduler.core.request import Shape, shape_for
from scheduler.core.terms import asker_of


class Placer:
    """Places requests against a state that somebody else folds.

    Args:
        state: read only here.
        default_policy: for requests that name none.
    """

    def __init__(self, state: LedgerState, default_policy: str) -> None:
        self.state = state
        self.policy = POLICIES[default_policy]
        self.rankings = Rankings()

    def place(self, request: RequestState) -> Reserved | None:
        """The decision, or None when it fits nowhere now."""
        gang = request.request.gang
        if gang is not None and gang.within != "anywhere":  # also alone it stands where the others do
            beside = self.place_gang([request])
            return beside[0] if beside else None
        self.rankings.sync(self.state)
        shape = shape_for(request)
        placed = place(request.uid, shape, policy_for(shape, self.policy), self.rankings, asker_of(request))
        return placed.record() if placed is not None else None

    def place_elsewhere(self, request: RequestState, node: str) -> Reserved | None:
        """Where it would go if it stood here and had to leave the node: beside everybody, itself included."""
        self.rankings.sync(self.state)
        others = self.state.nodes.keys() - {node}
        shape = shape_for(request)
        policy = policy_for(shape, self.policy)
        placed = place(request.uid, shape, policy, self.rankings, asker_of(request), only=others)
        return placed.record() if placed is not None else None

    def place_gang(self, members: Sequence[RequestState]) -> list[Reserved] | None:
        """All members at once, or None; the state is untouched either way."""
        decision = place_gang(self.state, members, self.policy, self.rankings)
        return [placed.record() for placed in decision] if isinstance(decision, list) else None

    def fits_any(self, shape: Shape, nodes: Iterable[str]) -> bool:
        """Whether one of these nodes could take the shape now.

        What depends on neighbours may find room on any node when one improves: that is told by trying.
        """
        self.rankings.sync(self.state)
        if shape.terms is not None and shape.terms.binding:
            return True
        policy, mix = policy_for(shape, self.policy), self.rankings.mix
        views = (self.rankings.views.get(name) for name in nodes)
        return any(fits(shape, view, policy.order, mix) is not None for view in views if view is not None)

    @property
    def contested(self) -> bool:
        """Some resident keeps others away by their labels: requests of one shape may then fare differently."""
        self.rankings.sync(self.state)
        return bool(self.rankings.domains.signs(self.rankings.views, self.rankings.requests).repellers)

    def reasons(self, request: RequestState) -> tuple[Reason, ...]:
        """Why it is placed nowhere, closest first, with numbers; a gang's own reason stands first.

        Empty when it, or all of its gang, would be placed: what single nodes have against it is then no reason.
        """
        self.rankings.sync(self.state)
        shape = shape_for(request)
        gang = gang_reasons(self.state, request, self.policy, self.rankings)
        if not gang and (request.request.gang is not None or self.place(request) is not None):
            return ()
        policy = policy_for(shape, self.policy)
        return (*gang, *why_not(self.state, shape, policy, self.rankings, asker_of(request)))
