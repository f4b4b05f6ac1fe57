"""Those who are awake, tried in queue order: each gets its place, or waits for what it lacks.

In: a desk, its awake lanes and gangs. Out: decisions; kinds that wait for room, or for their quota.

One freed card wakes a thousand lanes and serves one of them. So a lane is not tried when its shape found no room a
moment ago, nor when the nodes whose improvement woke it are full again; and when no shape is left that may find room,
the round is over for everybody.
"""

from __future__ import annotations

from scheduler.core.queue import quota
from scheduler.core.queue.desk import Desk
from scheduler.core.queue.gangs import Gangs
from scheduler.core.queue.waiting import Kind, Lane
from scheduler.core.request import Shape


class Trying:
    """Rounds over one desk."""

    def __init__(self, desk: Desk, gangs: Gangs) -> None:
        self.desk = desk
        self.gangs = gangs
        self.woken: dict[Shape, list[str]] = {}
        """Shapes that fitted nowhere until these nodes improved; of the present round."""
        self._by_card: dict[Kind, None] = {}
        """Kinds that a quota holds because of the card that was chosen for them."""
        self._stuck: dict[Shape, None] = {}
        """Shapes that found no room in this round."""
        self._open: dict[Shape, None] = {}
        """Shapes of those who are awake that may still find some."""
        self._gangs_left = 0

    def ask_cards_again(self) -> None:
        """Something changed: another card may be chosen, which is within the quota."""
        kinds, self._by_card = self._by_card, {}
        for kind in kinds:
            self.desk.waiting.wake(kind)

    def round(self) -> None:
        """Everybody who is awake, once; who got a place makes room for the next of its lane."""
        desk = self.desk
        gangs = [key for key in desk.gangs_awake if desk.complete(key)]
        desk.gangs_awake = dict.fromkeys(gangs)
        self._stuck, self._open, self._gangs_left = {}, desk.waiting.shapes(), len(gangs)
        order = desk.order = desk.ordered(desk.waiting.lanes(), gangs)
        while (unit := order.next(self._passed, self._over)) is not None:
            if unit.team is not None:
                self._gangs_left -= 1
                self.gangs.attempt(unit.team)
            elif unit.lane is not None and self._try(unit.lane):
                order.again(unit.lane)
            if desk.enough():  # asked afterwards: a turn gets on, however long its beginning took
                break
        if self._over():
            desk.waiting.block_all()
        self.woken = {}

    def _over(self) -> bool:
        return not self._open and not self._gangs_left

    def _passed(self, lane: Lane) -> bool:
        """Its shape found no room a moment ago, or the room that woke it is taken by now."""
        shape = lane.kind.shape
        if shape not in self._stuck:
            names = self.woken.get(shape)
            if names is None or self.desk.placer.fits_any(shape, names):
                return False
            self._no_room(shape)
        self.desk.waiting.block(lane.kind)
        return True

    def _no_room(self, shape: Shape) -> None:
        self._stuck[shape] = None
        self._open.pop(shape, None)

    def _try(self, lane: Lane) -> bool:
        """Place the first of a lane; False when its kind has to wait."""
        desk, request = self.desk, self.desk.state.pending[lane.uids[0]]
        if request.nomination is None and desk.over((request,)):
            desk.waiting.hold(lane.kind)
            return False
        found = desk.placer.place(request)
        if found is not None and request.nomination is not None:
            desk.end(request, "it fits without waiting")
            found = desk.placer.place(request)
        if found is None:
            if not desk.placer.contested:
                self._no_room(lane.kind.shape)
            desk.waiting.block(lane.kind)
            return False
        if quota.beyond(desk.state, request.accepted.namespace, (found.placement,)) is not None:
            desk.waiting.hold(lane.kind)
            self._by_card[lane.kind] = None
            return False
        desk.place(request, found)
        return True
