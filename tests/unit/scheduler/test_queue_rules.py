"""The queue's own rules: who goes first, who is asked to leave, what is kept for whom, and what is told of it.

Most end with the proof of their log, every decision decided again, and a restart that finds nothing left to do.
"""

from __future__ import annotations

import pytest

from contracts.decisions import HealthSet, Nominated, Reserved
from contracts.units import NodeName
from scheduler.core.explain import explain
from scheduler.core.queue.queue import QueueRules
from scheduler.core.queue.told import in_queue
from tests.builders.ledger import Request, node, request
from tests.builders.scene import Scene


def high(name: str) -> Request:
    """A whole card for somebody who waits for it."""
    return request(name).fields(priority_class="high").cpu(0)


def low(name: str, share: int = 1000) -> Request:
    """A part of a card for somebody who goes behind."""
    return request(name).share(share).fields(priority_class="low").cpu(0)


VICTIMS = {
    "the fewest": ([low("a", 500), low("b", 500), low("c")], "c"),
    "the lowest priority": ([request("n").cpu(0), request("s").fields(priority_class="scavenger").cpu(0)], "s"),
    "the latest": ([low("early"), low("late")], "late"),
}


@pytest.mark.parametrize("rule", sorted(VICTIMS))
def test_the_order_of_victims(rule: str) -> None:
    """The stated order: fewest, then lowest priority, then the latest decision."""
    asked, victim = VICTIMS[rule]
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1))
    for each in asked:
        scene.submit(each)
    scene.submit(high("h")).judge()
    assert scene.leaving() == [victim]


def test_only_classes_ask_others_to_leave_and_only_lower_ones() -> None:
    """A bare number, however large, an equal class, and a setting of `never` send nobody away."""
    for asked, rules in (
        (request("h").fields(priority=1_000_000), QueueRules()),
        (low("h"), QueueRules()),
        (high("h"), QueueRules(preemption=False)),
    ):
        scene = Scene(node("n1").gpus(1), rules=rules).submit(low("a")).submit(asked).judge()
        assert (scene.leaving(), scene.where("h")) == ([], ["-"])
    equal = Scene(node("n1").gpus(1)).submit(high("a")).submit(high("h")).judge()
    assert (equal.leaving(), equal.where("h")) == ([], ["-"])


def test_who_had_to_leave_may_also_end_there() -> None:
    """The policy `end`, and a victim that came to its own end meanwhile: neither waits again."""
    ended = Scene(node("n1").gpus(1), rules=QueueRules(requeue=False)).submit(low("a")).submit(high("h"))
    assert ended.seen("a", "gone").judge()["a"].phase == "ended"
    done = Scene(node("n1").gpus(1)).submit(low("a")).submit(high("h"))
    assert done.seen("a", "ended", exit_code=0).judge()["a"].phase == "ended"


def test_late_words_about_an_earlier_pod_change_nothing() -> None:
    """The outcome of attempt 0 comes again when attempt 1 runs: the new pod keeps its card."""
    scene = Scene(node("n1").gpus(1)).submit(low("a")).submit(high("h"))
    scene.seen("a", "gone").seen("h", "ended", exit_code=0)
    assert (scene.where("a"), scene["a"].attempt) == (["n1"], 1)
    scene.seen("a", "gone", attempt=0).judge()
    assert (scene.where("a"), scene["a"].phase) == (["n1"], "placed")


def test_a_gang_asks_for_all_its_places_or_for_none() -> None:
    """Two cards could be freed for three members: nobody leaves; a third card, and all three have places in sight."""
    small = Scene(node("n1").gpus(2)).submit(low("a"), low("b"))
    small.submit(*(high(f"g{i}").gang("g", 3) for i in range(3))).judge()
    assert small.leaving() == []

    scene = Scene(node("n1").gpus(3)).submit(low("a"), low("b"))
    scene.submit(*(high(f"g{i}").gang("g", 3) for i in range(3)))
    assert scene.leaving() == ["a", "b"]
    scene.seen("a", "gone")
    assert scene.where("g0", "g1", "g2") == ["-", "-", "-"]
    scene.seen("b", "gone").judge()
    assert scene.where("g0", "g1", "g2") == ["n1", "n1", "n1"]


def test_two_gangs_that_fit_alone_never_block_each_other() -> None:
    """Each needs three of four cards. The first takes them all at once; the second holds nothing while it waits."""
    scene = Scene(node("n1").gpus(2), node("n2").gpus(2))
    scene.submit(*(request(f"{g}{i}").gang(g, 3) for i in range(3) for g in "ab"))
    assert scene.where("a0", "a1", "a2").count("-") + scene.where("b0", "b1", "b2").count("-") == 3
    first, second = ("a", "b") if scene.where("a0") != ["-"] else ("b", "a")
    assert not scene.log.state.nominated
    for i in range(3):
        scene.seen(f"{first}{i}", "ended")
    scene.judge()
    assert scene.where(*(f"{second}{i}" for i in range(3))).count("-") == 0


def test_a_gang_begins_with_its_minimum_and_the_others_join() -> None:
    """Four members, two needed: two cards are enough to begin, and each card that comes takes one more."""
    scene = Scene(node("n1").gpus(2), node("n2").gpus(1)).submit(request("x").gang("x", 1))
    scene.submit(*(request(f"g{i}").gang("g", 4, min=2) for i in range(4)))
    assert scene.where("g0", "g1", "g2", "g3").count("-") == 2
    scene.seen("x", "ended").judge()
    assert scene.where("g0", "g1", "g2", "g3").count("-") == 1


def test_an_incomplete_gang_says_how_many_are_missing() -> None:
    """Two of three have come."""
    scene = Scene(node("n1").gpus(8)).submit(request("a").gang("g", 3), request("b").gang("g", 3)).judge()
    (reason,) = scene.engine.reasons(scene["a"])
    assert (reason.code, reason.needed, reason.free) == ("gang", 3, 2)


def test_priority_then_fair_share_then_age() -> None:
    """One card at a time: the class goes first; of equals the namespace that holds less; of one namespace the older."""
    scene = Scene(node("n1").gpus(4), rules=QueueRules(preemption=False))
    scene.submit(*(request(f"fill{i}") for i in range(4)), space="rich")
    for name, space in (("rich1", "rich"), ("poor1", "poor"), ("poor2", "poor")):
        scene.wait(1).submit(request(name), space=space)
    scene.submit(high("first"), space="rich")
    for i in range(4):
        scene.seen(f"fill{i}", "ended", space="rich")
    assert scene.order()[4:] == ["first", "poor1", "poor2", "rich1"]
    scene.judge()


def test_who_has_waited_long_enough_is_passed_no_more() -> None:
    """An hour is worth a class: `high` passes a `normal` of its namespace that came less than an hour before it."""
    for minutes, first in ((59, "young"), (60, "old")):
        scene = Scene(node("n1").gpus(1), rules=QueueRules(preemption=False)).submit(request("held"))
        old, young = request("old"), request("young").fields(priority_class="high")
        scene.engine.submit("ns", old.build(), now_ms=scene.now_ms)
        scene.now_ms += 60_000 * minutes
        scene.engine.submit("ns", young.build(), now_ms=scene.now_ms)
        scene.seen("held", "ended").judge()
        assert scene.order()[1] == first


def test_a_quota_holds_back_with_numbers_and_lets_go_when_something_ends() -> None:
    """1500 thousandths: one card and a half may be held; the second card waits although cards are free."""
    scene = (
        Scene(node("n1").gpus(4)).quota(share_milli=1500).submit(request("a"), request("b"), request("half").share(500))
    )
    assert scene.where("a", "b", "half") == ["n1", "-", "n1"]
    (reason,) = scene.engine.reasons(scene["b"])
    assert (reason.code, reason.needed, reason.free, reason.unit) == ("quota", 1000, 0, "thousandths")
    assert "may hold 1500 thousandths of cards and holds 1500" in reason.text
    scene.seen("a", "ended").judge()
    assert scene.where("b") == ["n1"]


def test_memory_counts_too_and_a_resize_keeps_to_it() -> None:
    """10,000 MiB: 8,000 are held, growing to 12,000 is refused with numbers, giving back always works."""
    scene = Scene(node("n1").gpus(1)).quota(memory_mib=10_000).submit(request("a").share(100).gpu_memory(8000))
    scene.resize("a", 100, 12_000)
    (refusal,) = scene.answers[-1].refusals
    assert (refusal.field, refusal.value, refusal.bound) == (
        "memory_mib",
        "4000",
        "at most 2000 MiB more for namespace ns",
    )
    scene.resize("a", 50, 9000).quota(memory_mib=1).resize("a", 50, 8000).judge()
    assert scene.answers[-1].refusals == ()
    assert scene["a"].placement is not None
    assert scene["a"].placement.slices[0].memory_mib == 8000


def test_a_priority_above_what_a_namespace_may_use_is_refused() -> None:
    """The ceiling stands in the quota."""
    scene = Scene(node("n1").gpus(1)).quota(max_priority=0).submit(high("h"), request("n"))
    refused, accepted = scene.answers
    assert [(r.field, r.value) for r in refused.refusals] == [("priority_class", "high")]
    assert accepted.uid
    scene.judge()


def test_small_ones_do_not_pass_the_first_for_ever() -> None:
    """A whole card waits while halves come and go; after five minutes what ends is kept for it."""
    scene = Scene(node("n1").gpus(1)).submit(request("h0").share(500), request("h1").share(500)).submit(request("big"))
    scene.seen("h0", "ended").submit(request("h2").share(500))
    assert scene.where("h2", "big") == ["n1", "-"]

    scene.wait(300)
    assert scene.kept("big") == "n1"
    scene.seen("h1", "ended").submit(request("h3").share(500))
    assert scene.where("h3") == ["-"]
    scene.seen("h2", "ended").judge()
    assert scene.where("big", "h3") == ["n1", "-"]


def test_who_ends_in_time_may_use_the_place_of_the_first() -> None:
    """The card is free in an hour: half an hour fits before that, two hours do not; the first is not delayed."""
    scene = Scene(node("n1").gpus(1)).submit(request("old").share(700).fields(expected_s=3600)).submit(request("first"))
    assert scene.kept("first") == "n1"
    assert scene.records(Nominated)[0].expected_ms == scene.now_ms + 3_600_000

    scene.submit(request("long").share(100).fields(expected_s=7200), request("unknown").share(100))
    scene.submit(request("short").share(300).fields(expected_s=1800))
    assert scene.where("long", "unknown", "short", "first") == ["-", "-", "n1", "-"]
    assert scene.kept("first") == "n1"
    scene.seen("short", "ended").seen("old", "ended").judge()
    assert scene.where("first", "long") == ["n1", "-"]


def test_a_nominated_request_takes_a_place_that_comes_earlier() -> None:
    """Its victim lingers; another node appears: it goes there, and the victim, which has been told, goes and waits."""
    scene = Scene(node("n1").gpus(1)).submit(low("a")).submit(high("h"))
    scene.fold(*node("n2").gpus(1).records())
    assert scene.where("h") == ["n2"]
    scene.seen("a", "gone").judge()
    assert scene.where("a") == ["n1"]
    assert len(scene.records(Reserved)) == 3


def test_a_withdrawn_nominee_gives_back_what_was_kept_for_it() -> None:
    """The half that was free goes to the next in the queue at once."""
    scene = Scene(node("n1").gpus(1)).submit(low("a", 500)).submit(high("h")).submit(low("b", 500))
    assert scene.where("b") == ["-"]
    scene.withdraw("h").judge()
    assert scene.where("b") == ["n1"]
    assert scene.leaving() == ["a"]


def test_a_node_that_dies_under_a_nomination_ends_it() -> None:
    """The place is on a node that falls silent; another one is asked for at once."""
    scene = Scene(node("n1").gpus(1), node("n2").gpus(1)).submit(low("a"), low("b")).submit(high("h"))
    kept = scene.kept("h")
    scene.fold(HealthSet(node=NodeName(kept), health="suspect", reason="no heartbeat"))
    assert scene.kept("h") not in ("", kept)
    scene.judge()


def test_explain_tells_where_it_stands_and_who_is_in_its_way() -> None:
    """Position, priority, the share of its namespace, the place that is kept and who is still there."""
    scene = Scene(node("n1").gpus(2)).submit(low("a"), low("b")).submit(high("h"), request("n"))
    state = scene.engine.state
    told = {name: in_queue(state, scene[name], explain(state, state.requests[scene[name].uid])) for name in "hn"}
    first, second = told["h"].queue, told["n"].queue
    assert first is not None
    assert second is not None
    assert (first.position, second.position, first.pending) == (1, 2, 2)
    assert (first.priority, first.nominated, len(first.waits_for)) == (100, "n1", 1)
    assert (second.nominated, second.share_ppm) == ("", 1_500_000)  # both cards are held, and one is promised
    assert [reason.code for reason in told["h"].reasons] == ["nominated"]
    scene.judge()
