"""Nodes that go, cards that are cut anew, cards that are full: what becomes of what was sold there. Rows by number."""

from __future__ import annotations

import pytest

from bus.ledger.rules import InvariantBroken
from contracts.decisions import FactsSet, HealthSet, InventorySet, Reserved
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.units import CardUuid, NodeName
from scheduler import events
from tests.builders.ledger import cluster, node, request
from tests.builders.scene import Scene

N1 = NodeName("n1")


def decisions(scene: Scene) -> int:
    return sum(isinstance(record, Reserved) for commit, _ in scene.log.commits for record in commit.records)


# --- S074: a node goes after its tasks were done ----------------------------------------------------------------------


def test_s074_what_ended_on_a_node_that_is_removed_is_not_run_again() -> None:
    """S074: one of a gang is done, its node is taken away, the other runs on: nothing is decided anew, nothing lost."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1))
    scene.submit(*(request(f"g{i}").gang("g", 2) for i in range(2)))
    done, goes_on = sorted(("g0", "g1"), key=lambda name: scene.where(name) != ["n1"])
    scene.seen("g0", "running").seen("g1", "running").seen(done, "ended", exit_code=0)
    before = decisions(scene)
    scene.fold(FactsSet(facts=NodeFacts(node=N1, uid="uid-n1", gone=True)), HealthSet(node=N1, health="suspect"))
    scene.wait(3600).restart()

    assert (scene[done].phase, scene[done].ending) == ("ended", "ended")
    assert (scene[goes_on].phase, scene.where(goes_on)) == ("running", ["n2"])
    assert decisions(scene) == before == 2
    scene.judge()


def test_s074_late_words_of_a_removed_node_change_nothing() -> None:
    """S074: the pod's object is collected with its node, and that is told after the end was: it has ended once."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(request("b"))
    scene.seen("b", "running").seen("b", "ended", exit_code=0)
    totals = scene.log.state.totals.ended
    scene.seen("b", "gone", reason="its pod was deleted").seen("b", "rejected")

    assert (scene.log.state.totals.ended, scene["b"].ending) == (totals, "ended")
    scene.judge()


# --- S109: instances of a card, and a card that is cut anew -----------------------------------------------------------


def instance(name: str, model: str, mib: int) -> Card:
    return Card(
        uuid=CardUuid(name), index=0, model=model, memory_total_mib=mib, isolation="mig", parent=CardUuid("GPU-0"),
        mig_profile=model,
    )  # fmt: skip


SMALL, OTHER = instance("MIG-a", "1g.10gb", 10_000), instance("MIG-b", "1g.10gb", 10_000)
LARGE = instance("MIG-c", "2g.20gb", 20_000)


def cut(*cards: Card) -> InventorySet:
    return InventorySet(inventory=NodeInventory(node=N1, boot_id="boot", incarnation="two", cards=cards))


def test_s109_instances_in_use_stay_and_the_free_ones_may_be_cut_anew() -> None:
    """S109: a profile that is not there is waited for with a reason; when somebody cuts the free one, it is taken."""
    scene = Scene(node("n1").with_cards([SMALL, OTHER])).submit(request("a").models("1g.10gb"))
    (held,) = scene["a"].placement.slices if scene["a"].placement else ()
    free = OTHER if held.card == SMALL.uuid else SMALL
    used = SMALL if free is OTHER else OTHER
    scene.submit(request("b").models("2g.20gb"))
    assert (scene.where("b"), scene.codes("b")) == (["-"], ["card-model"])
    scene.fold(cut(used, LARGE))

    assert (scene.where("a", "b"), scene["a"].placement.slices if scene["a"].placement else ()) == (["n1"] * 2, (held,))
    assert set(scene.log.state.nodes["n1"].cards) == {used.uuid, LARGE.uuid}
    scene.judge()


def test_s109_an_instance_that_was_taken_from_under_its_tenant_is_still_counted() -> None:
    """S109: somebody destroyed an instance in use: it is not offered and not forgotten before its tenant is gone."""
    scene = Scene(node("n1").with_cards([SMALL])).submit(request("a").models("1g.10gb")).seen("a", "running")
    scene.fold(cut(LARGE)).submit(request("b").models("1g.10gb"))
    orphan = scene.log.state.nodes["n1"].cards[SMALL.uuid]
    assert (orphan.present, orphan.used_milli, scene.where("b")) == (False, 1000, ["-"])
    scene.seen("a", "ended")

    assert set(scene.log.state.nodes["n1"].cards) == {LARGE.uuid}
    assert scene.where("b") == ["-"]
    scene.judge()


# --- S121: memory is never sold twice, and a card that is full all the same -------------------------------------------


def test_s121_memory_of_a_card_is_not_sold_beyond_what_it_has() -> None:
    """S121: there is no overselling to be documented: what does not fit waits, and a record of it breaks the fold."""
    scene = Scene(node("n1").gpus(1, memory_mib=10_000))
    scene.submit(request("a").share(100).gpu_memory(9000), request("b").share(100).gpu_memory(1001))
    assert (scene.where("a", "b"), scene.codes("b")) == (["n1", "-"], ["card-memory"])
    world = cluster(node("n1").gpus(1, memory_mib=10_000))
    world.hold(request("a").share(100).gpu_memory(9000), "n1", 0)

    with pytest.raises(InvariantBroken, match="over-committed"):
        world.hold(request("b").share(100).gpu_memory(1001), "n1", 0)


def test_s121_a_card_that_strangers_have_filled_tells_its_tenants() -> None:
    """S121: who was sold memory that is not there keeps the sale, is told so with the numbers, and nobody new comes."""
    scene = Scene(node("n1").gpus(1, memory_mib=10_000)).submit(request("a").share(100).gpu_memory(9000))
    full = Card(
        uuid=CardUuid("n1-gpu0"), index=0, model="A100", memory_total_mib=10_000, memory_unmanaged_mib=4096,
        unmanaged_by="miner (7)",
    )  # fmt: skip
    scene.fold(cut(full)).submit(request("b").share(100).gpu_memory(100))
    told = [e for commit, at in scene.log.commits for _, e in events.of_commit(scene.log.state, commit, at)]

    assert (scene.where("a", "b"), scene.codes("b")) == (["n1", "-"], ["card-memory"])
    assert {(e.name, e.text) for e in told if e.phase == "squeezed"} == {
        ("a", "3096 MiB of what is sold of card n1-gpu0 are held by miner (7)")
    }
    scene.judge()
