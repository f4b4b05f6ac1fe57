"""Of two places, the better one; and who may be asked to leave for it.

In: the load of a node, the choice that was made there, the priority of who asks. Out: a cost, smallest first, that is a
total order over all places of a cluster.

    1. the fewest who must leave
    2. the lowest of the highest priorities among them
    3. the latest decision: of the one among them that has run longest
    4. the least work lost: thousandths of cards x milliseconds since they began
    5. the latest acceptances (commit and index, which the uids end in); then the tie rank and name of the node
"""

from __future__ import annotations

import msgspec

from bus.ledger.state import LedgerState, RequestState
from contracts.priorities import priority_of
from contracts.units import RequestUid
from scheduler.core.queue.loads import Asked, NodeLoad
from scheduler.core.queue.order import acceptance
from scheduler.core.queue.teams import TeamKey, Teams, team_key
from scheduler.core.queue.victims import Choice
from scheduler.core.request import Shape

Cost = tuple[int, int, int, int, tuple[tuple[int, int], ...], str, str]
NEVER = -(1 << 62)
NOBODY_STAYS: Asked = (1 << 62, 0, (0, 0))


class Place(msgspec.Struct, frozen=True):
    """Where, and who leaves."""

    cost: Cost
    node: str
    choice: Choice


class Asking:
    """Who may be asked to leave, with whom: lower ones, and nobody of the gang for which they would leave.

    Args:
        state: read only.
        teams: kept for it.
        priority: of who asks; None = nobody may be asked.
        own: the gang of who asks.
    """

    def __init__(self, state: LedgerState, teams: Teams, priority: int | None, own: TeamKey | None) -> None:
        self.state = state
        self.teams = teams
        self.priority = priority
        self.own = own

    def of(self, uid: RequestUid) -> tuple[RequestUid, ...] | None:
        """All who leave with it; None when one of them may not be asked."""
        victim = self.state.requests[uid]
        if victim.request.gang is None:
            return (uid,)
        if self.priority is None or team_key(victim) == self.own:
            return None
        together = self.teams.companions(victim)
        others = (self.state.requests[each] for each in together)
        if any(other.leaving or priority_of(other.request) >= self.priority for other in others):
            return None
        return together


def promising(load: NodeLoad) -> tuple[bool, Asked]:
    """Nodes in the order in which they may hold the best place: most others need no second look then."""
    return (not load.going, load.first or NOBODY_STAYS)


def no_better(load: NodeLoad, shape: Shape, best: Place) -> bool:
    """Whether the node cannot have a better place than the best so far.

    A card that has not enough room needs one victim, or two when even its largest tenant would not do; and no set of
    victims can be better than the first who would be asked here.
    """
    if load.first is None:
        return False
    roomy = sum(card.milli >= shape.share_milli for card in load.cards)
    each = 2 if load.single_milli < shape.share_milli else 1
    fewest = max(0, shape.cards - roomy) * each
    return fewest > 0 and (fewest, load.first[0], load.first[1]) > best.cost[:3]


def cost_of(state: LedgerState, load: NodeLoad, choice: Choice) -> Cost:
    """What a choice costs the others: smallest is best."""
    leaving = [state.requests[uid] for uid in choice.victims]
    return (
        len(leaving),
        max((priority_of(r.request) for r in leaving), default=NEVER),
        -min((r.decided_at for r in leaving), default=0),
        sum(lost_work(r, state.clock_ms) for r in leaving),
        tuple(sorted((-commit, -index) for commit, index in map(acceptance, choice.victims))),
        load.tie,
        load.name,
    )


def lost_work(request: RequestState, now_ms: int) -> int:
    """Thousandths of cards x milliseconds since it began; 0 when its beginning is not known."""
    pieces = request.placement.slices if request.placement is not None else ()
    began = request.started_ms
    return sum(piece.share_milli for piece in pieces) * (max(0, now_ms - began) if began else 0)
