"""Explain and what-if: reasons with numbers, the nearest change in one sentence, verdicts on nodes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.messages import encode
from scheduler.core.decide import Placed, decide
from scheduler.core.explain import FEASIBLE_SHOWN, REJECTED_SHOWN, explain, what_if
from scheduler.core.feasibility import fits
from scheduler.core.mix import NOTHING_KNOWN
from scheduler.core.nearest import change_for, nearest_change
from scheduler.core.orders import in_position
from scheduler.core.reasons import reasons_against
from scheduler.core.request import shape_of
from scheduler.core.view import view_of
from tests.builders.ledger import Cluster, Request, cluster, node, request

FULL = "n1"


def half_full() -> Cluster:
    """One card with 300 thousandths and 5,000 MiB free, 1,000 milli-cores, on one node."""
    drawn = cluster(node(FULL).gpus(1, memory_mib=10_000).cpu(2000).memory(4096))
    drawn.hold(request("holder").share(700).gpu_memory(5000).cpu(1000).memory(96), FULL, 0)
    return drawn


NEAREST = [
    (
        "less share",
        half_full,
        request("r").share(400),
        "n1 card n1-gpu0 would take it with 300 thousandths of a card instead of 400 (100 missing)",
        (100, "thousandths of a card", "n1-gpu0"),
    ),
    (
        "less memory",
        half_full,
        request("r").share(100).gpu_memory(6000),
        "n1 card n1-gpu0 would take it with 5000 MiB of card memory instead of 6000 (1000 missing)",
        (1000, "MiB of card memory", "n1-gpu0"),
    ),
    (
        "less CPU",
        half_full,
        request("r").share(100).cpu(1500),
        "n1 card n1-gpu0 would take it with 1000 milli-cores instead of 1500 (500 missing)",
        (500, "milli-cores", "n1-gpu0"),
    ),
    (
        "less host memory, no card asked",
        half_full,
        request("r").cards(0).memory(5000),
        "n1 would take it with 4000 MiB of host memory instead of 5000 (1000 missing)",
        (1000, "MiB of host memory", ""),
    ),
    (
        "two things at once",
        half_full,
        request("r").share(600).cpu(2000),
        (
            "n1 card n1-gpu0 would take it with 300 thousandths of a card instead of 600 (300 missing) and "
            "1000 milli-cores instead of 2000 (1000 missing)"
        ),
        (300, "thousandths of a card", "n1-gpu0"),
    ),
    (
        "fewer cards",
        lambda: cluster(node("n1").gpus(4)),
        request("r").cards(5),
        "n1 card n1-gpu3 would take it with 4 cards instead of 5 (1 missing)",
        (1, "cards", "n1-gpu3"),
    ),
    (
        "wait for a silent node",
        lambda: cluster(node("n1").gpus(1).stale(), node("n2").gpus(1, memory_mib=10)),
        request("r").gpu_memory(20),
        "n1 card n1-gpu0 would take it once its monitor is heard again",
        (0, "", "n1-gpu0"),
    ),
    (
        "a tenth less now rather than waiting",
        lambda: cluster(node("n1").gpus(1).stale(), node("n2").gpus(1, memory_mib=90)),
        request("r").gpu_memory(100),
        "n2 card n2-gpu0 would take it with 90 MiB of card memory instead of 100 (10 missing)",
        (10, "MiB of card memory", "n2-gpu0"),
    ),
    (
        "a cordoned card",
        lambda: cluster(node("n1").gpus(1).card_health(0, "cordoned")),
        request("r"),
        "n1 card n1-gpu0 would take it once the card is uncordoned",
        (0, "", "n1-gpu0"),
    ),
    (
        "a taint",
        lambda: cluster(node("n1").gpus(1).taint("gpu")),
        request("r"),
        "n1 card n1-gpu0 would take it if the taint is tolerated",
        (0, "", "n1-gpu0"),
    ),
]


@pytest.mark.parametrize("case", NEAREST, ids=lambda case: case[0])
def test_the_nearest_change_is_told_in_one_sentence(
    case: tuple[str, object, Request, str, tuple[int, str, str]],
) -> None:
    """It names node, card and the missing number."""
    _, draw, asked, text, numbers = case
    drawn = draw()  # type: ignore[operator]  # a builder
    nearest = explain(drawn.state, drawn.accept(asked)).nearest

    assert nearest is not None
    assert nearest.text == text
    assert (nearest.missing, nearest.unit, nearest.card) == numbers


@pytest.mark.parametrize(
    ("capacity", "free", "share"), [(10_000, 1000, 100), (999, 1, 2), (46_067, 100, 2), (46_067, 138, 3), (400, 1, 4)]
)
def test_memory_that_follows_the_share_limits_the_share(capacity: int, free: int, share: int) -> None:
    """The largest share whose memory, rounded down, is still free."""
    drawn = cluster(node("n1").gpus(1, memory_mib=capacity))
    drawn.hold(request("holder").share(700).gpu_memory(capacity - free), "n1", 0)
    change = nearest_change(shape_of(request("r").share(200).build()), drawn.state.nodes, drawn.state.requests)

    assert change is not None
    assert change.shape.share_milli == share


def test_no_change_helps_where_there_is_no_card() -> None:
    """Nothing is made up."""
    drawn = cluster(node("n1"))

    assert explain(drawn.state, drawn.accept(request("r"))).nearest is None


holders = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1000), st.integers(0, 10_000)), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    held=holders,
    count=st.integers(0, 5),
    share=st.integers(1, 1000),
    memory=st.one_of(st.none(), st.integers(1, 20_000)),
    cpu=st.integers(0, 3000),
)
def test_the_nearest_change_really_fits(
    held: list[tuple[int, int, int]], count: int, share: int, memory: int | None, cpu: int
) -> None:
    """What is proposed without conditions fits the node that is named."""
    drawn = cluster(node("n1").gpus(2, memory_mib=9999).cpu(2000), node("n2").gpus(2, memory_mib=10_000).cpu(1000))
    for index, (card, milli, mib) in enumerate(held):
        place, where = card % 2, f"n{1 + card // 2}"
        state = list(drawn.state.nodes[where].cards.values())[place]
        if milli <= state.free_milli and mib <= state.free_mib:
            drawn.hold(request(f"h{index}").share(milli).gpu_memory(mib), where, place)
    asked = request("r").cards(count).share(share).cpu(cpu)
    shape = shape_of((asked if memory is None else asked.gpu_memory(memory)).build())
    change = nearest_change(shape, drawn.state.nodes, drawn.state.requests)
    every = [change_for(shape, each, drawn.state.requests) for each in drawn.state.nodes.values()]
    costs = [each.cost for each in every if each is not None]

    assert (change.cost if change else None) == min(costs, default=None)
    if change is None or change.conditions:
        return
    view = view_of(drawn.state.nodes[change.node], drawn.state.requests)

    assert fits(change.shape, view, in_position, NOTHING_KNOWN) is not None
    assert (change.cost == 0) == (
        not reasons_against(shape, {change.node: drawn.state.nodes[change.node]}, drawn.state.requests)
    )


def test_what_is_pending_is_told_reasons_and_the_closest_nodes() -> None:
    """Eight nodes of three kinds: one line for each kind with its count; the closest five nodes by themselves."""
    drawn = cluster(
        *(node(f"full{i}").gpus(1, memory_mib=1000 + i) for i in range(4)),
        *(node(f"silent{i}").gpus(1).stale() for i in range(3)),
        node("bare"),
    )
    told = explain(drawn.state, drawn.accept(request("r").gpu_memory(2000)))

    assert [(r.code, r.nodes, r.free) for r in told.reasons] == [
        ("card-memory", 4, 1003),
        ("cards", 1, 0),
        ("stale", 3, None),
    ]
    assert [v.node for v in told.nodes] == ["full3", "full2", "full1", "full0", "bare"]
    assert all(v.score is None and v.reason is not None for v in told.nodes)
    assert (told.phase, told.ledger_sequence) == ("pending", drawn.state.sequence)


def test_what_if_tells_where_it_would_go_and_changes_nothing() -> None:
    """The placement that `decide` would make, scores by rule that add up, best nodes first."""
    drawn = cluster(*(node(f"n{i}").gpus(2) for i in range(8)), node("silent").gpus(1).stale())
    drawn.hold(request("h").share(500), "n5", 1)
    sequence = drawn.state.sequence
    told = what_if(drawn.state, "default", request("r").share(500).policy("packing").build())
    decision = decide(drawn.state, drawn.accept(request("r").share(500).policy("packing")))

    assert isinstance(decision, Placed)
    assert (told.placement, told.rationale) == (decision.placement, decision.rationale)
    assert (told.phase, told.ledger_sequence, told.reasons, told.nearest) == ("would be placed", sequence, (), None)
    assert told.nodes[0].node == "n5"
    assert len([v for v in told.nodes if v.reason is None]) == FEASIBLE_SHOWN
    assert [v.node for v in told.nodes if v.reason] == ["silent"]
    assert all(sum(v.scores.values()) == v.score for v in told.nodes[:FEASIBLE_SHOWN])
    assert REJECTED_SHOWN >= 1


def test_what_is_placed_is_told_from_its_decision() -> None:
    """Placement, rationale and the ledger sequence it stands in; no reasons."""
    drawn = cluster(node("n1").gpus(1))
    placed = drawn.hold(request("r"), "n1", 0)
    told = explain(drawn.state, placed)

    assert (told.phase, told.placement, told.rationale) == ("placed", placed.placement, placed.rationale)
    assert (told.ledger_sequence, told.policy, told.reasons) == (placed.decided_at, "test", ())


def test_a_member_that_fits_alone_is_told_about_its_gang() -> None:
    """Two whole cards, a gang of three: a member alone would fit."""
    drawn = cluster(node("n1").gpus(2))
    members = [drawn.accept(request(f"m{i}").gang("g", 3)) for i in range(3)]
    told = explain(drawn.state, members[0])

    assert [(r.code, r.needed, r.free) for r in told.reasons] == [("gang", 3, 2), ("card-share", 1000, 0)]


def test_an_unknown_policy_is_an_answer() -> None:
    """It names those that exist."""
    told = what_if(cluster(node("n1").gpus(1)).state, "default", request("r").policy("best").build())

    assert [r.code for r in told.reasons] == ["policy"]
    assert "seed-best-fit" in told.reasons[0].text


def test_explanations_are_equal_bytes_whatever_the_order_of_nodes() -> None:
    """Total orders throughout."""
    names = [f"n{i}" for i in range(12)]
    answers = []
    for order in (names, list(reversed(names))):
        drawn = cluster(node(name).gpus(1, memory_mib=1000) for name in order)
        drawn.state.sequence = 7
        answers.append(encode(what_if(drawn.state, "default", request("r").gpu_memory(2000).build())))

    assert answers[0] == answers[1]
