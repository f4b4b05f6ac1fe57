"""What is done about the cards of one node that is shared with other schedulers."""

from __future__ import annotations

from itertools import pairwise

from msgspec.structs import replace

from reconciler.placeholders.memory import CRITICAL_HINT, NOTHING
from reconciler.placeholders.plan import SEARCH_AGAIN_S, plan
from reconciler.placeholders.values import Acquire, End, Keep, NodeSeen, Prove, Release
from tests.builders.placeholders import NO_ROOM, RULES, SharedNode, held, starting


def test_a_card_is_wanted_proven_offered_and_goes_when_nobody_has_come_for_it() -> None:
    """The whole life: made, started, written down, idle, withdrawn, heard of by the ledger, gone."""
    node = SharedNode(cards=2)

    assert node.turn(wanted=1).steps == (Acquire(slot=0),)
    node.start()
    assert [type(step) for step in node.turn().steps] == [Prove]
    assert node.acquired == {"GPU-0"}
    node.hear()
    assert node.turn().steps == ()
    assert node.planned.again_s == node.now_s + 60
    node.now_s += 60
    assert [type(step) for step in node.turn().steps] == [Release]
    assert node.acquired == frozenset()
    assert node.turn().steps == (), "the ledger may sell it until it has heard"
    node.hear()
    assert [type(step) for step in node.turn().steps] == [End]
    node.start()
    assert node.pods == {}
    assert node.free == node.cards


def test_a_card_that_is_sold_while_it_is_withdrawn_is_kept() -> None:
    """The ledger sold it before it had heard: the placeholder stays, and its card is offered again."""
    node = SharedNode(cards=1).settle(wanted=1)
    node.now_s += 60
    node.turn()
    node.sell("GPU-0")
    node.hear()

    assert [type(step) for step in node.turn().steps] == [Keep]
    assert node.acquired == {"GPU-0"}


def test_a_deletion_names_the_version_that_was_decided_on() -> None:
    """Somebody who still believed it idle does not overtake the one who kept it."""
    node = SharedNode(cards=1).settle(wanted=1)
    node.now_s += 60
    node.turn()
    node.hear()
    late = node.turn(do=False).steps
    node.tenants.add("GPU-0")  # as another reconciler sees it, which has kept it by now
    node.turn()
    assert node.acquired == {"GPU-0"}

    for step in late:
        node._do(step)
    assert node.acquired == {"GPU-0"}


def test_s049_two_workers_of_one_node_and_one_group_make_one_placeholder() -> None:
    """S049: the slot is the lowest free one, so both make the same name; that it is there already is as good."""
    seen = SharedNode(cards=4).seen()

    first, second = (plan(seen, 1, NOTHING, RULES, 0.0).steps for _ in range(2))
    assert first == second == (Acquire(slot=0),)


def test_s049_what_is_on_its_way_is_not_made_again() -> None:
    """S049: never two cards for one: with one starting, nothing more is wanted by `demand`, and nothing is made."""
    node = SharedNode(cards=4)
    node.turn(wanted=1)

    assert node.turn().steps == ()


def test_s050_a_binding_in_flight_counts_as_a_tenant() -> None:
    """S050: the ledger has sold the card, no pod has its label yet: the placeholder survives the clean-up."""
    node = SharedNode(cards=1).settle(wanted=1)
    node.sell("GPU-0")
    node.now_s += 10_000

    assert node.turn().steps == ()


def test_s052_a_placeholder_that_cannot_start_is_rolled_back_with_one_clear_message() -> None:
    """S052: each try waits longer, up to the cap, and what is missing is named in the kubelet's words."""
    node = SharedNode(cards=4, rules=replace(RULES, start_timeout_s=30.0, base_s=1.0, cap_s=300.0))
    why = "CreateContainerError: unresolvable CDI devices nvidia.com/gpu=all"
    pauses = []
    for _ in range(12):
        while not any(isinstance(step, Acquire) for step in node.turn(wanted=1).steps):
            node.now_s = node.planned.again_s or node.now_s + 1
        for uid, each in node.pods.items():
            node.pods[uid] = replace(each, card="GPU-0", why=why)  # admitted, and its container never starts
        node.turn()
        failed_at = node.now_s = node.now_s + 30
        [end] = [step for step in node.turn(wanted=1).steps if isinstance(step, End)]
        assert why in end.reason
        assert node.memory.trouble == f"{why} (30 s; {CRITICAL_HINT})"
        pauses.append(node.memory.until_s - failed_at)
        node.start()
        assert node.pods == {}

    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_a_card_that_comes_to_be_held_ends_the_trouble() -> None:
    """What was told of the last failure is over; the row of failures ends with the first tenant only."""
    node = SharedNode(cards=1)
    node.take("GPU-0")
    node.pods["u9"] = starting(9, uid="u9")
    node.start()
    node.turn()
    assert node.memory.trouble == NO_ROOM
    node.others.clear()
    node.now_s += 5
    node.settle(wanted=1)

    assert (node.memory.trouble, node.memory.failures) == ("", 1)
    node.sell("GPU-0")
    node.turn()
    assert node.memory.failures == 0


def test_a_refusal_of_the_kubelet_is_final_and_waits() -> None:
    """`OutOf…` and `UnexpectedAdmissionError`: the object is cleared away, and the next one does not follow at once."""
    node = SharedNode(cards=1)
    node.turn(wanted=1)
    node.others["GPU-0"] = "others/faster"
    node.start()

    planned = node.turn(wanted=1)
    assert [type(step) for step in planned.steps] == [End]
    assert planned.memory.until_s == node.now_s + RULES.base_s


def test_s053_a_lost_card_stays_counted_and_is_looked_for_until_it_is_held_again() -> None:
    """S053: evicted under its tenant.

    The kubelet picks any free card: others are taken too until the right one came, kept meanwhile, and given back.
    """
    node = SharedNode(cards=4).settle(wanted=1)
    node.sell("GPU-0")
    node.settle()
    node.lose("GPU-0")

    assert node.turn().lost == {"GPU-0"}
    assert node.acquired == frozenset()
    node.now_s = node.memory.until_s
    for turn in range(3):
        node.turn()
        node.start(take=-1)  # GPU-3, GPU-2, GPU-1: never the one that is missing
        node.turn()
        assert node.planned.lost == {"GPU-0"}, turn
        assert node.planned.hopeless == frozenset()
    node.turn()
    node.start()
    node.turn()
    assert node.acquired == {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}
    assert node.turn().lost == frozenset()
    node.hear()
    node.now_s += 60
    node.turn()
    node.hear()
    node.turn()
    assert node.acquired == {"GPU-0"}


def test_s053_a_lost_card_that_somebody_else_was_given_is_named_with_him() -> None:
    """S053: it cannot be had: no search, an alarm, and its tenant has to go."""
    node = SharedNode(cards=4).settle(wanted=1)
    node.sell("GPU-0")
    node.settle()
    node.lose("GPU-0")
    node.take("GPU-0")

    planned = node.turn()
    assert (planned.lost, planned.hopeless) == ({"GPU-0"}, {"GPU-0"})
    node.now_s = node.memory.until_s
    assert not any(isinstance(step, Acquire) for step in node.turn().steps)


def test_a_search_that_went_over_every_card_is_not_begun_again_at_once() -> None:
    """Somebody has the card and the kubelet does not say who: what was taken for the search goes back."""
    node = SharedNode(cards=2, rules=replace(RULES, release_idle_after_s=0.0)).settle()
    node.cards.append("GPU-X")
    node.offered = frozenset({"GPU-X"})
    node.sell("GPU-X")
    node.cards.remove("GPU-X")  # the plugin does not list it any more, the ledger still counts it
    for _ in range(6):
        node.turn()
        node.start()
        node.hear()
    assert node.planned.hopeless == {"GPU-X"}
    made = node.made
    for _ in range(5):
        node.now_s += 10
        node.settle()
    assert node.made == made
    assert node.live == []
    node.now_s += SEARCH_AGAIN_S
    node.turn()
    assert node.made > made


def test_a_plugin_that_is_away_proves_nothing() -> None:
    """Reboot order: the placeholders failed before the plugin was back. Nothing is hopeless and nothing is made."""
    node = SharedNode(cards=2).settle(wanted=1)
    node.sell("GPU-0")
    node.settle()
    node.plugin = False
    node.lose("GPU-0", "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu")

    planned = node.turn()
    assert (planned.lost, planned.hopeless) == ({"GPU-0"}, frozenset())
    node.now_s += 100
    assert not any(isinstance(step, Acquire) for step in node.turn().steps)
    node.plugin = True
    assert [type(step) for step in node.turn().steps] == [Acquire]


def test_after_a_boot_nothing_is_offered_and_nothing_more_is_made_until_the_kubelet_has_spoken() -> None:
    """The API server shows the old card for ten seconds: tenants are fenced, and no search begins yet."""
    node = SharedNode(cards=2).settle(wanted=1)
    node.sell("GPU-0")
    for uid, each in node.pods.items():
        node.pods[uid] = replace(each, state="unproven")

    planned = node.turn()
    assert (planned.steps, planned.lost) == ((), frozenset())
    assert node.acquired == frozenset()


def test_s054_a_group_whose_binding_failed_gives_its_card_back() -> None:
    """S054: the request is gone from the ledger, the card is whole again, and then it goes."""
    node = SharedNode(cards=1).settle(wanted=1)
    node.sell("GPU-0")
    node.settle()
    node.tenants.clear()
    node.turn()
    node.now_s += 60
    node.settle()

    assert node.pods == {}


def test_s056_another_reconciler_goes_on_in_the_middle_of_everything() -> None:
    """S056: nothing is locked. Whatever was half done, a plan with an empty memory goes on from what is there."""
    node = SharedNode(cards=4).settle(wanted=2)
    node.turn(wanted=1)
    node.now_s += 60
    node.turn()
    node.memory = NOTHING
    node.settle()
    node.now_s += 60
    node.settle()

    assert node.pods == {}


def test_s060_a_gang_gets_all_its_cards_in_one_turn() -> None:
    """S060: five cards for five members: five placeholders at once, no rounds of one."""
    assert SharedNode(cards=8).turn(wanted=5).steps == tuple(Acquire(slot=slot) for slot in range(5))


def test_never_more_than_the_plugin_has_left() -> None:
    """S058: a hundred requests for a node of eight cards, three of them with others."""
    node = SharedNode(cards=8)
    for card in ("GPU-1", "GPU-4", "GPU-7"):
        node.take(card)

    assert len(node.turn(wanted=100).steps) == 5


def test_a_reserve_is_kept_warm_and_filled_up() -> None:
    """`min_idle` cards stay however long nobody comes, and a tenant on one of them brings the next."""
    node = SharedNode(cards=4, rules=replace(RULES, min_idle=1)).settle()
    assert node.acquired == {"GPU-0"}
    node.now_s += 10_000
    assert node.turn().steps == ()
    node.sell("GPU-0")
    node.settle()

    assert len(node.acquired) == 2


def test_cards_are_kept_for_ever_where_that_is_asked_for() -> None:
    """`release_idle: false`."""
    node = SharedNode(cards=1, rules=replace(RULES, release_idle_after_s=None)).settle(wanted=1)
    node.now_s += 1e6

    assert node.turn().steps == ()


def test_cards_that_nobody_comes_for_are_got_less_and_less_often() -> None:
    """A request that will not go there after all: without a tenant each round waits longer than the one before."""
    node = SharedNode(cards=1, rules=replace(RULES, release_idle_after_s=1.0))
    rounds = []
    for _ in range(6):
        while not any(isinstance(step, Acquire) for step in node.turn(wanted=1).steps):
            node.now_s += 1
        rounds.append(node.now_s)
        node.settle()
        node.now_s += 1
        node.settle()
        assert node.pods == {}
    gaps = [later - earlier for earlier, later in pairwise(rounds)]

    assert gaps == sorted(gaps)
    assert gaps[-1] >= 16


def test_a_dedicated_node_needs_no_placeholders() -> None:
    """The label was taken away: every card is ours, and what was made for it goes."""
    node = SharedNode(cards=2).settle(wanted=1)
    node.mode = "dedicated"

    assert [type(step) for step in node.turn(wanted=1).steps] == [End]


def test_nothing_is_made_where_something_stands_against_it() -> None:
    """A node that is not ready, a label that nobody understands, a full kubelet."""
    seen = NodeSeen(name="n1", against="the node is not ready", devices=4, free=4)

    assert plan(seen, 3, NOTHING, RULES, 0.0).steps == ()


def test_a_placeholder_that_ended_is_cleared_away_whatever_it_was() -> None:
    """Its object would keep its name for ever; its slot is used again only when it is gone."""
    seen = NodeSeen(name="n1", devices=2, free=2, placeholders=(held("", 0, state="lost", why="Evicted"),))

    first, *more = plan(seen, 1, NOTHING, replace(RULES, base_s=0.0), 0.0).steps
    assert isinstance(first, End)
    assert more == [Acquire(slot=1)]
