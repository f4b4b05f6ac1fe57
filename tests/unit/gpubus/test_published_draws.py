"""The publishers' random numbers: Go's generator, their order of arrival, their order of nodes.

Expected values were printed by Go programs (math/rand of Go 1.26, the same since Go 1.10).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpubus.local.nodes import Model, NodeSpec
from gpubus.simulate.arrivals import drawn_as_published
from gpubus.simulate.gorand import GoRandom
from gpubus.simulate.openb import PodRow
from gpubus.simulate.plan import Plan
from gpubus.simulate.world import World, cluster_of

ROWS = [
    PodRow(name=name, cpu_milli=100, memory_mib=1, cards=cards, share_milli=share)
    for name, share, cards in (("f", 1000, 2), ("a", 500, 1), ("c", 250, 1), ("b", 0, 0), ("e", 1000, 1), ("d", 100, 1))
]
NODES = ("n3", "n1", "n0", "n2")
CLUSTER = tuple(
    NodeSpec(name=name, cards=1, model=Model(name="T4", memory_mib=16_000, reserved_mib=0)) for name in NODES
)
WHOLE: dict[str, Any] = {"cpu_milli": 1, "memory_mib": 1, "cards": 1, "share_milli": 1000}


@pytest.mark.parametrize(
    ("seed", "first"),
    [
        (1, 5577006791947779410),
        (42, 3440579354231278675),
        (0, 8717895732742165505),  # 0 stands for 89,482,311
        (-7, 747107023976529931),
        (2**31 - 1, 8717895732742165505),  # a whole turn is 0
        (2**40 + 5, 2916455904842158270),
    ],
)
def test_a_seed_begins_as_in_go(seed: int, first: int) -> None:
    """`rand.New(rand.NewSource(seed)).Int63()`."""
    assert GoRandom(seed).bits() == first


def test_numbers_below_a_bound() -> None:
    """`Intn`: ten below 100, then `Perm(6)`, a power of two, and one more than it."""
    go = GoRandom(1)

    assert [go.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]
    assert go.permutation(6) == [2, 3, 5, 4, 1, 0]
    assert (go.below(1 << 30), go.below((1 << 30) + 1)) == (607811211, 629431445)


def test_what_would_favour_small_numbers_is_drawn_again() -> None:
    """One more than half of the range: every second draw is thrown away."""
    go = GoRandom(1)
    expected = [939984059, 911902081, 140954425, 336122540, 208240456, 646203300, 460128162, 817455089]

    assert [go.below((1 << 30) + 1) for _ in range(8)] == expected


def test_a_shuffle_and_a_permutation() -> None:
    """`Shuffle` draws in another way than `Perm`."""
    go = GoRandom(42)

    assert go.shuffled(range(8)) == [5, 7, 4, 6, 1, 3, 0, 2]
    assert go.permutation(8) == [1, 3, 4, 5, 7, 2, 0, 6]
    assert (go := GoRandom(3)).shuffled(range(1000))[:5] == [487, 84, 450, 409, 191]
    assert go.bits() == 3873754836943921186


@pytest.mark.parametrize(
    ("capacity_milli", "order", "ranks"),
    [(8000, "bcefdadccbbfdecdcf", (1, 0, 2, 3)), (2000, "bceda", (0, 1, 3, 2))],
)
def test_pods_and_nodes_come_as_in_the_publishers_program(
    capacity_milli: int, order: str, ranks: tuple[int, ...]
) -> None:
    """Six pods of 3,850: filled up to 10,400, and cut to 2,600; the ranks go to the names in their order."""
    found, by_name = drawn_as_published(ROWS, NODES, capacity_milli=capacity_milli, ratio=1.3, seed=42)

    assert "".join(row.name for row in found) == order
    assert by_name == dict(zip(("n0", "n1", "n2", "n3"), ranks, strict=True))


def test_the_ranks_are_the_order_among_equals() -> None:
    """By rank, whatever digest their names have: first-fit fills them so."""
    state = cluster_of(CLUSTER, 1, {"n0": 2, "n1": 0, "n2": 3, "n3": 1})
    world = World(state, "first-fit")
    taken = []
    for number in range(4):
        reserved = world.place(world.arrive(PodRow(name=f"w{number}", **WHOLE)))
        taken.append(reserved.placement.node if reserved is not None else None)

    assert taken == ["0000-n1", "0001-n3", "0002-n0", "0003-n2"]


def test_a_plan_plays_them() -> None:
    """The same pods in the same order as drawn alone, and another order than its own draws."""
    plan = Plan(nodes=CLUSTER, traces={"t": tuple(ROWS)}, policies=("first-fit",), seeds=(42,), draws="published")
    own = msgspec.structs.replace(plan, draws="own")
    (job,) = plan.jobs()
    curve = plan.run(job).curve

    assert plan.arriving("t", 42) == drawn_as_published(ROWS, NODES, capacity_milli=4000, ratio=1.3, seed=42)
    assert curve is not None
    assert curve.arrived == len(plan.arriving("t", 42)[0])
    assert own.arriving("t", 42)[1] is None
    assert own.arriving("t", 42)[0] != plan.arriving("t", 42)[0]
