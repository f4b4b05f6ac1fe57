"""Choosers of environments and cards, the two counting policies, and who owns which knob."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.core.choosers import (
    CardSlots,
    Environment,
    any_of,
    best_fit,
    first_fit,
    in_turn,
    near_data,
    off_node,
    on_node,
)
from autoscaler.core.counters import MaxCount, Policy, Step, Watermark, on_deploy, on_finished, on_none_idle
from autoscaler.core.ownership import OWNERS, NoSuchKnob, answer_to_rival, may_write, owner_of

A = CardSlots(uuid="A", node="g1", memory_mib=16_000, used_mib=10_000, ports=(4001, 4002))
B = CardSlots(uuid="B", node="g2", memory_mib=16_000, ports=(5001, 5002))
FULL = CardSlots(uuid="A", node="g1", memory_mib=16_000, used_mib=10_000, ports=(4001, 4002), busy=frozenset({0, 1}))


@pytest.mark.parametrize(
    ("memory", "cards", "best", "first"),
    [
        (4000, (A, B), "A", "A"),
        (7000, (A, B), "B", "B"),
        (6000, (A, B), "A", "A"),
        (17_000, (A, B), None, None),
        (4000, (FULL, B), "B", "B"),
        (4000, (B, A), "A", "B"),
        (4000, (), None, None),
        (4000, (FULL,), None, None),
    ],
)
def test_cards_are_chosen_by_memory_and_a_free_slot(
    memory: int, cards: tuple[CardSlots, ...], best: str | None, first: str | None
) -> None:
    """The published vectors. A card without a free slot is no card."""
    fits = best_fit(memory, cards), first_fit(memory, cards)

    assert tuple(grant and grant.card for grant in fits) == (best, first)


def test_of_equal_cards_the_first_is_taken() -> None:
    """In the order of the caller, not of a hash."""
    twin = CardSlots(uuid="C", node="g3", memory_mib=16_000, ports=(6001,))

    assert [best_fit(1, order).card for order in ((B, twin), (twin, B)) if best_fit(1, order)] == ["B", "C"]  # type: ignore[union-attr]


def test_a_grant_names_the_first_free_slot_and_the_port_of_its_worker() -> None:
    """As the node told it, not counted up from a constant."""
    half = CardSlots(uuid="A", node="g1", memory_mib=16_000, ports=(4001, 4777), busy=frozenset({0}))
    grant = best_fit(100, (half,))

    assert grant is not None
    assert (grant.slot, grant.port, grant.memory_mib, grant.node) == (1, 4777, 100, "g1")


IDLE = [Environment(name="a", node="n1"), Environment(name="b", node="n2"), Environment(name="c", node="n2")]


def name_of(environment: Environment | None) -> str | None:
    return None if environment is None else environment.name


def test_a_call_goes_to_where_its_data_lies() -> None:
    """If there is data, and somebody idle there; else to any."""
    assert name_of(near_data(IDLE, 0, previous_node="n2", uploads=1)) == "b"
    assert name_of(near_data(IDLE, 2, previous_node="n2", uploads=0)) == "c"
    assert name_of(near_data(IDLE, 0, previous_node="n9", uploads=1)) == "a"
    assert name_of(near_data(IDLE, 1, uploads=1)) == "b"
    assert near_data([], 5, previous_node="n2", uploads=1) is None


def test_chance_comes_from_outside() -> None:
    """Any whole number picks somebody."""
    assert [name_of(any_of(IDLE, chance)) for chance in (0, 4, -1)] == ["a", "b", "c"]
    assert any_of([], 3) is None


def test_forced_and_refused_locality() -> None:
    """For experiments: only there, only elsewhere."""
    assert (name_of(on_node(IDLE, "n2")), name_of(off_node(IDLE, "n1"))) == ("b", "b")
    assert (on_node(IDLE, "n3"), off_node(IDLE[:1], "n1")) == (None, None)


def test_in_turn_works_with_one_node() -> None:
    """The ring of one node is that node."""
    assert [name_of(in_turn(IDLE, last)) for last in ("", "n1", "n2")] == ["a", "b", "a"]
    assert name_of(in_turn(IDLE[:1], "n1")) == "a"
    assert in_turn([], "n1") is None


ENDING = Watermark(low=2, reuse=False)
POLICIES: list[tuple[str, Policy, str, tuple[int, ...], Step]] = [
    ("maxcount deploys the minimum", MaxCount(), "deploy", (2, 20), Step(count=2, start=2)),
    ("unless told not to", MaxCount(deploy_min=False), "deploy", (2, 20), Step(count=0)),
    ("never beyond the function's maximum", MaxCount(), "deploy", (9, 4), Step(count=4, start=4)),
    ("watermark deploys the high mark", Watermark(high=9), "deploy", (0, 20), Step(count=9, start=9)),
    ("within the function's maximum", Watermark(high=9), "deploy", (0, 4), Step(count=4, start=4)),
    ("maxcount adds one", MaxCount(highest=3), "none", (2, 20), Step(count=3, start=1)),
    ("up to its number", MaxCount(highest=3), "none", (3, 20), Step(count=3)),
    ("or the function's", MaxCount(), "none", (4, 4), Step(count=4)),
    ("or not at all", MaxCount(no_scaleup=True), "none", (0, 20), Step(count=0)),
    ("watermark adds one", Watermark(high=9), "none", (8, 20), Step(count=9, start=1)),
    ("up to the mark", Watermark(high=9), "none", (9, 20), Step(count=9)),
    ("maxcount keeps", MaxCount(), "finished", (3, 20), Step(count=3)),
    ("or ends", MaxCount(reuse=False), "finished", (3, 20), Step(count=2, end=True)),
    ("watermark keeps, and one that is kept is counted", Watermark(low=2), "finished", (3, 20), Step(count=3)),
    ("watermark ends one", ENDING, "finished", (3, 20), Step(count=2, end=True)),
    ("and fills up below the low mark", ENDING, "finished", (2, 20), Step(count=9, start=8, end=True)),
    ("within the function's maximum too", ENDING, "finished", (2, 4), Step(count=4, start=3, end=True)),
    ("never below none", Watermark(reuse=False), "finished", (0, 20), Step(count=0, end=True)),
]  # fmt: skip
EVENTS: dict[str, Any] = {"deploy": on_deploy, "none": on_none_idle, "finished": on_finished}


@pytest.mark.parametrize(("claim", "policy", "event", "numbers", "step"), POLICIES, ids=[row[0] for row in POLICIES])
def test_counting_policies(claim: str, policy: Policy, event: str, numbers: tuple[int, ...], step: Step) -> None:
    """Per function, with a real maximum."""
    assert EVENTS[event](policy, *numbers) == step


def test_every_knob_has_one_owner_in_each_mode() -> None:
    """No row twice; of all writers exactly one may write."""
    writers = ["people", "horizontal", "warm", "elastic", "vertical", "scheduler", "node", "hpa", "edl"]
    assert len({(row.kind, row.knob) for row in OWNERS}) == len(OWNERS)
    for row in OWNERS:
        for mode in ("auto", "fixed"):
            assert [w for w in writers if may_write(w, row.kind, row.knob, mode)] == [
                owner_of(row.kind, row.knob, mode)
            ]


def test_a_number_by_hand_takes_the_knob_from_the_machines() -> None:
    """A fixed number of replicas is nobody's to move."""
    assert may_write("horizontal", "function", "replicas")
    assert not may_write("horizontal", "function", "replicas", "fixed")
    assert may_write("people", "function", "replicas", "fixed")


def test_two_scalers_never_own_one_number() -> None:
    """Replicas, trainers, limits and the warm pool belong to four different writers."""
    knobs: list[tuple[Any, str]] = [
        ("function", "replicas"),
        ("job", "trainers"),
        ("pod", "share"),
        ("function", "warm"),
    ]
    owners = [owner_of(*knob) for knob in knobs]

    assert owners == ["horizontal", "elastic", "vertical", "warm"]


def test_nobody_writes_what_nobody_owns() -> None:
    """An unknown knob is an error to ask for and closed to write."""
    assert not may_write("people", "function", "colour")
    with pytest.raises(NoSuchKnob, match="function has no knob 'colour'; it has: replicas, bounds, warm, partition"):
        owner_of("function", "colour")


def test_a_rival_is_answered_three_times_and_then_not_fought() -> None:
    """An HPA that writes every 15 s: reverted thrice, then scaling stands still; a write an hour later is new."""
    writes = [0, 15_000, 30_000]

    assert answer_to_rival(writes, 30_000, 60_000, "revert") == "revert"
    assert answer_to_rival(writes, 30_000, 60_000, "adopt") == "adopt"
    assert answer_to_rival([*writes, 45_000], 45_000, 60_000, "revert") == "stand-back"
    assert answer_to_rival([*writes, 45_000, 3_600_000], 3_600_000, 60_000, "revert") == "revert"
