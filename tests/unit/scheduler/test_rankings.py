"""The cache of node scores: it answers as if everything had been scored again, and scores only what changed."""

from __future__ import annotations

import pytest

from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState, NodeState
from contracts.decisions import EpochStarted, FactsSet, Resized
from contracts.inventory import NodeFacts
from contracts.units import NodeName, request_key
from scheduler.core import policies, ranking
from scheduler.core.decide import Placed, decide, place
from scheduler.core.policies import POLICIES
from scheduler.core.ranking import Rankings
from scheduler.core.request import Shape, shape_of
from scheduler.core.view import NodeView, view_of
from tests.builders.ledger import Cluster, cluster, node, request

PACKING = POLICIES["packing"]
HALF = shape_of(request("half").share(500).build())


def order(rankings: Rankings, shape: Shape = HALF, policy: str = "packing") -> list[tuple[str, int]]:
    """Names and scores, best first."""
    return [rankings.read(key) for key in rankings.ranked(shape, POLICIES[policy]).order]


def afresh(state: LedgerState, shape: Shape = HALF, policy: str = "packing") -> list[tuple[str, int]]:
    """The same from nothing."""
    rankings = Rankings()
    rankings.sync(state)
    return order(rankings, shape, policy)


def ten_nodes() -> tuple[Cluster, Rankings]:
    """Ten nodes of two cards, rankings in step."""
    drawn = cluster(node(f"n{i}").gpus(2) for i in range(10))
    rankings = Rankings()
    rankings.sync(drawn.state)
    return drawn, rankings


def test_only_nodes_that_changed_are_scored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten nodes at first, then one for one placement, none for nothing, whatever else was asked in between."""
    scored: list[str] = []

    def counting(policy: policies.Policy, shape: Shape, view: NodeView, mix: object) -> int | None:
        scored.append(view.name)
        return policies.evaluate(policy, shape, view, mix)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(ranking, "evaluate", counting)
    drawn, rankings = ten_nodes()
    order(rankings)
    first, scored[:] = len(scored), []
    drawn.hold(request("a").share(500), "n3", 0)
    rankings.sync(drawn.state)
    order(rankings)
    second, scored[:] = list(scored), []
    order(rankings)

    assert (first, second, scored) == (10, ["n3"], [])


@pytest.mark.parametrize("policy", POLICIES)
def test_rankings_in_step_equal_rankings_afresh(policy: str) -> None:
    """After placements, releases, silence, return, loss of a card, cordon, and a node that goes and comes back."""
    drawn, rankings = ten_nodes()
    shapes = [HALF, shape_of(request("w").cards(2).build()), shape_of(request("c").cards(0).cpu(100).build())]
    held = drawn.hold(request("a").share(700), "n1", 0)
    steps = [
        lambda: drawn.hold(request("b").share(300).cpu(60_000), "n2", 1),
        lambda: drawn.add(node("n3").gpus(2).stale()),
        lambda: drawn.add(node("n3").gpus(1)),
        lambda: drawn.release(held.uid),
        lambda: drawn.add(node("n4").gpus(2).card_health(1, "cordoned")),
        lambda: drawn.fold(FactsSet(facts=NodeFacts(node=NodeName("n5"), uid="u", gone=True))),
        lambda: drawn.add(node("n5").gpus(4), node("n11").gpus(1)),
    ]
    for step in steps:
        step()
        rankings.sync(drawn.state)
        for shape in shapes:
            assert order(rankings, shape, policy) == afresh(drawn.state, shape, policy)


def test_a_view_made_from_the_one_before_is_the_view_made_afresh() -> None:
    """After changes of share, of memory alone, of the card behind a UUID, and of tags alone."""
    drawn = cluster(node("n1").gpus(2))
    rankings = Rankings()
    first = drawn.hold(request("a").share(100).gpu_memory(1000), "n1", 0)
    tagged = request("t").share(100).gpu_memory(1000).exclusion("x")
    steps = [
        lambda: drawn.hold(request("b").share(100), "n1", 1),
        lambda: drawn.fold(Resized(uid=first.uid, share_milli=100, memory_mib=2000)),
        lambda: drawn.fold(Resized(uid=first.uid, share_milli=200, memory_mib=2000)),
        lambda: drawn.add(node("n1").gpus(2, model="T4")),
        lambda: drawn.hold(tagged, "n1", 0),
        lambda: (
            drawn.release(drawn.state.by_key[request_key("default", "t")]),
            drawn.hold(request("u").share(100).gpu_memory(1000), "n1", 0),
        ),
        lambda: drawn.add(node("n1").gpus(1)),
    ]
    for step in steps:
        rankings.sync(drawn.state)
        step()
        rankings.sync(drawn.state)
        assert rankings.views["n1"] == view_of(drawn.state.nodes["n1"], drawn.state.requests)


def test_equal_scores_are_in_the_order_of_ties_and_then_of_names() -> None:
    """Ten equal nodes stand by their fixed rank; if two ranks were the same, by name, however they came."""
    drawn, rankings = ten_nodes()
    by_tie = sorted(drawn.state.nodes.values(), key=lambda n: (n.tie, n.name))

    assert [name for name, _ in order(rankings)] == [n.name for n in by_tie]

    for names in (["b", "a", "c"], ["c", "b", "a"]):
        state = cluster(node(name).gpus(1) for name in names).state
        for each in state.nodes.values():
            each.tie = "00000000000000ff"
        assert [name for name, _ in afresh(state)] == ["a", "b", "c"]


def test_a_node_that_leaves_among_equal_ties_leaves_the_others_in_order() -> None:
    """Seats are given anew, and what was ranked by the old ones follows."""
    drawn = cluster(node(name).gpus(1) for name in "abcd")
    for each in drawn.state.nodes.values():
        each.tie = "00000000000000ff"
    rankings = Rankings()
    rankings.sync(drawn.state)
    before = [name for name, _ in order(rankings)]
    drawn.fold(FactsSet(facts=NodeFacts(node=NodeName("b"), uid="u", gone=True)))
    rankings.sync(drawn.state)

    assert (before, [name for name, _ in order(rankings)]) == (["a", "b", "c", "d"], ["a", "c", "d"])


def test_another_state_or_epoch_is_read_from_the_beginning() -> None:
    """Rankings that served one state serve the next, and forget the nodes that it does not have."""
    _drawn, rankings = ten_nodes()
    order(rankings)
    other = cluster(node("m").gpus(1))
    rankings.sync(other.state)
    on_other = order(rankings)
    apply_record(other.state, EpochStarted(epoch="e0000001", reason="rebuilt"), 9)
    rankings.sync(other.state)

    assert ([name for name, _ in on_other], order(rankings), rankings.views) == (["m"], [], {})


def test_a_reader_too_far_behind_reads_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of changed nodes is bounded on both sides: the state's and our own."""
    monkeypatch.setattr("bus.ledger.state.TOUCHED_LIMIT", 4)
    monkeypatch.setattr("scheduler.core.changes.LOG_LIMIT", 6)
    drawn, rankings = ten_nodes()
    order(rankings)
    for index in range(20):
        drawn.hold(request(f"r{index}").share(100), f"n{index % 3}", 0)
        if index == 10:
            rankings.sync(drawn.state)
    rankings.sync(drawn.state)

    assert order(rankings) == afresh(drawn.state)


def test_rankings_are_bounded_and_the_least_recently_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who never asks twice for the same cannot fill the memory."""
    monkeypatch.setattr(ranking, "MAX_RANKINGS", 3)
    drawn, rankings = ten_nodes()
    for share in (1, 2, 1, 3, 4):
        order(rankings, shape_of(request("r").share(share).build()))

    assert [shape.share_milli for _, shape in rankings._rankings] == [1, 3, 4]
    assert order(rankings, shape_of(request("r").share(2).build())) == afresh(
        drawn.state, shape_of(request("r").share(2).build())
    )


def test_a_trial_view_is_seen_and_forgotten() -> None:
    """What `put` shows is ranked until the state's own view is put back."""
    _drawn, rankings = ten_nodes()
    before = order(rankings)
    own = rankings.views["n7"]
    rankings.put(NodeView(name="n7", tie=own.tie))
    during = order(rankings)
    rankings.put(own)

    assert len(during) == 9
    assert order(rankings) == before


def test_deciding_changes_nothing() -> None:
    """The same question twice gives the same answer, and the state is as it was."""
    drawn, rankings = ten_nodes()
    asked = drawn.accept(request("a").share(500))
    nodes: dict[str, NodeState] = dict(drawn.state.nodes)
    decisions = [decide(drawn.state, asked, PACKING, rankings) for _ in range(2)]

    assert decisions[0] == decisions[1] == decide(drawn.state, asked, PACKING)
    assert (drawn.state.nodes, list(drawn.state.pending)) == (nodes, [asked.uid])
    assert isinstance(decisions[0], Placed)
    assert place(asked.uid, HALF, PACKING, rankings) == decisions[0]
