"""A card that is not ours is refused by rules, by the fast answer and by rows alike, and the answer says what to do."""

from __future__ import annotations

import pytest

from bus.ledger.snapshot import copy
from contracts.decisions import FactsSet
from contracts.inventory import NodeFacts
from scheduler.core.engine import Engine
from tests.builders.ledger import node, request
from tests.builders.scene import Scene


def scene(*acquired: int, **fields: str) -> Scene:
    """A node with two cards, these of which are ours."""
    ours = tuple(f"n1-gpu{index}" for index in acquired)
    return Scene(node("n1").gpus(2).facts(mode="coexist", acquired=ours, **fields))


def facts(*acquired: int) -> NodeFacts:
    """What the reconciler says of that node now."""
    record = node("n1").gpus(2).facts(mode="coexist", acquired=tuple(f"n1-gpu{n}" for n in acquired)).records()[1]
    assert isinstance(record, FactsSet)
    return record.facts


@pytest.mark.parametrize("policy", ["menu-value", "packing"])
def test_a_policy_that_has_scored_the_node_already_sees_its_cards_come_and_go(policy: str) -> None:
    """Rows of numbers and views alike follow the facts, card by card."""
    world = scene(0)
    world.engine = Engine(copy(world.log.state), policy=policy, rules=world.rules)
    world.submit(request("r1").share(500).gpu_memory(10), request("r2").share(400).gpu_memory(10))
    world.engine.facts(facts(1))
    world.turn().submit(request("r3").share(100).gpu_memory(10))
    world.engine.facts(facts())
    world.turn().submit(request("r4").share(100).gpu_memory(10))
    found = [world[name].placement for name in ("r1", "r2", "r3", "r4")]

    assert [[p.card for p in each.slices] if each else [] for each in found] == [
        ["n1-gpu0"],
        ["n1-gpu0"],
        ["n1-gpu1"],
        [],
    ]


def test_nothing_is_placed_until_a_card_is_ours() -> None:
    """It waits with the code, and what stands against getting one; it is placed as soon as the facts say so."""
    waiting = scene(acquiring="its device plugin offers no card").submit(request("r1").share(500)).turn()
    assert waiting.codes("r1") == ["card-not-acquired"]

    waiting.engine.facts(facts(1))
    assert waiting.turn()["r1"].placement is not None


def test_only_the_acquired_card_is_chosen() -> None:
    """Two whole cards: the second one waits though its card is free."""
    both = scene(1).submit(request("r1"), request("r2")).turn()
    placement = both["r1"].placement

    assert placement is not None
    assert [piece.card for piece in placement.slices] == ["n1-gpu1"]
    assert both["r2"].placement is None
