"""The mix that is coming and the fragment it makes of a node: classes, learning points, the published definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.ledger.fold import mix_key
from bus.ledger.learning import IN_FORCE_AFTER, is_learning_point
from scheduler.core.decide import Placed, decide
from scheduler.core.feasibility import fits
from scheduler.core.fragments import change, losses_of_one, usable
from scheduler.core.mix import Class, Mix, classes_of
from scheduler.core.orders import least_fragment
from scheduler.core.policies import POLICIES
from scheduler.core.ranking import Rankings
from scheduler.core.request import shape_of
from scheduler.core.scores import fragment
from scheduler.core.view import NodeView, view_of
from tests.builders.ledger import Request, cluster, node, request


def mix_of(*asked: tuple[Request, int]) -> Mix:
    """A mix of requests with their counts."""
    return Mix(classes_of({mix_key(each.build()): count for each, count in asked}))


def published(mix: Mix, view: NodeView) -> int:
    """N times the fragment of a node, class by class, as the definition has it (Weng et al., section on F)."""
    idle = sum(card.free_milli for card in view.cards)
    total = 0
    for c in mix.classes:
        fitting = [x for x in view.cards if x.free_milli >= c.share_milli and (not c.models or x.model in c.models)]
        cpu_fits = c.cpu_milli <= view.cpu_milli
        satisfied = bool(c.cards) and cpu_fits and len(fitting) >= c.cards
        total += c.weight * (idle - sum(x.free_milli for x in fitting) if satisfied else idle)
    return total


def test_classes_cover_95_percent_most_frequent_first() -> None:
    """Counts 90, 5, 4, 1: the first two make 95 %."""
    mix = {"100|1|500|": 90, "200|1|500|": 5, "300|1|500|": 4, "400|1|500|": 1}

    assert [c.cpu_milli for c in classes_of(mix)] == [100, 200]
    assert classes_of({}) == ()


def test_classes_of_equal_counts_stand_as_in_the_published_rule() -> None:
    """More CPU first, by number and not by spelling; then larger shares, more cards, the later models."""
    order = ["10000|1|10|", "2000|1|1000|", "2000|2|900|", "2000|1|900|V100M16,V100M32", "2000|1|900|T4", "2000|1|900|"]

    found = classes_of(dict.fromkeys(reversed(order), 1))

    assert [_spelt(each) for each in found] == order
    assert [_spelt(each) for each in classes_of(dict.fromkeys(order[:3], 40) | {order[3]: 1})] == order[:3]


def _spelt(each: Class) -> str:
    return f"{each.cpu_milli}|{each.cards}|{each.share_milli}|{','.join(sorted(each.models))}"


def test_a_class_keeps_cards_share_and_models() -> None:
    """`cpu|cards|share|models` and back."""
    (only,) = classes_of({mix_key(request("r").cards(2).share(300).cpu(700).models("T4", "A100").build()): 3})

    assert (only.cpu_milli, only.cards, only.share_milli, only.models, only.weight) == (
        700,
        2,
        300,
        frozenset({"A100", "T4"}),
        3,
    )


@pytest.mark.parametrize(
    ("accepted", "learns"),
    [
        *((0, False), (63, False), (64, True), (127, False), (128, True), (4096, True), (8191, False), (8192, True)),
        *((12_288, False), (16_384, True), (24_576, False), (65_536, True), (73_728, False), (81_920, True)),
        *((131_072, True), (147_456, False), (163_840, True), (1 << 40, True), ((1 << 40) + 1, False)),
    ],
)
def test_learning_points(accepted: int, *, learns: bool) -> None:
    """64, then doubling, from 65,536 on four times per doubling."""
    assert is_learning_point(accepted) is learns


def test_a_reader_who_begins_late_has_learned_the_same() -> None:
    """What is learned is a part of the state: a restart between two learning points changes no decision."""
    made = cluster(node(f"n{i}").gpus(2).cpu(1_000_000).pods(1000) for i in range(4))
    following = Rankings()
    for i in range(120):
        made.accept(request(f"r{i}").share(500 if i < 64 else 900))
        following.sync(made.state)
    late = Rankings()
    late.sync(made.replayed())

    assert late.mix.classes == following.mix.classes
    assert made.state.learned_at == 64


cards = st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(["A100", "T4"])), min_size=1, max_size=8)
asks = st.tuples(
    st.integers(0, 4),  # cards
    st.one_of(st.just(1000), st.integers(1, 1000)),
    st.integers(0, 5),  # thousand milli-cores
    st.sampled_from([(), ("A100",), ("T4",), ("A100", "T4")]),
    st.integers(1, 50),
)


def _request(ask: tuple[int, int, int, tuple[str, ...], int]) -> Request:
    count, share, cpu, models, _ = ask
    return request("r").cards(count).share(share).cpu(cpu * 1000).models(*models)


def _view(drawn_cards: list[tuple[int, str]], cpu: int) -> NodeView:
    drawn = node("n1").cpu(cpu * 1000 + 800)
    for _, model in drawn_cards:
        drawn.gpus(1, model=model)
    made = cluster(drawn)
    for index, (free, _) in enumerate(drawn_cards):
        if free < 1000:
            made.hold(request(f"h{index}").share(1000 - free), "n1", index)
    return view_of(made.state.nodes["n1"], made.state.requests)


@settings(max_examples=60, deadline=None)
@given(drawn_cards=cards, cpu=st.integers(0, 6), drawn_asks=st.lists(asks, min_size=1, max_size=6), asked=asks)
def test_the_fast_sums_are_the_published_definition(
    drawn_cards: list[tuple[int, str]],
    cpu: int,
    drawn_asks: list[tuple[int, int, int, tuple[str, ...], int]],
    asked: tuple[int, int, int, tuple[str, ...], int],
) -> None:
    """R x N - U is N x F, before a placement and after it; the score is the change in steps of 40, rounded down."""
    mix = mix_of(*((_request(ask), ask[4]) for ask in drawn_asks))
    view = _view(drawn_cards, cpu)
    shape = shape_of(_request(asked).build())
    chosen = fits(shape, view, least_fragment, mix)
    before = published(mix, view)

    assert view.left_milli * mix.total - usable(mix, view, mix.level(view.cpu_milli)) == before
    first = sum(card.free_milli < shape.share_milli for card in view.tight)
    after_cpu = mix.level(view.cpu_milli - shape.cpu_milli)
    one_by_one = [-change(mix, view, after_cpu, (card,), shape.share_milli) for card in view.tight[first:]]
    assert losses_of_one(mix, view, after_cpu, shape.share_milli, first) in (None, one_by_one)
    if chosen is None:
        return
    taken = {card.position for card in chosen}
    after_cards = [(card.free_milli - shape.share_milli * (card.position in taken), card.model) for card in view.cards]
    after_view = _view(after_cards, 0)
    after_view.cpu_milli = view.cpu_milli - shape.cpu_milli
    after = published(mix, after_view)
    level = mix.level(after_view.cpu_milli)
    value = usable(mix, view, level) + change(mix, view, level, chosen, shape.share_milli)

    assert after_view.left_milli * mix.total - value == after
    assert fragment(shape, view, chosen, mix) == (before - after) // (40 * mix.total)


def test_the_card_is_the_one_after_which_least_is_useless() -> None:
    """400 goes to the card with 1000, leaving 600 for a class of 600, not to the tight one with 700."""
    made = cluster(node("n1").gpus(2))
    made.hold(request("h").share(300), "n1", 0)
    mix = mix_of((request("r").share(600), 10))
    chosen = fits(
        shape_of(request("r").share(400).build()),
        view_of(made.state.nodes["n1"], made.state.requests),
        least_fragment,
        mix,
    )

    assert chosen is not None
    assert chosen[0].uuid == "n1-gpu1"


def test_whole_cards_are_kept_together_for_those_who_ask_for_two() -> None:
    """300 goes to the card that is sold already, although as much stays usable to one-card classes on any."""
    made = cluster(node("n1").gpus(3))
    made.hold(request("h").share(100), "n1", 1)
    mix = mix_of((request("r").cards(3).share(1000), 1), (request("r").cards(2).share(1000), 10), (request("s"), 1))
    view = view_of(made.state.nodes["n1"], made.state.requests)
    shape = shape_of(request("r").share(300).build())
    losses = losses_of_one(mix, view, mix.level(view.cpu_milli), 300, 0)

    assert losses == [-change(mix, view, mix.level(view.cpu_milli), (card,), 300) for card in view.tight]
    assert next(card.uuid for card in least_fragment(shape, view, mix)) == "n1-gpu1"


def test_scores_follow_the_mix_at_its_learning_points() -> None:
    """What is learned at 64 requests is in force 48 later; until then the fixed order decides, then the mix does."""
    made = cluster(node(f"n{i}").gpus(2).cpu(1_000_000).pods(1000) for i in range(4))
    rankings = Rankings()
    waiting = [made.accept(request(f"r{i}").share(500 if i else 600)) for i in range(64 + IN_FORCE_AFTER - 1)]
    early = decide(made.state, waiting[0], POLICIES["fgd"], rankings)
    made.accept(request("last").share(500))
    late = decide(made.state, waiting[0], POLICIES["fgd"], rankings)

    assert isinstance(early, Placed)
    assert isinstance(late, Placed)
    assert early.rationale.chosen.score == 0
    assert late.rationale.chosen.score == -10
    assert rankings.mix.total == 63  # the one of 600 is among the rare 5 %
    assert decide(made.state, waiting[0], POLICIES["fgd"]) == late


def test_empty_cards_of_two_models_are_not_alike() -> None:
    """Who comes wants the A100: a half of the T4 spoils less, though both are empty and the A100 stands first."""
    drawn = cluster([node("n1").gpus(1, model="A100").gpus(1, model="T4")])
    view = view_of(drawn.state.nodes["n1"], drawn.state.requests)
    mix = mix_of((request("r").share(1000).models("A100"), 9), (request("s").share(500), 1))

    assert next(card.model for card in least_fragment(shape_of(request("s").share(500).build()), view, mix)) == "T4"
