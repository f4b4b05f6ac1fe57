"""Places in sight are decided again from the log, like placements; what is found depends on the state alone."""

from __future__ import annotations

import msgspec
import pytest

from contracts.decisions import Commit, HealthSet, Nominated, NominationEnded, Record
from contracts.inventory import Card
from contracts.units import CardUuid, NodeName, RequestUid
from scheduler.core.queue.first import LENT
from scheduler.core.queue.nominate import VERSION
from scheduler.core.replay import Replayed, replay
from tests.builders.ledger import Request, node, request
from tests.builders.scene import Scene


def low(name: str, share: int = 1000) -> Request:
    """A part of a card for somebody who goes behind."""
    return request(name).share(share).fields(priority_class="low").cpu(0)


def high(name: str) -> Request:
    """A whole card for somebody who waits for it."""
    return request(name).fields(priority_class="high").cpu(0)


def preempting() -> Scene:
    """One of two is asked to leave."""
    return Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(low("a"), low("b")).submit(high("h"))


def ending() -> Scene:
    """Somebody leaves anyway."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(request("a"), request("b")).submit(request("c"))
    return scene.withdraw("b")


def draining() -> Scene:
    """The first in the queue has waited for five minutes."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(low("a", 500), low("b", 300)).submit(low("c", 900))
    return scene.submit(request("first")).wait(400)


def draining_until_a_known_time() -> Scene:
    """Everybody has told when they end."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1))
    for name, seconds in (("a", 600), ("b", 300)):
        scene.submit(request(name).fields(expected_s=seconds)).seen(name, "running")
    return scene.wait(1).submit(request("first"))


def lending() -> Scene:
    """A place that is kept until a known time is used until then."""
    scene = Scene(node("n1").gpus(2)).submit(request("a").fields(expected_s=600)).seen("a", "running").wait(1)
    return scene.submit(request("first").cards(2)).submit(request("short").fields(expected_s=60))


def a_gang() -> Scene:
    """Three places at once, two of them behind others."""
    scene = Scene(node("n1").gpus(2), node("n2").gpus(1)).submit(low("a"), low("b"))
    return scene.submit(*(high(f"g{i}").gang("g", 3) for i in range(3)))


def a_gang_that_drains() -> Scene:
    """One member has waited for long enough, and the other one with it."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(request("a"), request("b"))
    return scene.submit(request("g0").gang("g", 2)).wait(400).submit(request("g1").gang("g", 2))


WORLDS = (preempting, ending, draining, draining_until_a_known_time, lending, a_gang, a_gang_that_drains)


def again(scene: Scene, *, with_record: tuple[Nominated, Nominated] | None = None) -> Replayed:
    """The whole log, one record of it forged."""
    commits: list[tuple[Commit, int]] = []
    for commit, (_, at) in ((commit, logged) for commit, logged in zip(_read(scene), scene.log.commits, strict=True)):
        records = tuple(_forged(record, with_record) for record in commit.records)
        commits.append((msgspec.structs.replace(commit, records=records), at))
    return replay(commits)


def _read(scene: Scene) -> list[Commit]:
    return [commit for commit, _ in scene.log.commits]


def _forged(record: Record, pair: tuple[Nominated, Nominated] | None) -> Record:
    return pair[1] if pair is not None and record == pair[0] else record


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
def test_every_kind_of_nomination_comes_out_again(world: object) -> None:
    """Claim: the same log prefix, the same place and the same victims, byte for byte."""
    assert callable(world)
    scene = world()
    logged = scene.records(Nominated)
    found = again(scene.judge())

    assert logged
    assert (found.nominations, found.differences, found.unknown) == (len(logged), (), {})


def test_a_place_that_is_lent_stands_again_as_it_was() -> None:
    """Claim: between its end and its return somebody else is decided; the search would not find it as it is now."""
    scene = lending()
    assert scene.where("short", "first") == ["n1", "-"]
    assert [record.reason.endswith(LENT) for record in scene.records(NominationEnded)] == [True]
    assert len(scene.records(Nominated)) == 2


def test_a_place_that_was_tampered_with_is_found() -> None:
    """Claim: the other victim, on the other node, would do as well, and is not who is chosen."""
    scene = preempting()
    (logged,) = scene.records(Nominated)
    other = NodeName("n1" if logged.placement.node == "n2" else "n2")
    (piece,) = logged.placement.slices
    moved = msgspec.structs.replace(piece, card=CardUuid(f"{other}-gpu0"))
    place = msgspec.structs.replace(logged.placement, node=other, slices=(moved,))
    (victim,) = {r.uid for r in scene.log.state.requests.values() if r.request.name in "ab"} - set(logged.victims)
    forged = msgspec.structs.replace(logged, placement=place, victims=(RequestUid(victim),))

    found = again(scene, with_record=(logged, forged))

    assert [(d.logged, d.again) for d in found.differences] == [(forged, logged)]


def test_nominations_of_another_version_are_counted_and_passed_over() -> None:
    """Claim: who decides by other rules cannot say what those would have chosen; a log of old has version 0."""
    scene = preempting()
    (logged,) = scene.records(Nominated)
    found = again(scene, with_record=(logged, msgspec.structs.replace(logged, version=0)))

    assert logged.version == VERSION
    assert (found.nominations, found.differences, found.unknown) == (0, (), {"nominations version 0": 1})


def test_the_last_of_many_places_is_tried_too() -> None:
    """Claim: ten nodes look right by their numbers and are ruled out by a neighbour's tag; the eleventh is found."""
    nodes = [node(f"n{i:02}").gpus(1).labels(on=f"n{i:02}") for i in range(11)]
    scene = Scene(*nodes)
    for i in range(10):
        tagged = request(f"t{i}").share(100).cpu(0).anti_affinity("x").fields(priority_class="high")
        scene.submit(tagged.select(on=f"n{i:02}"), low(f"v{i}", 900).select(on=f"n{i:02}"))
    scene.submit(*(low(f"w{i}", 250).select(on="n10") for i in range(4)))
    scene.submit(high("h").share(500).anti_affinity("x")).judge()

    assert scene.kept("h") == "n10"


def test_a_member_may_be_asked_once_the_important_one_of_its_gang_is_gone() -> None:
    """Claim: that another one ends, on another node, is news for who found nobody to ask here."""
    scene = Scene(node("n1").gpus(1, model="A"), node("n2").gpus(1, model="B"))
    scene.submit(low("g0").gang("g", 2).models("A"), high("g1").gang("g", 2).models("B"))
    scene.submit(high("h").models("A"))
    assert scene.leaving() == []

    scene.seen("g1", "ended", exit_code=0)
    assert scene.leaving() == ["g0"]
    scene.judge()


def test_a_place_on_a_node_that_died_is_decided_again_elsewhere() -> None:
    """Claim: the nomination that ended and the one that followed both come out again."""
    scene = preempting()
    found = again(scene.fold(HealthSet(node=NodeName(scene.kept("h")), health="suspect", reason="silent")).judge())

    assert (found.nominations, found.differences) == (2, ())


# --- the right card of the right node --------------------------------------------------------------------------------


def test_a_card_of_the_wrong_model_does_not_hide_the_right_one_of_the_same_node() -> None:
    """Claim: one victim would free the T4, two free the A100 that is asked for; those two are asked."""
    cards = (Card(uuid=CardUuid("t4"), index=0, model="T4", memory_total_mib=16_000),)
    cards += (Card(uuid=CardUuid("a100"), index=1, model="A100", memory_total_mib=80_000),)
    scene = Scene(node("n1").with_cards(cards)).submit(low("a").models("T4"))
    scene.submit(low("b", 500).models("A100"), low("c", 500).models("A100")).submit(high("h").models("A100")).judge()

    assert (scene.kept("h"), scene.leaving()) == ("n1", ["b", "c"])


def test_whoever_keeps_it_away_by_a_tag_leaves_and_the_others_stay() -> None:
    """Claim: the small tenant with the same anti-affinity leaves, though a larger one would have made the room."""
    scene = Scene(node("n1").gpus(1)).submit(low("tagged", 300).anti_affinity("x"), low("v", 700))
    scene.submit(high("h").share(300).anti_affinity("x")).judge()
    assert (scene.kept("h"), scene.leaving()) == ("n1", ["tagged"])

    above = Scene(node("n1").gpus(1)).submit(high("tagged").share(300).anti_affinity("x"), low("v", 700))
    above.submit(high("h").share(300).anti_affinity("x")).judge()
    assert (above.kept("h"), above.leaving()) == ("", [])


def test_who_wants_to_be_beside_a_tag_takes_a_card_for_itself_where_there_is_none() -> None:
    """Claim: an empty card is open to it, one with strangers is not: both leave, though one would make the room."""
    scene = Scene(node("n1").gpus(1)).submit(low("a", 500), low("b", 500))
    scene.submit(high("h").share(300).affinity("x")).judge()
    assert (scene.kept("h"), scene.leaving()) == ("n1", ["a", "b"])

    beside = Scene(node("n1").gpus(1)).submit(low("a", 500).affinity("x"), low("b", 300), low("c", 200))
    beside.submit(high("h").share(300).affinity("x")).judge()
    assert (beside.kept("h"), beside.leaving()) == ("n1", ["b"])


def test_linked_cards_are_freed_where_links_are_required() -> None:
    """Claim: cards 0 and 2 have the cheapest victims and are not linked; of 0 and 1, which are, both are freed."""
    linked = tuple(
        Card(uuid=CardUuid(f"c{i}"), index=i, model="m", memory_total_mib=80_000, nvlink_group=group)
        for i, group in enumerate((1, 1, 2))
    )
    scene = Scene(node("n1").with_cards(linked))
    scene.submit(low("a")).submit(low("b")).submit(request("c").fields(priority_class="scavenger").cpu(0))
    by_card = {p.slices[0].card: name for name in "abc" if (p := scene[name].placement) is not None}
    scene.submit(high("h").gpu(cards=2, nvlink="require")).judge()

    assert scene.leaving() == sorted((by_card[CardUuid("c0")], by_card[CardUuid("c1")]))


def test_a_place_is_not_drained_where_a_tag_keeps_it_away_for_as_long_as_its_owner_runs() -> None:
    """Claim: there is room by numbers and nobody is asked to leave: it waits, and no turn ends a place and keeps it."""
    scene = Scene(node("n1").gpus(1)).submit(request("a").share(500).gpu_memory(1).cpu(0).anti_affinity("x"))
    scene.submit(request("first").share(300).gpu_memory(1).cpu(0).anti_affinity("x")).wait(400).judge()
    assert scene.records(Nominated) == []
