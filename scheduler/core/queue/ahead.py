"""Looking ahead: places that will be free, for those who find no room now.

In: a desk after a round, with its blocked lanes and gangs. Out: nominations, in this order:

    1. who may ask others to leave looks for victims
    2. what somebody leaves behind anyway is kept for the first in the queue that fits there
    3. the first of all may have a place that drains (`first`)

A search is made where something changed since the last one in vain (`searched`). A pass over those who may ask others
that is cut goes on in the next turn behind whom it has looked at: a gang that finds nothing on 5,000 nodes would else
take all the time of every turn, as long as anything changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from bus.ledger.state import RequestState
from contracts.decisions import Nominated
from contracts.priorities import may_preempt
from scheduler.core.queue.desk import Desk
from scheduler.core.queue.first import LOOKED_AT, First
from scheduler.core.queue.gangs import Gangs
from scheduler.core.queue.rounds import Unit
from scheduler.core.queue.searched import Same, same_again


class Ahead:
    """What is looked ahead for a desk."""

    def __init__(self, desk: Desk, gangs: Gangs) -> None:
        self.desk = desk
        self.gangs = gangs
        self.first = First(desk, self._blocked, self._submitted)
        self._asked: dict[Same, None] = {}
        """Whom the present pass has looked at."""
        self._found = False
        """It has found a place for one of them, or a quota is another: then one more follows."""
        self._began = self._moment()

    def look(self) -> bool:
        """Nominate whom there is a place for; False when it was cut."""
        desk = self.desk
        if not desk.waiting.blocked and not self.gangs.blocked():
            return True
        if desk.rules.preemption and not self._ask_others():
            return False
        self._follow()
        self.first.serve()
        return not desk.full()

    def quota_changed(self) -> None:
        """Whom the present pass has looked at may hold other places now."""
        self._found = True

    # --- who is looked at ------------------------------------------------------------------------------------------

    def _blocked(
        self, wanted: Callable[[RequestState], bool], *, asking: bool = False
    ) -> Iterator[tuple[RequestState, ...]]:
        """Blocked units in queue order, without those that have a place in sight; `asking`: of those who may ask."""
        desk, pending = self.desk, self.desk.state.pending
        lanes = (lane for lane in desk.waiting.blocked_lanes(asking=asking) if wanted(pending[lane.uids[0]]))
        gangs = (key for key in self.gangs.blocked() if all(map(wanted, desk.teams.waiting(key))))
        order = desk.ordered(lanes, gangs)
        while (unit := order.next()) is not None:
            yield from self._without_place(unit)

    def _without_place(self, unit: Unit) -> Iterator[tuple[RequestState, ...]]:
        desk = self.desk
        if unit.lane is not None:
            free = (r for uid in unit.lane.uids if (r := desk.state.pending[uid]).nomination is None)
            first = next(free, None)
            if first is not None and desk.nominable(first):
                yield (first,)
        elif unit.team is not None:
            members = tuple(desk.teams.waiting(unit.team))
            free_members = tuple(m for m in members if m.nomination is None and desk.nominable(m))
            if desk.teams.lacking(unit.team) <= 0:  # it has begun: the others join one by one
                yield from ((member,) for member in free_members)
            elif free_members == members:
                yield members

    def _submitted(self) -> Iterator[int]:
        yield self.desk.waiting.oldest_ms or 0
        for key in self.gangs.blocked():
            yield from (member.accepted.submitted_ms for member in self.desk.teams.waiting(key))

    # --- what is done for them -------------------------------------------------------------------------------------

    def _ask_others(self) -> bool:
        """Victims for who may ask others to leave, where something changed since the last search; False when cut."""
        while True:
            if not self._asked:
                self._found, self._began = False, self._moment()
            for unit in self._blocked(lambda request: may_preempt(request.request), asking=True):
                if (same := same_again(unit)) not in self._asked:
                    self._found = self._nominated(unit, asking=True) or self._found
                    self._asked[same] = None
                    if self.desk.enough():
                        return False
            self._asked = {}
            if not self._found and self._began == self._moment():
                return True

    def _moment(self) -> tuple[int, int]:
        """What searches in vain rest on."""
        return len(self.desk.state.touched), self.desk.teams.tick

    def _follow(self) -> None:
        """What somebody leaves behind is kept for the first in the queue that fits there."""
        desk = self.desk
        desk.left_behind = {name: None for name in desk.left_behind if self._somebody_leaves(name)}
        if not desk.left_behind:
            return
        for unit in islice(self._blocked(lambda _: True), LOOKED_AT):
            self._nominated(unit, asking=False)

    def _somebody_leaves(self, name: str) -> bool:
        node = self.desk.state.nodes.get(name)
        return node is not None and any(self.desk.state.requests[uid].leaving for uid in node.residents)

    def _nominated(self, unit: tuple[RequestState, ...], *, asking: bool) -> bool:
        """Whether there was a place for it, and it is nominated."""
        desk = self.desk
        if desk.full() or desk.over(unit):
            return False
        records = self._search(unit, asking=asking)
        if records is None or not desk.within(unit, records):
            return False
        desk.nominate(records)
        return True

    def _search(self, unit: tuple[RequestState, ...], *, asking: bool) -> list[Nominated] | None:
        """Places where something changed since the last search in vain for such a unit."""
        desk = self.desk
        changed = desk.searched.changed(unit, asking=asking)
        if not asking:
            changed = [name for name in changed if name in desk.left_behind]
        if changed and len(unit) > 1:
            changed = list(desk.state.nodes)  # one node more may be what all of a gang needs
        records = desk.search.nominate(unit, changed, asking=asking) if changed else None
        desk.searched.ended(unit, asking=asking, found=records is not None)
        return records
