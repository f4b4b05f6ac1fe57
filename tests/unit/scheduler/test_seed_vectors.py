"""Worked cases of best fit as KubeShare published it, repaired: memory is checked on a new card too, ties are total."""

from __future__ import annotations

import pytest

from scheduler.core.decide import Placed, decide
from scheduler.core.policies import POLICIES
from tests.builders.ledger import Cluster, Request, cluster, node, request

GIB = 1024
BEST_FIT = POLICIES["seed-best-fit"]


def two_cards(*, empty: int = 0) -> Cluster:
    """A: 300 thousandths and 4 GiB free; B: 700 and 4 GiB; `empty` more with all of their 16 GiB."""
    drawn = cluster(node("n1").gpus(2 + empty, memory_mib=16 * GIB))
    drawn.hold(request("a").share(700).gpu_memory(12 * GIB), "n1", 0)
    drawn.hold(request("b").share(300).gpu_memory(12 * GIB), "n1", 1)
    return drawn


def chosen(drawn: Cluster, asked: Request) -> tuple[str, int] | None:
    """Card and score, or None."""
    decision = decide(drawn.state, drawn.accept(asked), BEST_FIT)
    if not isinstance(decision, Placed):
        return None
    pieces = decision.placement.slices
    return (pieces[0].card if pieces else decision.placement.node, decision.rationale.chosen.score)


@pytest.mark.parametrize(
    ("share", "memory_gib", "empty", "expected"),
    [
        (200, 1, 0, ("n1-gpu0", -100)),
        (400, 1, 0, ("n1-gpu1", -300)),
        (200, 5, 1, ("n1-gpu2", -800)),
        (200, 5, 0, None),
        (200, 17, 1, None),
        (300, 4, 1, ("n1-gpu0", 0)),
    ],
    ids=["A", "B", "a new card", "nothing", "too large for a new card", "an exact fit"],
)
def test_the_tightest_card_wins(share: int, memory_gib: int, empty: int, expected: tuple[str, int] | None) -> None:
    """Scores are what is left on the card, negative; a new card leaves 1000 - share."""
    asked = request("r").share(share).gpu_memory(memory_gib * GIB)

    assert chosen(two_cards(empty=empty), asked) == expected


def test_a_tight_fit_anywhere_beats_a_new_card() -> None:
    """The minimum is global: n2 has a card with 300 left, n1 an empty one."""
    drawn = cluster(node("n1").gpus(1), node("n2").gpus(1))
    drawn.hold(request("a").share(700), "n2", 0)

    assert chosen(drawn, request("r").share(300)) == ("n2-gpu0", 0)


def test_without_cards_the_tightest_cpu_wins() -> None:
    """500 and 3,000 milli-cores free, 400 asked: the first node, 100 left."""
    drawn = cluster(node("n1").cpu(500), node("n2").cpu(3000))

    assert chosen(drawn, request("r").cards(0).cpu(400)) == ("n1", -100)


def test_equal_nodes_are_told_apart_by_their_fixed_rank() -> None:
    """Never by the order in which they joined."""
    names = [f"n{i}" for i in range(20)]
    one = chosen(cluster(node(name).gpus(1) for name in names), request("r").share(300))
    other = chosen(cluster(node(name).gpus(1) for name in reversed(names)), request("r").share(300))

    assert one == other


def test_equal_cards_are_told_apart_by_their_place() -> None:
    """Lowest index among empty ones."""
    assert chosen(cluster(node("n1").gpus(4)), request("r").share(300)) == ("n1-gpu0", -700)
