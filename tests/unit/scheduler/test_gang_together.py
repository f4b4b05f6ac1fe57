"""Gangs that must stand together: one node, one NVLink group, one domain; all or none, and why none."""

from __future__ import annotations

from typing import Any

import pytest

from bus.ledger.snapshot import digest
from scheduler.core.decide import Placed, Unplaced
from scheduler.core.gang import place_gang
from scheduler.core.placer import Placer
from scheduler.core.policies import POLICIES
from scheduler.core.ranking import Rankings
from scheduler.core.request import shape_of
from scheduler.core.together import MAX_GROUNDS, Within, same_domain
from scheduler.core.view import view_of
from tests.builders.ledger import Cluster, Node, cluster, node, request

PACKING = POLICIES["packing"]


def linked(name: str, *groups: int | None) -> Node:
    """One card for each number, of that NVLink group."""
    made = node(name)
    for group in groups:
        made.gpus(1, nvlink_group=group)
    return made


def gang(drawn: Cluster, count: int, share: int = 1000, **within: Any) -> list[Placed] | Unplaced:
    """`count` members, decided together with rankings that are asked again afterwards."""
    members = [drawn.accept(request(f"m{i}").share(share).gang("g", count, **within)) for i in range(count)]
    rankings = Rankings()
    before = digest(drawn.state)
    found = place_gang(drawn.state, members, PACKING, rankings)
    assert digest(drawn.state) == before
    assert all(
        rankings.views[n].cards == view_of(drawn.state.nodes[n], drawn.state.requests).cards for n in drawn.state.nodes
    )
    if isinstance(found, list):
        drawn.fold(*(placed.record() for placed in found))
    return found


def nodes(found: list[Placed] | Unplaced) -> set[str]:
    """Where they are."""
    assert isinstance(found, list)
    return {placed.placement.node for placed in found}


def test_without_a_wish_the_gang_fills_what_is_there() -> None:
    """Three members, two nodes of two cards."""
    assert nodes(gang(cluster(node("n1").gpus(2), node("n2").gpus(2)), 3)) == {"n1", "n2"}


def test_one_node_is_found_though_the_best_one_is_too_small() -> None:
    """n1 is fuller and has two cards left, n2 has three: all of them go to n2."""
    drawn = cluster(node("n1").gpus(3), node("n2").gpus(3))
    drawn.hold(request("held"), "n1", 0)

    assert nodes(gang(drawn, 3, within="node")) == {"n2"}


def test_one_node_that_is_not_there_tells_needed_and_most() -> None:
    """Four cards on one node: the most that one has is three."""
    found = gang(cluster(node("n1").gpus(3), node("n2").gpus(2)), 4, within="node")

    assert isinstance(found, Unplaced)
    [told] = found.reasons
    assert (told.code, told.needed, told.free, told.node) == ("gang-within", 4, 3, "n1")
    assert told.text == "gang g: 4 members need 4 slices on one node, the most that any has room for is 3, n1"


def test_a_ground_that_the_sums_allow_and_the_cards_do_not() -> None:
    """Memory decides: by shares two would fit, by memory one; told is how far it came, and where."""
    drawn = cluster(node("n1").gpus(1, memory_mib=10_000))
    members = [
        drawn.accept(request(f"m{i}").share(100).gpu_memory(6_000).gang("g", 2, within="node")) for i in range(2)
    ]
    found = place_gang(drawn.state, members, PACKING)

    assert isinstance(found, Unplaced)
    assert found.reasons[0].text == ("gang g: 1 of 2 members fit together on n1, which came closest, m1 does not")


def test_one_nvlink_group_and_not_only_one_node() -> None:
    """Two pairs a node: the pair that is whole, even if other cards stand before it."""
    drawn = cluster(linked("n1", 0, 1, 0, 1))
    drawn.hold(request("held"), "n1", 0)
    found = gang(drawn, 2, within="nvlink")

    assert isinstance(found, list)
    assert sorted(placed.placement.slices[0].card for placed in found) == ["n1-gpu1", "n1-gpu3"]


def test_an_unknown_link_is_no_link() -> None:
    """Without groups in the inventory no group can be promised."""
    found = gang(cluster(node("n1").gpus(4)), 2, within="nvlink")

    assert isinstance(found, Unplaced)
    assert (found.reasons[0].code, found.reasons[0].needed, found.reasons[0].free) == ("gang-within", 2, 0)


def test_a_group_that_takes_nobody_leaves_the_rankings_whole() -> None:
    """The pair is too small from the first member on and nothing was placed: the views are whole again."""
    drawn = cluster(node("n1").gpus(2, memory_mib=10_000, nvlink_group=0).gpus(1, nvlink_group=1))
    members = [
        drawn.accept(request(f"m{i}").share(100).gpu_memory(20_000).gang("g", 2, within="nvlink")) for i in range(2)
    ]
    rankings = Rankings()
    found = place_gang(drawn.state, members[:1], PACKING, rankings)
    small = place_gang(drawn.state, [*members, drawn.accept(request("m2").gang("g", 3))], PACKING, rankings)

    assert nodes(found) == {"n1"}
    assert isinstance(small, Unplaced)
    assert len(rankings.views["n1"].cards) == 3


def test_one_domain_of_a_label() -> None:
    """Four cards in zone b on two nodes; a node without the label is in no zone, however large."""
    drawn = cluster(
        node("n1").gpus(3).labels(zone="a"),
        node("n2").gpus(2).labels(zone="b"),
        node("n3").gpus(2).labels(zone="b"),
        node("n4").gpus(8),
    )

    assert nodes(gang(drawn, 4, within="domain", topology_key="zone")) == {"n2", "n3"}


def test_who_joins_later_stands_where_the_others_do() -> None:
    """Two of three stand on n1, which is full: the third waits, though n2 is empty."""
    drawn = cluster(node("n1").gpus(2), node("n2").gpus(2))
    first = [drawn.accept(request(f"m{i}").gang("g", 3, min=2, within="node")) for i in range(2)]
    placed = place_gang(drawn.state, first, PACKING)
    assert isinstance(placed, list)
    drawn.fold(*(each.record() for each in placed))
    [ground] = nodes(placed)
    late = drawn.accept(request("m2").gang("g", 3, min=2, within="node"))
    waits = place_gang(drawn.state, [late], PACKING)
    alone = Placer(drawn.state, "packing").place(late)
    drawn.release(first[0].uid)

    assert isinstance(waits, Unplaced)
    assert alone is None
    assert Placer(drawn.state, "packing").place(late) is not None
    assert (waits.reasons[0].code, waits.reasons[0].needed, waits.reasons[0].free) == ("gang-within", 1, None)
    assert "or members stand elsewhere already" in waits.reasons[0].text
    assert nodes(place_gang(drawn.state, [late], PACKING)) == {ground}


@pytest.mark.parametrize(("cards", "share", "count", "found"), [(2, 500, 4, 1), (2, 500, 5, 0), (2, 501, 3, 0)])
def test_sums_leave_out_only_what_could_never_hold_the_gang(cards: int, share: int, count: int, found: int) -> None:
    """Two cards take four halves, not five, and not three of a little more than a half."""
    drawn = cluster(node("n1").gpus(cards))
    views = {"n1": view_of(drawn.state.nodes["n1"], drawn.state.requests)}
    shapes = [shape_of(request("r").share(share).build())] * count

    assert len(list(same_domain(Within("node"), shapes, views, ["n1"]))) == found


def test_no_more_grounds_are_tried_than_a_decision_can_afford() -> None:
    """A bound, so that a gang that fits nowhere does not stop the others."""
    drawn = cluster(node(f"n{i}").gpus(1) for i in range(MAX_GROUNDS + 5))
    views = {n: view_of(each, drawn.state.requests) for n, each in drawn.state.nodes.items()}

    assert len(list(same_domain(Within("node"), [shape_of(request("r").build())], views, list(views)))) == MAX_GROUNDS
