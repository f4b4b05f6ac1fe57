"""The dry run by our rules: the published vectors, who leaves for whom, and what must hold of any outcome."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.elastic_load import Amounts, Limits, Load
from autoscaler.core.elastic_plan import plan
from autoscaler.core.elastic_room import NodeRoom, Room
from autoscaler.core.elastic_runner import Runner, Seat, Waiting
from autoscaler.core.elastic_shape import Shape
from contracts.decisions import Placement
from contracts.inventory import Taint
from contracts.requests import GpuAsk
from contracts.units import NodeName
from tests.unit.autoscaler.elastic_small import Small, node, tolerant, trainer, waits
from tests.unit.autoscaler.elastic_vectors import ALL, STEPS, UP, AllVector, Job, StepVector

# --- the published vectors --------------------------------------------------------------------------------------------


def of_vector(cluster: tuple[int, ...], m_milli: int) -> tuple[Room, Load]:
    """Sums as published, and one node that has room for everything."""
    cpu, cpu_used, memory, memory_used, *cards = cluster
    gpu, gpu_used = cards or (0, 0)
    load = Load(
        Amounts(cpu_milli=cpu, memory_mib=memory, card_milli=1000 * gpu),
        Amounts(cpu_milli=cpu_used, memory_mib=memory_used, card_milli=1000 * gpu_used),
        Limits(cpu_milli=m_milli, memory_milli=m_milli),
    )
    return Room([node("node", 16, cpu=10**9)]), load


def runner(name: str, job: Job, **more: Any) -> Runner:
    cpu, memory, gpu, least, most, present = job
    shape = Shape(cpu_milli=cpu, memory_mib=memory, gpu=GpuAsk(cards=gpu))
    return Runner(name=name, shape=shape, minimum=least, maximum=most, planned=present, **more)


@pytest.mark.parametrize("vector", ALL, ids=lambda v: v.name)
def test_a_whole_dry_run_comes_to_what_was_published(vector: AllVector) -> None:
    """The repaired rules change none of the published answers."""
    room, load = of_vector(vector.cluster, vector.m_milli)

    assert plan(room, load, [runner(n, j) for n, j in vector.jobs.items()]).deltas == vector.expected


ONLY_UP = [v for v in STEPS if v.steps[0][1] is UP]


@pytest.mark.parametrize("vector", ONLY_UP, ids=lambda v: v.name)
def test_a_job_that_could_not_grow_by_one_does_not_grow(vector: StepVector) -> None:
    """The published single steps up, as the first step of a whole run."""
    room, load = of_vector(vector.cluster, 1000)
    found = plan(room, load, [runner("job", vector.job)]).deltas["job"]

    assert min(found, 1) == vector.steps[0][2]


@pytest.mark.parametrize("vector", [v for v in STEPS if v not in ONLY_UP], ids=lambda v: v.name)
def test_the_published_single_steps_down_add_up(vector: StepVector) -> None:
    """Six trainers of at most three; two of CPU too many; down and not up again."""
    room, load = of_vector(vector.cluster, 1000)

    assert plan(room, load, [runner("job", vector.job)]).deltas["job"] == sum(step[2] for step in vector.steps)


# --- what the source got wrong ----------------------------------------------------------------------------------------


def test_one_threshold_both_ways_does_not_oscillate() -> None:
    """Ten cards, nine used, 90 % of each: the seed added and removed one for 20 passes."""
    room, load = of_vector((10_000, 0, 10_000, 0, 10, 9), 1000)
    load.card_limit = 9000
    found = plan(room, load, [runner("a", (0, 0, 1, 1, 9, 1))])

    assert (found.deltas, found.passes) == ({"a": 0}, 2)


def test_an_exact_fit_is_a_fit() -> None:
    """The seed refused the last MiB."""
    room, load = of_vector((10_000, 0, 105, 0), 1000)

    assert plan(room, load, [runner("a", (1000, 105, 0, 1, 3, 0))]).deltas == {"a": 1}


def test_a_job_shrinks_only_for_what_it_can_give_back() -> None:
    """CPU is overloaded; a job that asks for memory only keeps its trainers."""
    room, load = of_vector((1000, 2000, 1000, 500), 1000)
    jobs = [runner("memory", (0, 10, 0, 1, 9, 9)), runner("cpu", (100, 0, 0, 1, 9, 3))]

    assert plan(room, load, jobs).deltas == {"memory": 0, "cpu": -2}


class Feasible(NamedTuple):
    """One job of one trainer that may grow, and by how much it does."""

    name: str
    nodes: list[NodeRoom]
    shape: Shape
    grows: int


TAINT = (Taint(key="only", effect="NoSchedule", value="batch"),)
FEASIBLE = [
    Feasible("whole cards are counted per node", [node("a", 3), node("b", 1)], trainer(cards=2), 1),
    Feasible("halves share cards", [node("a", 2)], trainer(share=500), 4),
    Feasible("thousandths on different cards are no card", [node("a", 4, share=600)], trainer(), 0),
    Feasible("but they hold shares", [node("a", 4, share=600)], trainer(share=300), 8),
    Feasible("memory of the card", [node("a", 1)], Shape(gpu=GpuAsk(share_milli=10, memory_mib=30_000)), 2),
    Feasible("no node is ready", [node("a", 4, ready=False)], trainer(), 0),
    Feasible("cordoned by Kubernetes", [node("a", 4, unschedulable=True)], trainer(), 0),
    Feasible("tainted", [node("a", 4, taints=TAINT)], trainer(), 0),
    Feasible("tolerated", [node("a", 4, taints=TAINT)], tolerant(key="only", value="batch"), 4),
    Feasible("tolerated whatever it is", [node("a", 4, taints=TAINT)], tolerant(operator="Exists"), 4),
    Feasible("another value is not tolerated", [node("a", 4, taints=TAINT)], tolerant(key="only"), 0),
    Feasible("labels", [node("a", 2), node("b", 3, labels={"zone": "x"})], trainer(selector=(("zone", "x"),)), 3),
    Feasible("another model", [node("a", 4)], Shape(gpu=GpuAsk(models=("H100",))), 0),
    Feasible("a card that is too small", [node("a", 4)], Shape(gpu=GpuAsk(min_card_memory_mib=90_000)), 0),
    Feasible("CPU per node, not in sum", [node("a", 4, cpu=1500), node("b", 4, cpu=1500)], trainer(), 2),
]  # fmt: skip


@pytest.mark.parametrize("case", FEASIBLE, ids=lambda c: c.name)
def test_a_job_grows_into_what_its_trainers_fit_on(case: Feasible) -> None:
    """Node by node and card by card."""
    small = Small(*case.nodes)
    small.runners.append(Runner(name="a", shape=case.shape, minimum=0, maximum=99, planned=0))

    assert small.plan().deltas == {"a": case.grows}


def test_a_share_goes_to_the_fullest_card_that_holds_it() -> None:
    """The other one stays whole."""
    place = node("a", 2)
    place.cards[1].free_milli = 300
    seat = Room([place]).take(trainer(share=300))

    assert seat is not None
    assert [piece.card for piece in seat.slices] == ["a-1"]


def test_what_is_given_back_is_found_again() -> None:
    """Also by a shape for which every node was full."""
    room = Room([node("a", 1), node("b", 1)])
    first, _ = room.take(trainer()), room.take(trainer())
    assert room.take(trainer()) is None
    assert first is not None
    room.give(first)

    assert room.take(trainer()) == first


# --- who leaves for whom ----------------------------------------------------------------------------------------------


def test_a_waiting_request_gets_free_room_before_a_job_grows_into_it() -> None:
    """Two cards, one free: it is the waiting one's."""
    small = Small(node("a", 2))
    small.job("a", (1, 9), ["a"])

    assert small.plan(waits(trainer())).deltas == {"a": 0}


def test_the_most_fulfilled_job_leaves_the_seat() -> None:
    """Both are above their minimum."""
    small = Small(node("a", 6))
    small.job("a", (1, 9), ["a"] * 2)
    small.job("b", (1, 4), ["a"] * 4)
    found = small.plan(waits(trainer()))

    assert (found.deltas, found.changes["b"].rule, found.unmet) == ({"a": 0, "b": -1}, "yields", ())


def test_it_is_the_trainer_on_the_right_node_that_leaves() -> None:
    """Only the nodes labelled x can take it: sums would have let the last trainer, on y, go."""
    small = Small(node("x", 2, labels={"zone": "x"}), node("y", 2))
    small.job("a", (1, 4), ["y", "x", "x", "y"])
    found = small.plan(waits(trainer(selector=(("zone", "x"),))))

    assert (found.deltas, found.changes["a"].left) == ({"a": -1}, {2})


def test_several_leave_where_the_fewest_have_to() -> None:
    """Two cards on one node are needed: x would need two trainers to leave, y has one free already."""
    small = Small(node("x", 2), node("y", 2))
    small.job("a", (1, 3), ["x", "x", "y"], may_grow=False)
    found = small.plan(waits(trainer(cards=2)))

    assert (found.deltas, found.changes["a"].left) == ({"a": -1}, {2})
    small = Small(node("x", 3), node("y", 3))
    small.job("a", (1, 6), ["x", "x", "x", "y", "y", "y"], may_grow=False)
    found = small.plan(waits(trainer(cards=3)))
    assert (found.deltas, found.changes["a"].left) == ({"a": -3}, {3, 4, 5})


def test_a_trainer_moves_when_somebody_needs_just_its_seat() -> None:
    """The waiting one fits on x only; the job leaves it and grows on y."""
    small = Small(node("x", 1, labels={"zone": "x"}), node("y", 2))
    small.job("a", (1, 2), ["y", "x"])
    found = small.plan(waits(trainer(selector=(("zone", "x"),))))

    assert (found.deltas, found.changes["a"].left) == ({"a": 0}, {1})


def test_a_small_trainer_stays_when_a_large_one_has_made_room() -> None:
    """14 of 10 cores: the small one leaves first and is still not enough; with the large one gone it may stay."""
    small = Small(node("x", cpu=10**6))
    small.job("small", (1, 3), ["x"] * 3, trainer(cards=0, cpu=1000))
    small.job("large", (1, 3), ["x"] * 2, trainer(cards=0, cpu=5500))
    load = small.load()
    load.cpu_limit = 10_000

    found = plan(small.room, load, small.runners)

    assert found.deltas == {"small": 0, "large": -1}
    assert found.changes["small"].left == set(), "it would go and come again elsewhere"


def test_nobody_leaves_a_seat_that_is_not_needed() -> None:
    """CPU is what is missing: the small trainer that would leave first stays."""
    small = Small(node("x", cpu=10_000))
    small.job("a", (1, 3), ["x"] * 3, trainer(cards=0, cpu=100))
    small.job("b", (1, 9), ["x"] * 3, trainer(cards=0, cpu=3000))
    small.runners[0] = msgspec.structs.replace(small.runners[0], may_grow=False)
    found = small.plan(waits(trainer(cards=0, cpu=6000)))

    assert found.deltas == {"a": 0, "b": -2}


def test_a_gang_is_helped_as_a_whole_or_not_at_all() -> None:
    """Three of four cards could be freed: nobody leaves for three."""
    small = Small(node("a", 4))
    small.job("a", (1, 4), ["a"] * 4)

    assert small.plan(waits(trainer(), count=3)).deltas == {"a": -3}
    small = Small(node("a", 4))
    small.job("a", (1, 4), ["a"] * 4)
    found = small.plan(waits(trainer(), count=4))
    assert (found.deltas, found.unmet, found.changes["a"].left) == ({"a": 0}, ("w",), set())


def test_what_can_never_be_helped_keeps_nobody_small() -> None:
    """It asks for more cards than any node has: jobs go on growing."""
    small = Small(node("a", 4))
    small.job("a", (1, 4), ["a"])
    found = small.plan(waits(trainer(cards=8)))

    assert (found.deltas, found.unmet) == ({"a": 3}, ("w",))


def test_a_job_yields_to_its_equals_and_betters_only() -> None:
    """Priority 5 does not leave for priority 0."""
    for priority, delta in ((0, 0), (5, -1), (6, -1)):
        small = Small(node("a", 2))
        small.job("a", (1, 2), ["a"] * 2, priority=5)
        assert small.plan(waits(trainer(), priority=priority)).deltas == {"a": delta}


def test_jobs_take_turns_in_leaving() -> None:
    """Two wait; two jobs of three leave one each."""
    small = Small(node("a", 6))
    small.job("a", (1, 3), ["a"] * 3)
    small.job("b", (1, 3), ["a"] * 3)

    assert small.plan(waits(trainer(), count=2)).deltas == {"a": -1, "b": -1}


def test_a_job_that_may_not_change_does_not() -> None:
    """Paused, or in the middle of a change."""
    small = Small(node("a", 3))
    small.job("a", (1, 3), ["a"] * 2, may_grow=False, may_shrink=False)

    assert small.plan(waits(trainer(), count=2)).deltas == {"a": 0}


def test_bounds_hold_whatever_the_load() -> None:
    """Above its maximum it shrinks though nobody waits; below its minimum it grows though nothing is free."""
    small = Small(node("a", 3))
    small.job("a", (1, 1), ["a"] * 2)
    small.job("b", (3, 4), ["a"])
    found = small.plan()

    assert (found.deltas, found.changes["a"].rule, found.changes["b"].rule) == ({"a": -1, "b": 2}, "max", "min")


# --- whatever the cluster ---------------------------------------------------------------------------------------------

SHARES = st.sampled_from([100, 250, 500, 1000])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Small, list[Waiting]]:
    """Nodes of a few cards, jobs seated at random, some of them crowded out, and some who wait."""
    nodes = [node(f"n{i}", draw(st.integers(0, 4)), cpu=draw(st.integers(1000, 9000))) for i in range(3)]
    small = Small(*nodes, limits=Limits(cpu_milli=draw(st.sampled_from([500, 970, 1000])), memory_milli=1000))
    for name in "abc":
        shape = trainer(cards=draw(st.integers(0, 2)), share=draw(SHARES), cpu=draw(st.integers(0, 2000)))
        least = draw(st.integers(1, 3))
        seats = [Seat(index=i, placement=small.room.take(shape)) for i in range(draw(st.integers(1, 5)))]
        found = [seat for seat in seats if seat.placement is not None]
        small.runners.append(
            Runner(
                name=name,
                shape=shape,
                minimum=least,
                maximum=least + draw(st.integers(0, 4)),
                planned=len(found),
                seats=tuple(found[:0:-1]),
                priority=draw(st.integers(0, 1)),
            )
        )
    asks = st.builds(
        waits,
        st.builds(trainer, st.integers(0, 3), SHARES, st.integers(0, 3000)),
        count=st.integers(1, 3),
        priority=st.integers(0, 1),
    )
    return small, draw(st.lists(asks, max_size=3))


def free(room: Room) -> list[tuple[int, ...]]:
    return [(n.cpu_milli, n.memory_mib, n.pods, *(c.free_milli for c in n.cards)) for n in room.nodes]


@settings(max_examples=50, deadline=None)
@given(clusters())
def test_whatever_the_cluster_nothing_is_sold_twice_and_bounds_hold(case: tuple[Small, list[Waiting]]) -> None:
    """Room is never below zero but where a job is raised to its minimum, and nobody shrinks below it."""
    small, waiting = case
    found = plan(small.room, small.load(tuple(waiting)), small.runners, waiting)

    assert all(amount >= 0 for row in free(small.room) for amount in row)
    for change in found.changes.values():
        assert change.planned <= change.runner.maximum
        assert change.planned >= change.runner.minimum
        assert change.left <= {seat.index for seat in change.runner.seats}


@settings(max_examples=50, deadline=None)
@given(clusters())
def test_a_second_dry_run_on_the_outcome_of_the_first_changes_nothing(case: tuple[Small, list[Waiting]]) -> None:
    """No oscillation: the waiting ones have come in, the jobs have changed."""
    small, waiting = case
    load = small.load(tuple(waiting))
    found = plan(small.room, load, small.runners, waiting)
    after = [
        Runner(
            name=change.runner.name,
            shape=change.runner.shape,
            minimum=change.runner.minimum,
            maximum=change.runner.maximum,
            planned=change.planned,
            seats=tuple(change.free_seats()),
        )
        for change in found.changes.values()
    ]
    again = plan(Room(small.room.nodes), load, after)

    assert {name: delta for name, delta in again.deltas.items() if delta} == {}


def test_seats_on_nodes_that_are_gone_give_nothing_back() -> None:
    """A trainer on a node that is not offered any more frees no room for anybody."""
    small = Small(node("a", 1))
    lost = Placement(node=NodeName("gone"), cpu_milli=1000)
    small.runners.append(
        Runner(name="a", shape=trainer(), minimum=0, maximum=1, planned=1, seats=(Seat(index=0, placement=lost),))
    )
    small.room.take_at("a", trainer())
    found = small.plan(waits(trainer()))

    assert (found.deltas, found.unmet) == ({"a": 0}, ("w",))
