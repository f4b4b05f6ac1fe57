"""What goes wrong with queues in this field, and what ours does: each test is named by what it shows.

Most end with the proof of their log, every decision decided again, and a restart that finds nothing left to do.
"""

from __future__ import annotations

from contracts.decisions import HealthSet, Nominated, NominationEnded
from tests.builders.ledger import Request, node, request
from tests.builders.scene import Scene


def high(name: str) -> Request:
    """A whole card for somebody who waits for it."""
    return request(name).fields(priority_class="high").cpu(0)


def low(name: str, share: int = 1000) -> Request:
    """A part of a card for somebody who goes behind."""
    return request(name).share(share).fields(priority_class="low").cpu(0)


def test_a_burst_of_halves_is_laid_out_as_one_by_one_and_in_one_commit() -> None:
    """Claim (S001): sixteen at once are where sixteen one after the other would be, two a card, decided once."""
    names = [f"p{i}" for i in range(16)]
    burst = Scene(node("n1").gpus(8))
    before = len(burst.log.commits)
    burst.submit(*(request(name).share(500).cpu(0) for name in names))
    assert len(burst.log.commits) == before + 1
    burst.judge()
    single = Scene(node("n1").gpus(8))
    for name in names:
        single.submit(request(name).share(500).cpu(0))
    single.judge()

    cards = [[scene[name].placement for name in names] for scene in (burst, single)]
    assert cards[0] == cards[1]
    assert [card.used_milli for card in burst.log.state.cards()] == [1000] * 8


def test_three_halves_wait_for_one_card_and_bind_when_there_is_room() -> None:
    """Claim (S005): 0.3 of a card is free and three halves wait; nothing is made for them, one event wakes them."""
    scene = Scene(node("n1").gpus(1)).submit(request("held").share(700))
    scene.submit(*(request(f"p{i}").share(500) for i in range(3)))
    before = len(scene.log.commits)
    for _ in range(5):
        scene.turn()
    assert scene.where("p0", "p1", "p2") == ["-"] * 3
    assert len(scene.log.commits) == before
    assert scene.codes("p2") == ["card-share"]

    scene.seen("held", "ended").judge()
    assert scene.where("p0", "p1", "p2") == ["n1", "n1", "-"]


def test_what_a_leaving_pod_holds_is_soon_and_not_idle() -> None:
    """Claim (S017): who waits is nominated behind a pod that ends, and is placed when it has ended, not before."""
    scene = Scene(node("n1").gpus(1)).submit(request("old")).submit(request("next").share(400))
    scene.withdraw("old")
    assert (scene.where("next"), scene.kept("next")) == (["-"], "n1")
    assert scene.codes("next") == ["nominated"]

    scene.seen("old", "gone").judge()
    assert scene.where("next") == ["n1"]
    assert scene["next"].rationale is not None
    assert scene["next"].rationale.nominated > 0


def test_a_failed_search_leaves_nothing_held() -> None:
    """Claim (S024): a gang that finds two of three places holds none of them: a later request gets the first."""
    scene = Scene(node("n1").gpus(2).cpu(4000))
    scene.submit(*(request(f"g{i}").gang("g", 3) for i in range(3))).submit(request("single"))
    assert scene.where("g0", "g1", "g2", "single") == ["-", "-", "-", "n1"]
    assert not scene.log.state.nominated
    scene.judge()


def test_a_gang_that_lost_a_member_gets_the_slot_before_a_fresh_request() -> None:
    """Claim (S080): both are equally important; the gang holds seven cards and goes first nevertheless."""
    scene = Scene(*(node(f"n{i}").gpus(1) for i in range(8)))
    scene.submit(*(request(f"g{i}").gang("g", 8) for i in range(8)))
    scene.submit(request("fresh"), space="other")
    lost = scene["g3"].placement
    assert lost is not None
    scene.fold(HealthSet(node=lost.node, health="suspect", reason="no heartbeat"))
    scene.seen("g3", "gone").submit(request("g3").gang("g", 8))
    assert scene.where("g3") == ["-"]

    scene.fold(HealthSet(node=lost.node, health="fresh")).judge()
    assert scene.where("g3") == [lost.node]
    assert scene["fresh", "other"].placement is None


def test_the_freed_share_of_the_first_victim_is_held_for_who_asked() -> None:
    """Claim (S081): A ends minutes before B; neither A, queued again, nor a newcomer gets A's half."""
    scene = Scene(node("n1").gpus(1)).submit(low("a", 500)).submit(low("b", 500)).submit(high("h"))
    assert (scene.kept("h"), scene.leaving()) == ("n1", ["a", "b"])

    scene.seen("a", "gone").submit(low("newcomer", 500)).wait(120)
    assert scene.where("a", "newcomer", "h") == ["-", "-", "-"]
    assert scene["a"].attempt == 1

    scene.seen("b", "gone").judge()
    assert scene.where("a", "b", "newcomer", "h") == ["-", "-", "-", "n1"]


def test_a_gang_at_its_minimum_leaves_as_a_whole() -> None:
    """Claim (S082, S089): two of two members are needed, so one cannot leave alone; two are counted, not four."""
    scene = Scene(node("n1").gpus(2))
    scene.submit(*(low(f"g{i}").gang("g", 2) for i in range(2))).submit(high("h"))
    assert scene.leaving() == ["g0", "g1"]
    assert scene.log.state.evicted == 2

    scene.seen("g0", "gone").seen("g1", "gone").judge()
    assert scene.where("h", "g0", "g1") == ["n1", "-", "-"]


def test_no_second_set_of_victims_while_the_first_is_ending() -> None:
    """Claim (S084): a victim takes five minutes of its grace; nobody else is asked meanwhile."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1))
    slow = low("slow").build()
    scene.submit(slow, low("other")).submit(high("h"))
    first = scene.victims()
    for _ in range(5):
        scene.wait(60)
    assert scene.victims() == first
    assert len(first) == 1
    scene.judge()


def test_a_victim_that_never_stops_is_no_longer_waited_for() -> None:
    """Claim (S085): after its grace and five minutes more, another one is asked, and its share is still counted."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(low("a"), low("b")).submit(high("h"))
    (stuck,) = scene.victims()
    scene.wait(400)
    assert sorted(scene.victims()) == ["a", "b"]
    assert [record.reason for record in scene.records(NominationEnded)] != []
    assert scene[stuck].placement is not None

    (other,) = {"a", "b"} - {stuck}
    scene.seen(other, "gone").judge()
    assert scene.where("h", stuck) == [scene[stuck].last_node or scene.where("h")[0], scene.where(stuck)[0]]
    assert scene.where("h") != scene.where(stuck)


def test_pods_that_are_not_ours_never_leave() -> None:
    """Claim (S086): a node full of foreign pods has nobody who could be asked; the request waits, nothing is told."""
    full = node("n1").gpus(1).cpu(4000).facts(foreign_cpu_milli=4000)
    scene = Scene(full).submit(high("h").cpu(1000)).judge()
    assert scene.records(Nominated) == []
    assert scene.codes("h") == ["node-cpu"]


def test_a_gang_some_of_whose_members_succeeded_is_neither_broken_nor_evicted() -> None:
    """Claim (S088): two of three have ended; the third stays, and a late member may still join."""
    scene = Scene(node("n1").gpus(3)).submit(*(request(f"g{i}").gang("g", 3) for i in range(3)))
    scene.seen("g0", "ended", exit_code=0).seen("g1", "ended", exit_code=0)
    assert scene.leaving() == []
    scene.submit(request("late").gang("g", 3)).judge()
    assert scene.where("g2", "late") == ["n1", "n1"]


def test_a_quota_of_nothing_blocks_everything() -> None:
    """Claim (S090): 0 is not "no limit", not even for a request without a card."""
    scene = Scene(node("n1").gpus(1)).quota(share_milli=0)
    scene.submit(request("card"), request("none").cards(0)).judge()
    assert scene.where("card", "none") == ["-", "-"]
    assert scene.codes("card")[0] == "quota"


def test_a_mapping_removed_by_mistake_stops_the_namespace_with_a_message() -> None:
    """Claim (S092): fail closed; what is held stays and is shown, and the mapping put back lets the next one in."""
    scene = Scene(node("n1").gpus(2)).quota(share_milli=2000).submit(request("a"))
    scene.quota(removed=True).submit(request("b"))
    assert scene.where("a", "b") == ["n1", "-"]
    assert scene.codes("b")[0] == "quota"
    assert "no quota while quotas are on" in scene.engine.reasons(scene["b"])[0].text
    assert scene.log.state.usage["ns"].share_milli == 1000

    scene.quota(share_milli=2000).judge()
    assert scene.where("b") == ["n1"]


def test_who_had_to_leave_keeps_no_quota_and_does_not_cycle() -> None:
    """Claim (S093): the victim waits; its namespace may use what it held, and nothing happens without an event."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1, model="B"))
    scene.quota(share_milli=1000).quota(space="boss")
    scene.submit(low("victim").models("A100")).submit(high("h").models("A100"), space="boss")
    scene.seen("victim", "gone")
    assert scene["victim"].phase == "pending"
    assert "ns" not in scene.log.state.usage

    scene.submit(request("b").models("B")).judge()
    assert scene.where("victim", "b") == ["-", "n2"]
    before = len(scene.log.commits)
    scene.turn().turn()
    assert len(scene.log.commits) == before


def test_anti_affinity_with_victims_counts_them_as_gone_for_the_plan_and_as_there_for_the_decision() -> None:
    """Claim (S094): the tag of a victim keeps the request away until the victim is gone, not from planning on it."""
    scene = Scene(node("n1").gpus(1)).submit(low("v", 600).anti_affinity("x"), low("w", 100))
    scene.submit(high("h").share(500).anti_affinity("x"))
    assert (scene.kept("h"), scene.leaving(), scene.where("h")) == ("n1", ["v"], ["-"])
    scene.seen("v", "gone").judge()
    assert scene.where("h", "w") == ["n1", "n1"]


def test_an_elastic_gang_shrinks_pod_by_pod_and_its_leader_stays() -> None:
    """Claim (S096): three members of which one is needed; the last accepted leaves first, the first never alone."""
    scene = Scene(*(node(f"n{i}").gpus(1) for i in range(3)))
    scene.submit(*(low(f"g{i}").gang("g", 3, min=1) for i in range(3)))
    scene.submit(high("h0")).submit(high("h1"))
    assert scene.victims() == ["g2", "g1"]

    scene.submit(high("h2")).judge()
    assert scene.victims() == ["g2", "g1", "g0"]


def test_victims_are_found_whoever_else_is_there() -> None:
    """Claim (S097): another namespace's important pods come first on every node; the unimportant ones are found."""
    scene = Scene(node("n1").gpus(2), node("n2").gpus(2))
    scene.submit(*(high(f"kept{i}") for i in range(3)), space="under-served").submit(low("v"))
    scene.submit(high("h")).judge()
    assert scene.victims() == ["v"]


def test_nobody_leaves_without_a_proven_new_home_for_who_asked() -> None:
    """Claim (S100): evicting everybody would not make a card of another model: nobody is asked."""
    scene = Scene(node("n1").gpus(2)).submit(low("a"), low("b")).submit(high("h").models("H100")).judge()
    assert scene.leaving() == []
    assert scene.records(Nominated) == []


def test_an_empty_node_and_a_victims_node_are_one_plan_for_a_gang() -> None:
    """Claim (S182): two whole cards are wanted; one is free, the other is freed, and only because both then fit."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(low("v"))
    scene.submit(*(high(f"g{i}").gang("g", 2) for i in range(2)))
    assert (scene.leaving(), sorted((scene.kept("g0"), scene.kept("g1")))) == (["v"], ["n1", "n2"])
    scene.seen("v", "gone").judge()
    assert sorted(scene.where("g0", "g1")) == ["n1", "n2"]

    lone = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(low("v"))
    lone.submit(*(high(f"g{i}").gang("g", 3) for i in range(3))).judge()
    assert (lone.leaving(), lone.records(Nominated)) == ([], [])


def test_a_gang_of_another_namespace_is_another_gang() -> None:
    """Claim (S162): a name alone lets nobody join, complete or break the gang of somebody else."""
    scene = Scene(node("n1").gpus(4)).submit(request("a").gang("g", 2)).submit(request("a").gang("g", 2), space="x")
    assert scene.codes("a") == ["gang"]
    scene.submit(request("b").gang("g", 2)).judge()
    assert scene.where("a", "b") == ["n1", "n1"]
    assert scene["a", "x"].placement is None
