"""The dry run: by how many trainers each elastic job should grow or shrink, and which seats it should leave.

In: free room per node and card, sums, jobs with the seats of their trainers, and who waits. Out: a `Plan`. Nothing is
changed outside; the room and the load that are given are used up. Four steps, each with its reason:

    1. bounds      a job above its maximum or below its minimum is brought back: no load asks for that
    2. waiting     whoever waits gets free room first; if there is none, jobs above their minimum leave the seats that
                   make it fit, the most fulfilled first: sums alone would free thousandths that lie on the wrong cards
    3. overload    jobs shrink by one each, most fulfilled first, while something they ask for is overloaded
    4. growth      jobs grow by one each, least fulfilled first, while load and room bear it

Growing never overloads and shrinking needs an overload; every pass takes or adds one trainer of some job between its
bounds, so that there are at most as many passes as the largest of them allows. A second dry run on the outcome of the
first changes nothing. A job that left a seat for somebody may grow elsewhere in the same run: then it moves a trainer.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.core.elastic_load import Load
from autoscaler.core.elastic_order import ascending
from autoscaler.core.elastic_relief import Relief
from autoscaler.core.elastic_room import Room
from autoscaler.core.elastic_runner import Change, Plan, Runner, Seat, Waiting


def plan(room: Room, load: Load, runners: Sequence[Runner], waiting: Sequence[Waiting] = ()) -> Plan:
    """One dry run.

    Args:
        room: free room, with that of trainers which are leaving.
        load: sums, with all that waits and could ever be placed.
        runners: elastic jobs; others do not belong here.
        waiting: in the order in which they are served.
    """
    order = [Change(runner=runner) for runner in sorted(runners, key=lambda r: ascending(r.standing))]
    for change in order:
        _into_bounds(change, room, load)
    unmet = Relief(room, load, order[::-1]).serve(waiting)
    passes = _shrink(order[::-1], room, load) + _grow(order, room, load)
    return Plan(changes={change.runner.name: change for change in order}, passes=passes, unmet=unmet)


def _into_bounds(change: Change, room: Room, load: Load) -> None:
    runner = change.runner
    for _ in range(runner.planned - runner.maximum):
        _drop(change, room, load, "max")
    for _ in range(runner.minimum - runner.planned):
        change.delta, change.rule = change.delta + 1, "min"
        room.take(runner.shape)
        load.add(runner.shape, 1)


def _drop(change: Change, room: Room, load: Load, rule: str) -> Seat | None:
    """One trainer less, the next to leave, its seat free again."""
    seat = next(change.free_seats(), None)
    change.shrink(rule, seat)
    load.add(change.runner.shape, -1)
    if seat is not None and seat.placement is not None:
        room.give(seat.placement)
    return seat


def _shrink(order: Sequence[Change], room: Room, load: Load) -> int:
    """Until nothing is overloaded; a large trainer that left last may have made room for smaller ones to stay."""
    active = [change for change in order if change.runner.may_shrink]
    dropped: list[tuple[Change, Seat | None]] = []
    passes = 1
    while active := [c for c in active if c.planned > c.runner.minimum and load.overloaded(c.runner.shape)]:
        passes += 1
        dropped += [(c, _drop(c, room, load, "overload")) for c in active if load.overloaded(c.runner.shape)]
    for change, seat in reversed(dropped):
        if load.bears(change.runner.shape):
            change.stay(seat)
            load.add(change.runner.shape, 1)
            if seat is not None and seat.placement is not None:
                room.retake(seat.placement)
    return passes


def _grow(order: Sequence[Change], room: Room, load: Load) -> int:
    """A job that could not grow once cannot later: room and load only get less here."""
    active = [change for change in order if change.runner.may_grow]
    passes = 1
    while active := [change for change in active if _one_more(change, room, load)]:
        passes += 1
    return passes


def _one_more(change: Change, room: Room, load: Load) -> bool:
    shape = change.runner.shape
    if change.planned >= change.runner.maximum or not load.bears(shape) or room.take(shape) is None:
        return False
    load.add(shape, 1)
    change.delta += 1
    change.rule = "room" if change.rule == "steady" else change.rule
    return True
