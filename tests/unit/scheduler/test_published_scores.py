"""The published rules in worked numbers, their rounding, and draws that look random and can be made again."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter

import msgspec
import pytest

from bus.ledger.fold import apply_record, mix_key
from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, Commit, EpochStarted, Rationale, Record
from contracts.units import RequestUid
from scheduler.core.decide import Placed, decide, drawn
from scheduler.core.feasibility import fits
from scheduler.core.mix import NOTHING_KNOWN, Mix, classes_of
from scheduler.core.orders import drawn_card, first_of_best, least_fragment, tightest
from scheduler.core.policies import POLICIES, evaluate
from scheduler.core.ranking import Rankings
from scheduler.core.replay import replay
from scheduler.core.request import shape_of
from scheduler.core.scores.fragment_published import BOUNDS, FINE, fragment_published
from scheduler.core.view import NodeView, view_of
from tests.builders.ledger import Node, Request, cluster, node, request

Held = tuple[Request, tuple[int, ...]]
"""A request and the cards that it is placed on."""


def view(drawn_node: Node, *held: Held) -> NodeView:
    """One node with what it holds."""
    made = cluster(drawn_node)
    for asked, cards in held:
        made.hold(asked, "n1", *cards)
    return view_of(made.state.nodes["n1"], made.state.requests)


def score(policy: str, asked: Request, at: NodeView, mix: Mix = NOTHING_KNOWN) -> int | None:
    """What the policy says of the node."""
    return evaluate(POLICIES[policy], shape_of(asked.build()), at, mix)


def share(milli: int, name: str = "s") -> Request:
    """A part of a card, no CPU."""
    return request(name).share(milli).cpu(0)


def wholes(count: int, name: str = "w") -> Request:
    """Whole cards, no CPU."""
    return request(name).cards(count).share(1000).cpu(0)


@pytest.mark.parametrize(
    ("cpu", "cards", "asked", "expected"),
    [
        (128_000, 8, wholes(8).cpu(128_000), 100),  # nothing left
        (128_000, 8, request("c").cards(0).cpu(0), 0),  # everything left of the largest node
        (96_000, 8, share(500).cpu(6000), 17),  # 100 - (90,000 + 16 x 7,500) / 2,560 = 17.97
        (104_000, 2, request("c").cards(0).cpu(8000), 50),  # 100 - (96,000 + 16 x 2,000) / 2,560
        (256_000, 8, request("c").cards(0).cpu(0), -50),  # larger than the published largest: below zero
    ],
)
def test_best_fit(cpu: int, cards: int, asked: Request, expected: int) -> None:
    """What is left of CPU and cards, in halves of 128 cores and 8 cards, cut to whole points."""
    assert score("best-fit", asked, view(node("n1").cpu(cpu).gpus(cards))) == expected


@pytest.mark.parametrize(
    ("cpu", "cards", "asked", "expected"),
    [
        (128_000, 8, wholes(8).cpu(128_000), 0),  # 1 x 1 + 1 x 1
        (128_000, 8, share(500).cpu(6400), 94),  # 100 - 50 x (0.05 + 0.0625) = 94.375
        (64_000, 2, request("c").cards(0).cpu(64_000), 87),  # 100 - 50 x 0.5 x 0.5 = 87.5
        (64_000, 2, wholes(2), 96),  # 100 - 50 x 0.25 x 0.25 = 96.875
    ],
)
def test_dot_product(cpu: int, cards: int, asked: Request, expected: int) -> None:
    """What is free times what is asked, both before the placement."""
    assert score("dot-product", asked, view(node("n1").cpu(cpu).gpus(cards))) == expected


@pytest.mark.parametrize(
    ("cards", "held", "asked", "expected"),
    [
        (8, [], request("c").cards(0), 0),
        (8, [], share(500), 25),  # a free node: 33 - 8
        (2, [], share(500), 31),
        (20, [], share(500), 20),  # at least the number of cards
        (8, [(wholes(1), (0,))], wholes(2, "b"), 48),  # two free cards of a used node
        (8, [(share(700), (0,))], share(400, "b"), 49),  # the used one has no room
        (8, [(share(700), (0,))], share(200, "b"), 97),  # 300 free: 100 - 30 / 10
        (8, [(share(5), (0,))], share(200, "b"), 91),  # 995 free: 99 %, 9 off
        (20, [(share(5), (0,))], wholes(19, "b"), 33),  # at least 33
        (8, [(share(10, f"h{i}"), (i,)) for i in range(8)], request("b").cards(8).share(500).cpu(0), 50),  # at least 50
    ],
)
def test_gpu_packing(cards: int, held: list[Held], asked: Request, expected: int) -> None:
    """Cards in use before free cards before free nodes."""
    assert score("gpu-packing", asked, view(node("n1").gpus(cards), *held)) == expected


@pytest.mark.parametrize(
    ("cards", "held", "asked", "expected"),
    [
        (8, [], request("c").cards(0), 0),
        (8, [], share(500), 25),
        (2, [], share(500), 43),  # 25 x 6,000 / 8,000 = 18.75
        (8, [(request("c").cards(0), ())], share(500), 25),  # a pod without cards is no size
        (8, [(share(500), (0,))], share(400, "b"), 76),  # 25 x 500 / 8,000 = 1.56
        (8, [(share(500), (0,))], wholes(1, "b"), 1),
        (8, [(share(500), (0,)), (wholes(1), (1,))], share(400, "b"), 54),  # 25 x 1,500 / 8,000 = 4.69
        (8, [(share(500), (0,)), (wholes(1), (1,))], wholes(1, "b"), 54),
        (8, [(share(500), (0,)), (wholes(1), (1,))], wholes(2, "b"), 4),
        (8, [(wholes(2), (0, 1))], wholes(2, "b"), 81),  # 25 x 2,000 / 8,000 = 6.25
    ],
)
def test_gpu_clustering(cards: int, held: list[Held], asked: Request, expected: int) -> None:
    """Its own size alone, then its own among others, then nobody, then others alone."""
    assert score("gpu-clustering", asked, view(node("n1").gpus(cards), *held)) == expected


SIX_HUNDRED = Mix(classes_of({mix_key(share(600).build()): 1}))
"""All that is coming asks for 600 thousandths."""


@pytest.mark.parametrize(
    ("held", "asked", "expected"),
    [
        ([], share(400), 50),  # 600 are left and of use: nothing changes
        ([], share(500), 37),  # 500 become useless: sigmoid(-0.5) = 0.3775
        ([(share(500), (0,))], share(500, "b"), 62),  # 500 useless ones are used: sigmoid(0.5) = 0.6225
        ([(share(500), (0,))], share(20, "b"), 50),  # sigmoid(0.02) = 0.505
        ([(share(500), (0,))], request("b").cards(0), 50),
    ],
)
def test_fgd_as_its_authors_round_it(held: list[Held], asked: Request, expected: int) -> None:
    """100 x sigmoid of the change in cards, cut to whole points."""
    assert score("fgd-published", asked, view(node("n1").gpus(1), *held), SIX_HUNDRED) == expected
    assert score("fgd-published", asked, view(node("n1").gpus(1), *held)) == 50


def test_the_bounds_are_those_of_the_sigmoid() -> None:
    """For every change within eight cards the integer bounds give what the formula gives."""
    changes = range(-8000, 8001)
    formula = [math.floor(100 / (1 + math.exp(-change / 1000))) for change in changes]

    assert [bisect_right(BOUNDS, change * FINE) for change in changes] == formula
    assert (BOUNDS[48], BOUNDS[49], BOUNDS[50]) == (-40_005, 0, 40_005)


def test_the_published_card_is_the_first_of_equal_points() -> None:
    """Cards with 620 and 610 left, 50 asked: 570 or 560 useless, both 36 points; the finer order takes the second."""
    at = view(node("n1").gpus(2), (share(380), (0,)), (share(390, "h"), (1,)))
    shape = shape_of(share(50, "b").build())
    taken = {
        order.__name__: [card.uuid for card in fits(shape, at, order, SIX_HUNDRED) or ()]
        for order in (first_of_best, least_fragment)
    }

    assert taken == {"first_of_best": ["n1-gpu0"], "least_fragment": ["n1-gpu1"]}
    assert [fragment_published(shape, at, (card,), SIX_HUNDRED) for card in at.cards] == [36, 36]


def test_the_published_card_is_the_one_with_most_points() -> None:
    """400 of a class of 600: the second card keeps 600, 50 points; the first one, with 700, would keep 300, 42."""
    at = view(node("n1").gpus(2), (share(300), (0,)))
    shape = shape_of(share(400, "b").build())

    assert [fragment_published(shape, at, (card,), SIX_HUNDRED) for card in at.cards] == [42, 50]
    assert [card.uuid for card in fits(shape, at, first_of_best, SIX_HUNDRED) or ()] == ["n1-gpu1"]


def test_whole_cards_are_taken_as_by_tightest() -> None:
    """The published rule takes free cards in index order."""
    at = view(node("n1").gpus(4), (share(380), (1,)))
    shape = shape_of(wholes(2).build())

    assert fits(shape, at, first_of_best, SIX_HUNDRED) == fits(shape, at, tightest, SIX_HUNDRED)
    assert [card.position for card in fits(shape, at, first_of_best, SIX_HUNDRED) or ()] == [0, 2]


# --- random --------------------------------------------------------------------------------------------------------


def test_a_draw_is_fixed_by_the_uid_and_even() -> None:
    """10,000 uids over 7 places: the same again, and each place within a tenth of its part."""
    counts = Counter(drawn(RequestUid(f"e-{i}-0"), 7) for i in range(10_000))

    assert drawn(RequestUid("e0000000-1-0"), 1000) == drawn(RequestUid("e0000000-1-0"), 1000) == 980
    assert sorted(counts) == list(range(7))
    assert all(abs(count - 10_000 / 7) < 143 for count in counts.values())


def test_random_uses_every_node_that_fits_and_no_other() -> None:
    """Five nodes, one of them full: 200 requests come to the other four."""
    made = cluster(node(f"n{i}").gpus(1).pods(1000) for i in range(5))
    made.hold(wholes(1), "n3", 0)
    rankings = Rankings()
    found = Counter(
        decision.placement.node
        for i in range(200)
        if isinstance(
            decision := decide(made.state, made.accept(share(1, f"r{i}")), POLICIES["random"], rankings), Placed
        )
    )

    assert sorted(found) == ["n0", "n1", "n2", "n4"]
    assert sum(found.values()) == 200
    assert min(found.values()) > 25


def test_random_says_what_else_there_was() -> None:
    """The runner-up is another node than the one that was drawn, and there is none when there is only one."""
    made = cluster(node("n1").gpus(1).pods(1000), node("n2").gpus(1).pods(1000))
    seen = set()
    for i in range(20):
        decision = decide(made.state, made.accept(share(1, f"r{i}")), POLICIES["random"])
        assert isinstance(decision, Placed)
        why = decision.rationale
        assert why.runner_up is not None
        seen.add((why.chosen.node, why.runner_up.node))
    alone = cluster(node("n1").gpus(1))
    only = decide(alone.state, alone.accept(share(1)), POLICIES["random"])

    assert seen == {("n1", "n2"), ("n2", "n1")}
    assert isinstance(only, Placed)
    assert only.rationale.runner_up is None


def test_random_draws_among_the_best_only() -> None:
    """A request with an affinity tag goes to its group, whatever is drawn."""
    made = cluster(node(f"n{i}").gpus(1).pods(1000) for i in range(5))
    made.hold(share(100, "first").affinity("a"), "n2", 0)
    rankings = Rankings()
    decisions = [
        decide(made.state, made.accept(share(1, f"r{i}").affinity("a")), POLICIES["random"], rankings)
        for i in range(20)
    ]

    assert {each.placement.node for each in decisions if isinstance(each, Placed)} == {"n2"}


def test_random_cards_change_with_the_load_of_the_node() -> None:
    """One small share after the other on eight cards: every card gets some, the full one none."""
    made = cluster(node("n1").gpus(8).pods(1000))
    made.hold(wholes(1), "n1", 5)
    shape = shape_of(share(10).build())
    found: Counter[int] = Counter()
    for i in range(120):
        at = view_of(made.state.nodes["n1"], made.state.requests)
        (card,) = fits(shape, at, drawn_card, NOTHING_KNOWN) or ()
        found[card.position] += 1
        made.hold(share(10, f"r{i}"), "n1", card.position)

    assert sorted(found) == [0, 1, 2, 3, 4, 6, 7]
    assert min(found.values()) > 5


def test_a_random_decision_can_be_decided_again() -> None:
    """A log of 30 draws is replayed without a difference; one that names another node than was drawn stands out."""
    records: list[Record] = [EpochStarted(epoch="e0000000", reason="first")]
    records += [record for i in range(4) for record in node(f"n{i}").gpus(4).records()]
    made = LedgerState()
    for record in records:
        apply_record(made, record, 1)
    for i in range(30):
        accepted = Accepted(uid=RequestUid(f"e0000000-1-{i}"), namespace="a", request=share(50, f"r{i}").build())
        apply_record(made, accepted, 1)
        decision = decide(made, made.requests[accepted.uid], POLICIES["random"])
        assert isinstance(decision, Placed)
        apply_record(made, decision.record(), 1)
        records += [accepted, decision.record()]
    forged = msgspec.structs.replace(decision.record(), rationale=_swapped(decision.rationale))

    assert _differences(records) == (30, 0)
    assert _differences([*records[:-1], forged]) == (30, 1)


def _swapped(why: Rationale) -> Rationale:
    assert why.runner_up is not None
    return msgspec.structs.replace(why, chosen=why.runner_up, runner_up=why.chosen)


def _differences(records: list[Record]) -> tuple[int, int]:
    commit = Commit(pool="default", epoch="e0000000", number=1, predecessor=0, author="a", records=tuple(records))
    again = replay([(commit, 1)])
    return again.decisions, len(again.differences)
