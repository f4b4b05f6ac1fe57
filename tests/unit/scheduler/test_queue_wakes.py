"""Nobody waits for what is there, nobody is told a reason that is none, and no turn goes on for ever.

Each of these was found by a random driver as a difference between a scheduler that had been running and one that began
on the same state, as a refused commit, or as a pending request without a reason.
"""

from __future__ import annotations

from contracts.constraints import PodAffinity, PodSelector, PodTerm
from contracts.decisions import FactsSet, HealthSet, InventorySet, Nominated, NominationEnded, Record
from contracts.requests import GangRef
from contracts.units import NodeName
from tests.builders.ledger import Request, node, request
from tests.builders.scene import Scene

HOST = "kubernetes.io/hostname"


def low(name: str) -> Request:
    """A whole card for somebody who goes behind."""
    return request(name).fields(priority_class="low").cpu(0)


def high(name: str) -> Request:
    """A whole card for somebody who waits for it."""
    return request(name).fields(priority_class="high").cpu(0)


def pinned(name: str, to: str) -> Request:
    """A tenth of a card on one node."""
    return request(name).share(100).gpu_memory(1).cpu(0).select(on=to)


def told(scene: Scene, *records: Record) -> Scene:
    """Facts about nodes, as a running scheduler hears them."""
    for record in records:
        match record:
            case InventorySet():
                scene.engine.inventory(record.inventory)
            case FactsSet():
                scene.engine.facts(record.facts)
            case HealthSet():
                scene.engine.health(record)
    return scene.turn()


def member(name: str, size: int, at_least: int | None = None) -> Request:
    """An important member of gang g."""
    return high(name).fields(gang=GangRef(name="g", size=size, min=at_least))


def test_a_late_member_joins_when_the_others_have_their_places_and_before_lower_ones() -> None:
    """Claim: a gang in sight of its place is tried again when it has it; a lower request never gets the room first."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(low("a"), low("b"))
    scene.submit(member("g0", 2, 1)).submit(member("g1", 2, 1))
    (first,) = scene.leaving()
    other = "b" if first == "a" else "a"
    assert scene.codes("g1")[0] == "gang"  # the other one has a place in sight

    scene.withdraw(other).seen(first, "gone")
    assert scene["g0"].placement is not None
    scene.seen(other, "gone").judge()
    assert "-" not in scene.where("g0", "g1")
    assert scene.where(first) == ["-"]


def test_a_gang_whose_places_are_to_be_had_elsewhere_waits_no_longer() -> None:
    """Claim: both members are nominated behind victims; a node with room comes, and they take it instead."""
    scene = Scene(node("n1").gpus(2)).submit(low("a"), low("b"))
    scene.submit(member("g0", 2), member("g1", 2))
    assert (scene.kept("g0"), scene.leaving()) == ("n1", ["a", "b"])

    told(scene, *node("n2").gpus(2).records()).judge()
    assert scene.where("g0", "g1") == ["n2", "n2"]
    assert {r.reason for r in scene.records(NominationEnded)} == {"it fits without waiting"}


def test_a_gang_that_loses_a_member_gives_its_places_up() -> None:
    """Claim: of two nominated members one is withdrawn; the other is not placed alone, which no commit may do."""
    scene = Scene(node("n1").gpus(2)).submit(low("a"), low("b"))
    scene.submit(member("g0", 2), member("g1", 2)).withdraw("g0")
    assert scene.kept("g1") == ""
    assert scene.codes("g1")[0] == "gang"

    scene.seen("a", "gone").seen("b", "gone").judge()
    assert scene.where("a", "b", "g1") == ["n1", "n1", "-"]


def test_members_who_must_leave_are_told_of_and_not_counted() -> None:
    """Claim: the gang has two members that are being evicted and one that waits: it is told that two are missing."""
    gang = GangRef(name="h", size=2, min=1)
    scene = Scene(node("n1").gpus(2))
    scene.submit(*(low(f"h{i}").fields(gang=gang) for i in range(2))).submit(high("x").cards(2))
    assert scene.leaving() == ["h0", "h1"]
    scene.submit(request("h2").cards(0).cpu(0).fields(gang=GangRef(name="h", size=2)))
    (reason,) = scene.engine.reasons(scene.engine.state.requests[scene["h2"].uid])
    assert (reason.code, reason.needed, reason.free) == ("gang", 2, 1)
    assert "2 have to leave" in reason.text
    scene.judge()


def test_a_place_that_drains_is_kept_while_somebody_leaves_whom_a_rule_is_against() -> None:
    """Claim: the place is free by its numbers and a leaving tenant's tag is against it: no end and no new beginning."""
    scene = Scene(node("n1").gpus(2))
    scene.submit(request("long").share(600).cpu(0).fields(expected_s=3600), request("old").share(500).cpu(0))
    scene.seen("long", "running").withdraw("old")
    scene.submit(request("first").cards(2).share(500).cpu(0).exclusion("z"))
    assert [record.why for record in scene.records(Nominated)] == ["drains"]

    scene.seen("long", "ended")
    assert scene.kept("first") == "n1"
    assert not scene.records(NominationEnded)
    scene.seen("old", "gone").judge()
    assert scene.where("first") == ["n1"]


def test_members_that_must_stand_together_are_not_nominated_apart() -> None:
    """Claim: a gang of one node finds half of its room on each of two nodes, and asks nobody for that."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(low("a"), low("b"))
    gang = GangRef(name="g", size=2, within="node")
    scene.submit(high("g0").fields(gang=gang), high("g1").fields(gang=gang))
    assert not scene.leaving()
    scene.seen("a", "gone").seen("b", "gone").judge()
    assert scene.where("g0", "g1") == ["-", "-"]


def test_a_gang_that_looks_at_neighbours_is_woken_by_a_placement() -> None:
    """Claim: it must stand beside a pod with a label; the pod comes, without any other event."""
    beside = PodAffinity(required=(PodTerm(topology_key=HOST, selector=PodSelector(match_labels={"app": "db"})),))
    scene = Scene(node("n1").gpus(2), node("n2").gpus(2))
    gang = GangRef(name="g", size=1)
    scene.submit(request("g0").share(100).fields(gang=gang, pod_affinity=beside))
    assert scene.where("g0") == ["-"]
    scene.submit(request("db").share(100).labels(app="db")).judge()
    assert scene.where("g0") == scene.where("db")


def test_a_gang_held_by_the_card_it_would_get_is_tried_again_on_any_change() -> None:
    """Claim: half of the large card is beyond the quota; when somebody takes that one, half of the small one is not."""
    scene = Scene(node("n1").gpus(1, memory_mib=80_000).labels(on="n1"), node("n2").gpus(1, memory_mib=40_000))
    scene.quota(memory_mib=21_000).quota("other").submit(pinned("pad", "n1"), space="other")
    scene.submit(request("g0").share(500).cpu(0).gang("g", 1))
    assert (scene.where("g0"), scene.codes("g0")) == (["-"], ["quota"])

    scene.submit(pinned("more", "n1").share(900), space="other").judge()
    assert scene.where("g0") == ["n2"]


def test_a_place_that_could_not_be_kept_is_asked_for_again_when_time_has_passed() -> None:
    """Claim: the card that is free first keeps a tenant whom a rule is against; later the other one is as free."""
    scene = Scene(node("n1").gpus(2))
    for name, share, expected_s in (("a1", 700, 400), ("b1", 600, 3600), ("a2", 200, None)):
        scene.submit(request(name).share(share).gpu_memory(1).cpu(0).fields(expected_s=expected_s))
        scene.seen(name, "running")
    scene.submit(request("first").share(500).gpu_memory(1).cpu(0).exclusion("z"))
    assert scene.wait(350).kept("first") == ""
    scene.wait(4000).judge()
    (kept,) = scene.records(Nominated)
    assert [piece.card for piece in kept.placement.slices] == [p.card for p in scene["b1"].placement.slices]


def test_a_place_is_asked_for_again_when_those_who_hold_it_have_begun() -> None:
    """Claim: who is placed in the same commit has no end yet; once it has, its card is the one to wait for.

    The other one would have to end first then, and leaves a card whose tenant a rule is against.
    """
    scene = Scene(node("n1").gpus(1).cpu(8000).stale())
    scene.submit(request("small").cards(0).cpu(500)).submit(request("first").share(10).gpu_memory(1).cpu(4000))
    tagged = request("tagged").share(10).gpu_memory(1).cpu(4000).exclusion("z")
    scene.submit(tagged.fields(priority_class="critical", expected_s=600)).wait(400)
    scene.fold(HealthSet(node=NodeName("n1"), health="fresh")).judge()

    assert (scene.where("small", "tagged", "first"), scene.kept("first")) == (["n1", "n1", "-"], "n1")


def test_members_of_a_begun_gang_join_one_by_one_whoever_fits() -> None:
    """Claim: a member that was accepted earlier and fits nowhere holds up no other; one that fits only now joins."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1))
    gang = GangRef(name="g", size=5, min=1)
    scene.submit(*(request(f"g{i}").share(share).cpu(0).fields(gang=gang) for i, share in enumerate((300, 1000, 900))))
    scene.submit(request("g3").cards(2).cpu(0).fields(gang=gang), request("g4").share(100).cpu(0).fields(gang=gang))
    assert "-" not in scene.where("g0", "g1", "g4")
    scene.judge()
