"""Cards of a node that is shared with other schedulers: only those that a placeholder holds are sold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bus.ledger.books import Books
from bus.ledger.fold import apply_record
from bus.ledger.rules import InvariantBroken, LedgerError
from bus.ledger.snapshot import digest, dump, load
from contracts.decisions import FactsSet, InventorySet, Reserved
from contracts.inventory import NodeFacts
from tests.builders.ledger import Cluster, cluster, node, request


def shared(*acquired: int, cards: int = 2) -> Cluster:
    """One node in mode `coexist`; these cards are ours."""
    ours = tuple(f"n1-gpu{index}" for index in acquired)
    return cluster(node("n1").gpus(cards).facts(mode="coexist", acquired=ours))


def facts(world: Cluster, **fields: Any) -> Cluster:
    """Kubernetes says something else of the node."""
    before = world.state.nodes["n1"].facts
    assert before is not None
    return world.fold(FactsSet(facts=msgspec.structs.replace(before, **fields)))


def usable(world: Cluster) -> list[bool]:
    return [card.usable for card in world.state.nodes["n1"].cards.values()]


def test_only_acquired_cards_are_usable_and_facts_change_it() -> None:
    """As placeholders come and go; in mode `dedicated` all of them are."""
    world = shared(1)
    assert usable(world) == [False, True]
    assert usable(facts(world, acquired=("n1-gpu0",))) == [True, False]
    assert usable(facts(world, acquired=())) == [False, False]
    assert usable(facts(world, mode="dedicated")) == [True, True]


def test_a_card_that_is_listed_later_is_not_ours_by_itself() -> None:
    """The monitor finds a third card: nobody has acquired it."""
    world = shared(0)
    grown = node("n1").gpus(3).records()[0]
    assert isinstance(grown, InventorySet)

    assert usable(world.fold(grown)) == [True, False, False]


def test_a_card_that_is_not_acquired_is_never_sold() -> None:
    """The fold refuses the record, with the reason."""
    world = shared(1)
    world.hold(request("good").share(500), "n1", 1)

    with pytest.raises(InvariantBroken, match="no placeholder holds it"):
        world.hold(request("bad").share(500), "n1", 0)


def test_what_is_sold_stays_counted_when_its_placeholder_is_lost() -> None:
    """S053: nothing new goes there, nothing is freed, and it adds up after a restart."""
    world = shared(0)
    world.hold(request("tenant").share(500), "n1", 0)
    facts(world, acquired=())

    card = world.state.nodes["n1"].cards["n1-gpu0"]
    assert (card.used_milli, card.usable, card.overcommitted) == (500, False, False)
    assert digest(load(dump(world.state))) == digest(world.state)
    assert [c.unacquired for c in load(dump(world.state)).nodes["n1"].cards.values()] == [True, True]


def test_the_second_books_see_it_without_the_fold() -> None:
    """A fold with a mistake would be found out: the books know from the records alone whose card it is."""
    world = shared(1)
    good = world.hold(request("good").share(500), "n1", 1)
    assert good.placement is not None
    assert good.rationale is not None
    books = Books()
    books.take(node("n1").gpus(2).facts(mode="coexist", acquired=("n1-gpu1",)).records(), 1)
    books.take([Reserved(uid=good.uid, placement=good.placement, rationale=good.rationale)], 2)
    books.take([FactsSet(facts=NodeFacts(node="n1", uid="u", mode="coexist"))], 3)

    with pytest.raises(LedgerError, match="no placeholder holds it"):
        books.take([Reserved(uid="e-9-0", placement=good.placement, rationale=good.rationale)], 4)


def test_books_that_begin_with_a_state_know_it_too() -> None:
    """A proof that starts from a checkpoint."""
    world = shared(1)
    good = world.hold(request("good").share(500), "n1", 1)
    assert good.placement is not None
    assert good.rationale is not None
    facts(world, acquired=())
    books = Books()
    books.open(world.state)

    with pytest.raises(LedgerError, match="no placeholder holds it"):
        books.take([Reserved(uid="e-9-0", placement=good.placement, rationale=good.rationale)], 4)


def test_facts_of_before_there_were_modes_mean_that_all_cards_are_ours() -> None:
    """Old logs decode."""
    old = msgspec.json.decode(b'{"type":"node.facts.v1","node":"n1","uid":"u"}', type=NodeFacts)
    world = cluster(node("n1").gpus(1))
    apply_record(world.state, FactsSet(facts=old), 9)

    assert (old.mode, old.acquired, usable(world)) == ("dedicated", (), [True])
