"""Gangs: all members or none, decided on a scratch state, the real one untouched."""

from __future__ import annotations

from bus.ledger.snapshot import digest
from bus.ledger.state import RequestState
from scheduler.core.decide import Placed, Unplaced, decide
from scheduler.core.gang import place_gang
from scheduler.core.gang_told import gang_reasons
from scheduler.core.policies import POLICIES
from scheduler.core.ranking import Rankings
from tests.builders.ledger import Cluster, Request, cluster, node, request


def gang(drawn: Cluster, *asked: Request) -> list[RequestState]:
    """All of them accepted as one gang."""
    return [drawn.accept(each.gang("g", len(asked))) for each in asked]


def test_a_gang_that_fits_is_placed_in_one_go_and_can_be_folded() -> None:
    """Five members of a whole card on two nodes of three cards; no card twice."""
    drawn = cluster(node("n1").gpus(3), node("n2").gpus(3))
    members = gang(drawn, *(request(f"m{i}") for i in range(5)))
    placed = place_gang(drawn.state, members)

    assert isinstance(placed, list)
    assert {p.uid for p in placed} == {m.uid for m in members}
    drawn.fold(*(p.record() for p in placed))
    assert drawn.used("n1") + drawn.used("n2") in ([1000] * 5 + [0], [1000, 1000, 0, 1000, 1000, 1000])


def test_a_gang_that_does_not_fit_leaves_no_trace() -> None:
    """Seven members, six cards: state and rankings are as before, and the reasons say how far it came."""
    drawn = cluster(node("n1").gpus(3), node("n2").gpus(3))
    members = gang(drawn, *(request(f"m{i}") for i in range(7)))
    single = drawn.accept(request("single"))
    rankings = Rankings()
    before = (digest(drawn.state), len(drawn.state.touched), decide(drawn.state, single, rankings=rankings))
    refused = place_gang(drawn.state, members, rankings=rankings)

    assert isinstance(refused, Unplaced)
    assert [(r.code, r.needed, r.free) for r in refused.reasons] == [("gang", 7, 6), ("card-share", 1000, 0)]
    assert "6 of 7 members fit together" in refused.reasons[0].text
    assert before == (
        digest(drawn.state),
        len(drawn.state.touched),
        decide(drawn.state, single, rankings=rankings),
    )


def test_the_rankings_see_the_real_nodes_after_a_gang_that_was_placed() -> None:
    """Until its records are folded, the next decision is made as if there were no gang."""
    drawn = cluster(node("n1").gpus(2))
    members = gang(drawn, request("m0"), request("m1"))
    single = drawn.accept(request("single"))
    rankings = Rankings()
    placed = place_gang(drawn.state, members, rankings=rankings)
    unseen = decide(drawn.state, single, rankings=rankings)
    assert isinstance(placed, list)
    drawn.fold(*(p.record() for p in placed))

    assert isinstance(unseen, Placed)
    assert isinstance(decide(drawn.state, single, rankings=rankings), Unplaced)


def test_the_hardest_member_goes_first() -> None:
    """Two halves, spread over two cards, would leave no room for the whole card that came last."""
    drawn = cluster(node("n1").gpus(2))
    members = gang(drawn, request("h1").share(500), request("h2").share(500), request("whole"))
    placed = place_gang(drawn.state, members, POLICIES["spreading"])

    assert isinstance(placed, list)
    assert placed[0].uid == members[2].uid


def test_members_with_anti_affinity_are_kept_apart_within_the_gang() -> None:
    """The trial sees the tags of members that were placed a moment ago."""
    drawn = cluster(node("n1").gpus(3))
    members = gang(drawn, *(request(f"m{i}").share(100).anti_affinity("x") for i in range(3)))
    placed = place_gang(drawn.state, members)

    assert isinstance(placed, list)
    assert len({p.placement.slices[0].card for p in placed}) == 3


def test_a_gang_counts_cpu_and_pod_slots_of_its_own_members() -> None:
    """Two members of 600 milli-cores do not fit 1,000."""
    drawn = cluster(node("n1").gpus(8).cpu(1000))
    refused = place_gang(drawn.state, gang(drawn, request("m0").cpu(600), request("m1").cpu(600)))

    assert isinstance(refused, Unplaced)
    assert (refused.reasons[1].code, refused.reasons[1].needed, refused.reasons[1].free) == ("node-cpu", 600, 400)


def test_a_waiting_member_is_told_who_is_missing() -> None:
    """One of three arrived; it would fit alone, and waits for the others."""
    drawn = cluster(node("n1").gpus(8))
    first = drawn.accept(request("m0").gang("g", 3))
    drawn.accept(request("other").gang("h", 2))

    assert [(r.code, r.needed, r.free) for r in gang_reasons(drawn.state, first)] == [("gang", 3, 1)]
    assert gang_reasons(drawn.state, drawn.accept(request("alone"))) == ()
