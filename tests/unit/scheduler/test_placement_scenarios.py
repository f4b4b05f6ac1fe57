"""Scenarios of GPU sharing, drawn as small clusters: what goes where, and what stays pending with which numbers."""

from __future__ import annotations

import pytest

from scheduler.core.decide import Placed, Unplaced, decide
from scheduler.core.policies import POLICIES, UnknownPolicy
from scheduler.core.ranking import Rankings
from scheduler.core.request import memory_on, shape_of
from tests.builders.ledger import Cluster, Request, cluster, node, request


def put(drawn: Cluster, asked: Request, policy: str = "packing", rankings: Rankings | None = None) -> Placed | Unplaced:
    """Accept, decide, fold."""
    state = drawn.accept(asked)
    decision = decide(drawn.state, state, POLICIES[policy], rankings)
    if isinstance(decision, Placed):
        drawn.fold(decision.record())
    return decision


def burst(drawn: Cluster, count: int, asked: Request, policy: str = "packing") -> list[Placed | Unplaced]:
    """The same request `count` times."""
    rankings = Rankings()
    name = asked.name
    decisions = []
    for index in range(count):
        asked.name = f"{name}{index}"
        decisions.append(put(drawn, asked, policy, rankings))
    return decisions


def unplaced(decision: Placed | Unplaced) -> Unplaced:
    """It must not have been placed."""
    assert isinstance(decision, Unplaced)
    return decision


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("memory_mib", [81_920, 46_067])
def test_sixteen_halves_on_eight_cards_are_exactly_two_each(policy: str, memory_mib: int) -> None:
    """S001: also when the sellable memory is odd: two halves of 46,067 MiB get 23,033 MiB each."""
    drawn = cluster(node("n1").gpus(8, memory_mib=memory_mib))
    decisions = burst(drawn, 16, request("half").share(500), policy)

    assert all(isinstance(decision, Placed) for decision in decisions)
    assert drawn.used("n1") == [1000] * 8
    assert {c.used_mib for c in drawn.state.nodes["n1"].cards.values()} == {memory_mib // 2 * 2}


def test_the_24th_pod_of_2000_mib_is_told_that_68_are_left() -> None:
    """S002: 23 fit a card of 46,068 MiB."""
    drawn = cluster(node("n1").gpus(1, memory_mib=46_068))
    decisions = burst(drawn, 24, request("pod").share(10).gpu_memory(2000))
    reason = unplaced(decisions[-1]).reasons[0]

    assert sum(isinstance(decision, Placed) for decision in decisions) == 23
    assert (
        reason.code,
        reason.needed,
        reason.free,
        reason.unit,
        reason.card,
    ) == ("card-memory", 2000, 68, "MiB", "n1-gpu0")
    assert "needs 2000 MiB, 68 MiB free" in reason.text


@pytest.mark.parametrize("policy", POLICIES)
def test_eight_halves_with_memory_are_at_most_two_a_card(policy: str) -> None:
    """S004: 50 % of compute and 4,544 MiB each."""
    drawn = cluster(node("n1").gpus(8, memory_mib=24_576))
    burst(drawn, 8, request("pod").share(500).gpu_memory(4544), policy)

    assert max(drawn.used("n1")) <= 1000
    assert sum(drawn.used("n1")) == 4000


def test_three_halves_wait_for_a_card_with_300_free_and_go_in_when_space_appears() -> None:
    """S005: all three are pending with the numbers; nothing is written for them meanwhile."""
    drawn = cluster(node("n1").gpus(1))
    holder = drawn.hold(request("holder").share(700), "n1", 0)
    decisions = burst(drawn, 3, request("half").share(500))
    told = [(d.code, d.needed, d.free) for decision in decisions for d in unplaced(decision).reasons]
    drawn.release(holder.uid)
    after = [decide(drawn.state, waiting) for waiting in list(drawn.state.pending.values())]

    assert told == [("card-share", 500, 300)] * 3
    assert all(isinstance(decision, Placed) for decision in after)


@pytest.mark.parametrize(
    ("asked", "code", "needed", "free"),
    [
        (request("r").share(100).cpu(4001), "node-cpu", 4001, 4000),
        (request("r").share(100).memory(8193), "node-memory", 8193, 8192),
    ],
)
def test_a_node_whose_card_fits_and_whose_cpu_or_memory_does_not_is_rejected(
    asked: Request, code: str, needed: int, free: int
) -> None:
    """S016: before the pod could fail at the kubelet."""
    drawn = cluster(node("n1").gpus(8).cpu(4000).memory(8192))
    reason = unplaced(put(drawn, asked)).reasons[0]

    assert (code, needed, free) == (reason.code, reason.needed, reason.free)


@pytest.mark.parametrize("policy", POLICIES)
def test_eighty_pods_of_180_on_sixteen_cards_are_five_each(policy: str) -> None:
    """S026: integers do not drift."""
    drawn = cluster(node("n1").gpus(8), node("n2").gpus(8))
    decisions = burst(drawn, 80, request("pod").share(180), policy)

    assert all(isinstance(decision, Placed) for decision in decisions)
    assert drawn.used("n1") + drawn.used("n2") == [900] * 16


@pytest.mark.parametrize("shares", [[250] * 4, [100] * 10, [300, 300, 400], [333, 333, 334], [1] * 1000])
def test_shares_that_add_up_to_a_card_fit_it_and_one_more_thousandth_does_not(shares: list[int]) -> None:
    """S028: with an odd number of MiB, whose parts are rounded down."""
    drawn = cluster(node("n1").gpus(1, memory_mib=46_067).pods(2000).cpu(1_000_000))
    rankings = Rankings()
    decisions = [
        put(drawn, request(f"p{index}").share(share), "packing", rankings) for index, share in enumerate(shares)
    ]
    reason = unplaced(put(drawn, request("more").share(1), "packing", rankings)).reasons[0]

    assert all(isinstance(decision, Placed) for decision in decisions)
    assert (reason.code, reason.needed, reason.free) == ("card-share", 1, 0)


@pytest.mark.parametrize(("capacity", "charged"), [(16_384, 1638), (24_576, 2457), (81_920, 8192)])
def test_memory_that_follows_the_share_is_charged_per_actual_card(capacity: int, charged: int) -> None:
    """S029: a tenth of each card; MiB that are named are the same on all."""
    assert memory_on(capacity, shape_of(request("r").share(100).build())) == charged
    assert memory_on(capacity, shape_of(request("r").share(100).gpu_memory(8000).build())) == 8000


def test_memory_is_rounded_against_the_requester_and_never_to_zero() -> None:
    """S030: a thousandth of 500 MiB is 1 MiB, of 1,999 MiB also 1."""
    thousandth = shape_of(request("r").share(1).build())

    assert [memory_on(capacity, thousandth) for capacity in (500, 1999, 2000)] == [1, 1, 2]


def test_two_halves_leave_to_the_driver_what_the_driver_keeps() -> None:
    """S033: a T4 of 16,384 MiB with 450 reserved is sold as 15,934."""
    drawn = cluster(node("n1").gpus(1, memory_mib=16_384, memory_reserved_mib=450))
    burst(drawn, 2, request("half").share(500))

    assert drawn.state.nodes["n1"].cards["n1-gpu0"].used_mib == 15_934


def test_nine_slices_of_3000_mib_are_told_as_memory_each_and_nine_cards_as_cards() -> None:
    """S037: the number of cards, the slices and the memory of each are different numbers in different words."""
    drawn = cluster(node("n1").gpus(1, memory_mib=24_576))
    slices = burst(drawn, 9, request("slice").share(100).gpu_memory(3000))
    cards = put(drawn, request("cards").cards(9).share(100).gpu_memory(3000))

    assert "needs 3000 MiB, 576 MiB free of 24576" in unplaced(slices[8]).reasons[0].text
    assert "needs 9 cards, it has 1" in unplaced(cards).reasons[0].text


def test_two_cards_with_4069_free_do_not_hold_8138() -> None:
    """S098: the sum over the node would; no card does, and no reason mentions the sum."""
    drawn = cluster(node("n1").gpus(2, memory_mib=4069))
    reason = unplaced(put(drawn, request("r").share(100).gpu_memory(8138))).reasons[0]

    assert (reason.code, reason.needed, reason.free, reason.nodes) == ("card-memory", 8138, 4069, 1)
    assert "8138 MiB free" not in reason.text


def test_spreading_uses_all_cards_of_a_node_evenly() -> None:
    """S101: eight small pods, eight cards; not card 0 first."""
    drawn = cluster(node("n1").gpus(8))
    burst(drawn, 8, request("pod").share(200), "spreading")

    assert drawn.used("n1") == [200] * 8


@pytest.mark.parametrize("policy", ["packing", "seed-best-fit"])
def test_the_half_used_card_is_chosen_before_the_empty_one(policy: str) -> None:
    """S102: whether it is the first or the last of the node."""
    drawn = cluster(node("n1").gpus(3))
    drawn.hold(request("first").share(500), "n1", 1)
    put(drawn, request("second").share(300), policy)

    assert drawn.used("n1") == [0, 800, 0]


def test_packing_fills_the_tighter_card_and_among_equal_ones_the_fuller_node() -> None:
    """A card with 400 left on an empty node before one with 500 on a full node; of two with 500 the fuller node's."""
    drawn = cluster(node("full").gpus(2), node("tight").gpus(2))
    drawn.hold(request("a").share(1000), "full", 0)
    drawn.hold(request("b").share(500), "full", 1)
    drawn.hold(request("c").share(600), "tight", 0)
    put(drawn, request("first").share(300))
    put(drawn, request("second").share(400))

    assert (drawn.used("full"), drawn.used("tight")) == ([1000, 900], [900, 0])


def test_reasons_follow_what_changes() -> None:
    """The same question after a placement and after a release, with rankings that were kept."""
    drawn = cluster(node("n1").gpus(1))
    rankings = Rankings()
    waiting = drawn.accept(request("r"))
    free = []
    holders = []
    for share in (100, 200):
        holders.append(drawn.hold(request(f"h{share}").share(share), "n1", 0))
        free.append(unplaced(decide(drawn.state, waiting, rankings=rankings)).reasons[0].free)
    drawn.release(holders[0].uid)
    free.append(unplaced(decide(drawn.state, waiting, rankings=rankings)).reasons[0].free)

    assert free == [900, 700, 800]


def test_a_model_that_some_nodes_have_is_never_absent_from_the_cluster() -> None:
    """S104: the reason that came closest is about the nodes that have it, and how many lack it stands beside."""
    drawn = cluster(node(f"a{i}").gpus(1, model="T4") for i in range(5)).add(node("b").gpus(1, model="H100"))
    drawn.hold(request("holder").share(600), "b", 0)
    reasons = unplaced(put(drawn, request("r").share(500).models("H100"))).reasons

    assert [(r.code, r.nodes, r.needed, r.free) for r in reasons] == [
        ("card-share", 1, 500, 400),
        ("card-model", 5, None, None),
    ]


def test_replicas_with_an_anti_affinity_tag_keep_off_the_same_card() -> None:
    """S105: two replicas, two cards, although one card had room for both; a third waits."""
    drawn = cluster(node("n1").gpus(2))
    decisions = burst(drawn, 3, request("replica").share(100).anti_affinity("service"))
    reason = unplaced(decisions[2]).reasons[0]

    assert drawn.used("n1") == [100, 100]
    assert reason.code == "card-anti-affinity"


def test_a_pool_without_nodes_says_so() -> None:
    """No node is a reason like any other."""
    assert [r.code for r in unplaced(put(cluster(), request("r"))).reasons] == ["no-nodes"]


def test_a_request_without_cards_needs_no_card() -> None:
    """It is placed on a node that has none, with no slices."""
    decision = put(cluster(node("n1")), request("cpu").cards(0).cpu(1000))

    assert isinstance(decision, Placed)
    assert (decision.placement.node, decision.placement.slices) == ("n1", ())
    assert (decision.placement.cpu_milli, decision.placement.memory_mib) == (1000, 64)


def test_several_cards_are_distinct_and_in_the_order_of_the_node() -> None:
    """Four of eight, the tightest ones, listed by index."""
    drawn = cluster(node("n1").gpus(8))
    drawn.hold(request("holder").share(500), "n1", 6)
    decision = put(drawn, request("r").cards(4).share(500))

    assert isinstance(decision, Placed)
    assert [piece.card for piece in decision.placement.slices] == ["n1-gpu0", "n1-gpu1", "n1-gpu2", "n1-gpu6"]


def test_a_request_may_name_its_policy() -> None:
    """It stands above the default, and stands in the rationale; an unknown one is an error that names all."""
    drawn = cluster(node("n1").gpus(2))
    drawn.hold(request("holder").share(500), "n1", 0)
    decision = put(drawn, request("r").share(500).policy("spreading"))

    assert isinstance(decision, Placed)
    assert decision.rationale.policy == "spreading"
    assert drawn.used("n1") == [500, 500]
    with pytest.raises(UnknownPolicy, match="there are menu-value, menu-value-arrivals, packing"):
        put(drawn, request("s").policy("nonsense"))


def test_the_rationale_counts_nodes_and_names_the_runner_up() -> None:
    """Three feasible of four; the fuller node is chosen, the next one is the runner-up."""
    drawn = cluster(node("n1").gpus(1), node("n2").gpus(1), node("n3").gpus(1), node("n4").gpus(1).stale())
    drawn.hold(request("x").share(500), "n2", 0)
    drawn.hold(request("y").share(300), "n3", 0)
    decision = put(drawn, request("r").share(400))

    assert isinstance(decision, Placed)
    rationale = decision.rationale
    assert (rationale.chosen.node, rationale.feasible_nodes, rationale.rejected_nodes) == ("n2", 3, 1)
    assert rationale.runner_up is not None
    assert rationale.runner_up.node == "n3"
    assert rationale.chosen.score > rationale.runner_up.score
