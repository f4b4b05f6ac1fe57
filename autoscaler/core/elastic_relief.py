"""Room for whoever waits: free room first, then the seats of jobs that have more trainers than they need.

In: room, load, jobs from the most fulfilled to the least, and who waits in the order in which they are served. Out: the
keys of those who could not be helped; jobs are told which of their trainers should leave. A gang is helped as a whole
or not at all: what was given up for a part of it is taken back. A job yields to nobody of lower priority than its own.

One seat is looked for first, around all jobs, one each. Only when no single one is enough, the node is taken that needs
the fewest; of equals the first. That search looks at every seat. So a round makes `MAX_SEARCHES` of them at most, and
finds `MAX_YIELDS` single seats: the next round goes on, with what has become free meanwhile. What was in vain for one
is not tried again for its like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoscaler.core.elastic_load import Load
from autoscaler.core.elastic_room import Room
from autoscaler.core.elastic_runner import Change, Seat, Waiting
from autoscaler.core.elastic_shape import Shape
from contracts.decisions import Placement

MAX_SEARCHES = 20
MAX_YIELDS = 400
"""Trainers told to leave for somebody in one round: finding each takes a millisecond on a cluster of 5,000 nodes."""
Step = tuple[Change, Seat, Placement]


class Relief:
    """One round of it.

    Args:
        room: used up and given back to.
        load: kept in step.
        order: jobs, the most fulfilled first.
    """

    def __init__(self, room: Room, load: Load, order: Sequence[Change]) -> None:
        self.room = room
        self.load = load
        self.order = [change for change in order if change.runner.may_shrink]
        self._turn = 0
        self._searches = MAX_SEARCHES
        self._yields = MAX_YIELDS
        self._hopeless: dict[Shape, tuple[int, int]] = {}
        """Priority and count of the least of a shape for which all was in vain."""
        self._left: list[Step] = []
        """Who leaves for the one that is being helped."""

    def serve(self, waiting: Sequence[Waiting]) -> tuple[str, ...]:
        """Seats for all that wait, as far as jobs can give them; who could not be helped, and counts no more."""
        unmet: list[str] = []
        for asks in waiting:
            if not self._help(asks):
                self.load.add(asks.shape, -asks.count)
                unmet.append(asks.key)
        return tuple(unmet)

    def _help(self, asks: Waiting) -> bool:
        priority, count = self._hopeless.get(asks.shape, (asks.priority - 1, asks.count + 1))
        if asks.priority <= priority and asks.count >= count:
            return False
        self._left = []
        seats: list[Placement] = []
        for _ in range(asks.count):
            seat = self.room.take(asks.shape) or self._by_one(asks) or self._by_several(asks)
            if seat is None:
                self._undo(seats)
                self._hopeless[asks.shape] = asks.priority, asks.count
                return False
            seats.append(seat)
        return True

    def _undo(self, seats: list[Placement]) -> None:
        for seat in seats:
            self.room.give(seat)
        self._stay(len(self._left))

    # --- one seat --------------------------------------------------------------------------------------------------

    def _by_one(self, asks: Waiting) -> Placement | None:
        """A trainer whose seat is enough, of the job whose turn it is, or of the next one that has such a seat."""
        if self._yields == 0:
            return None
        jobs = len(self.order)
        for index in (*range(self._turn, jobs), *range(self._turn)):
            for step in self._steps(self.order[index], asks):
                if self.room.could_hold(step[2], asks.shape) and (found := self._try(step, asks.shape)) is not None:
                    self._turn = (index + 1) % jobs
                    self._yields -= 1
                    return found
        return None

    def _try(self, step: Step, shape: Shape) -> Placement | None:
        self._leave(step)
        if (found := self.room.take_at(step[2].node, shape)) is None:
            self._stay(1)
        return found

    # --- several on one node ---------------------------------------------------------------------------------------

    def _by_several(self, asks: Waiting) -> Placement | None:
        """The node that needs the fewest trainers to leave."""
        if self._searches == 0:
            return None
        self._searches -= 1
        best: list[Step] = []
        for name, steps in self._by_node(asks).items():
            needed = self._needed(name, steps, asks.shape)
            if needed and (not best or len(needed) < len(best)):
                best = needed
        for step in best:
            self._leave(step)
        return self.room.take_at(best[0][2].node, asks.shape) if best else None

    def _by_node(self, asks: Waiting) -> dict[str, list[Step]]:
        found: dict[str, list[Step]] = {}
        for change in self.order:
            for step in self._steps(change, asks):
                found.setdefault(step[2].node, []).append(step)
        return found

    def _needed(self, name: str, steps: list[Step], shape: Shape) -> list[Step]:
        """The first of these that make the shape fit, without those that are not needed for it; nothing is changed."""
        before = len(self._left)
        for step in steps:
            if step[0].planned > step[0].runner.minimum:
                self._leave(step)
                if self._fits(name, shape):
                    break
        else:
            self._stay(len(self._left) - before)
            return []
        tried = self._left[before:]
        needed = [step for step in tried if not self._spared(step, name, shape)]
        for step in tried:
            if not any(step is other for other in needed):
                self.room.give(step[2])
        self._stay(len(tried))
        return needed

    def _spared(self, step: Step, name: str, shape: Shape) -> bool:
        """Whether the shape fits with this one in its seat; then it is in it."""
        self.room.retake(step[2])
        if self._fits(name, shape):
            return True
        self.room.give(step[2])
        return False

    def _fits(self, name: str, shape: Shape) -> bool:
        if (found := self.room.take_at(name, shape)) is not None:
            self.room.give(found)
        return found is not None

    # --- leaving and staying ---------------------------------------------------------------------------------------

    def _steps(self, change: Change, asks: Waiting) -> Iterator[Step]:
        """The seats that a job could leave for it, next to leave first."""
        if change.planned > change.runner.minimum and change.runner.priority <= asks.priority:
            for seat in change.free_seats():
                if seat.placement is not None:
                    yield change, seat, seat.placement

    def _leave(self, step: Step) -> None:
        change, seat, placement = step
        change.shrink("yields", seat)
        self.load.add(change.runner.shape, -1)
        self.room.give(placement)
        self._left.append(step)

    def _stay(self, count: int) -> None:
        """The last so many stay after all."""
        for _ in range(count):
            change, seat, placement = self._left.pop()
            change.stay(seat)
            self.load.add(change.runner.shape, 1)
            self.room.retake(placement)
