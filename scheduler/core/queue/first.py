"""The first in the queue that fits nowhere: a place is kept for it, and lent to those who will have ended by then.

In: a desk, the blocked units in queue order. Out: nominations whose `why` is `drains` (`drain` tells where and when),
one unit at a time; and decisions of others that use the place until its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from bus.ledger.state import RequestState
from contracts.decisions import Nominated, NominationEnded
from scheduler.core.queue import drain, quota
from scheduler.core.queue.desk import Desk
from scheduler.core.queue.proof import emptied, seat_nominated
from scheduler.core.queue.searched import Same, same_again
from scheduler.core.reasons import node_reason
from scheduler.core.request import shape_for

LOOKED_AT = 32
"""Units, in queue order, that are offered what others leave behind, or a place that is kept for a later time."""

LENT = "uses the place until its time"
"""Ends the reason of a nomination that stands again in the same commit."""

Unit = tuple[RequestState, ...]
Moment = tuple[int, int, int]
Blocked = Callable[[Callable[[RequestState], bool]], Iterator[Unit]]
"""Units in queue order all of whose members are wanted."""


class First:
    """What is done for the first of a desk.

    Args:
        desk: shared.
        blocked: units that find no room and have no place in sight.
        submitted: when the oldest of all and the members of each blocked gang were submitted, milliseconds, 0 = not
            known, in no order: whether anybody could be due, without looking at everybody.
    """

    def __init__(self, desk: Desk, blocked: Blocked, submitted: Callable[[], Iterable[int]]) -> None:
        self.desk = desk
        self.blocked = blocked
        self.submitted = submitted
        self._in_vain: dict[Same, Moment] = {}
        """The one for whom no place could be kept, and `_moment` at that time."""

    def serve(self) -> None:
        """Keep a place, or lend the one that is kept."""
        desk = self.desk
        draining = [r for r in desk.state.nominated.values() if r.nomination and r.nomination.why == "drains"]
        if draining:
            self._lend(draining)
        elif desk.promised or self._somebody_is_due():
            first = next((unit for unit in self.blocked(lambda _: True) if not desk.over(unit)), None)
            if first is not None and not desk.full():
                self._keep(first)

    def _keep(self, first: Unit) -> None:
        desk = self.desk
        due = drain.due(first, desk.state.clock_ms)
        key, moment = same_again(first), self._moment()
        nodes = None if due else drain.promised_nodes(desk.promised.values())
        if nodes == {} or (due and self._in_vain.get(key) == moment):
            return
        records = drain.keep(desk.search, first, nodes)
        if due:
            self._in_vain = {} if records is not None else {key: moment}
        if records is not None and desk.within(first, records):
            desk.nominate(records)

    def _moment(self) -> Moment:
        """What a search rests on: the nodes; and the time, if the ends of some are known, also of those who begin."""
        state, timed = self.desk.state, bool(self.desk.promised)
        return len(state.touched), state.clock_ms if timed else 0, len(state.began) if timed else 0

    def _somebody_is_due(self) -> bool:
        before_ms = self.desk.state.clock_ms - drain.DRAIN_AFTER_MS
        return any(0 < submitted_ms <= before_ms for submitted_ms in self.submitted())

    # --- until its time --------------------------------------------------------------------------------------------

    def _lend(self, draining: list[RequestState]) -> None:
        """Whoever will have ended before the time of the first may use its place until then."""
        state, first = self.desk.state, draining[0]
        wanted = first.nomination
        if len(draining) != 1 or not state.clock_ms or wanted is None or wanted.expected_ms is None:
            return
        for unit in islice(self.blocked(lambda r: r.request.expected_s is not None), LOOKED_AT):
            expected_s = unit[0].request.expected_s
            if self.desk.full() or len(unit) > 1 or expected_s is None or self.desk.over(unit):
                continue
            in_time = state.clock_ms + 1000 * expected_s <= wanted.expected_ms
            if in_time and self._fits_meanwhile(unit[0], first, wanted):
                self._use_meanwhile(unit[0], first, wanted)

    def _fits_meanwhile(self, request: RequestState, first: RequestState, wanted: Nominated) -> bool:
        state = self.desk.state
        node = state.nodes[wanted.placement.node]
        bare = emptied(node, lambda _: True)
        seat_nominated(state, node, bare, but=first.uid)
        return node_reason(shape_for(request), bare, state.requests) is None

    def _use_meanwhile(self, request: RequestState, first: RequestState, wanted: Nominated) -> None:
        desk = self.desk
        desk.write(NominationEnded(uid=first.uid, reason=f"{request.key} {LENT}"))
        found = desk.placer.place(request)
        if found is not None and quota.beyond(desk.state, request.accepted.namespace, (found.placement,)) is None:
            desk.place(request, found)
        desk.write(wanted)
