"""The last word on a job's number of trainers: rules in their order, what is not known, and decisions made again."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.elastic_settle import Inputs, as_integers, decide, of_integers, replay, wants_to_grow
from contracts.workloads import ScaleDecision


def inputs(**changes: Any) -> Inputs:
    """Four trainers of one to eight, nothing wanted, changed long ago."""
    usual = {
        "generation": 3,
        "present": 4,
        "minimum": 1,
        "maximum": 8,
        "wish": 4,
        "since_change_ms": 60_000,
        "grow_after_ms": 15_000,
        "shrink_after_ms": 30_000,
    }
    return Inputs(**{**usual, **changes})


class Ruled(NamedTuple):
    """What was different, and the answer."""

    name: str
    changes: dict[str, Any]
    answer: tuple[int, str]


RULED = [
    Ruled("nothing is wanted", {}, (4, "steady")),
    Ruled("there is room and the scheduler says so", {"wish": 7, "placeable": 3}, (7, "room")),
    Ruled("it says so for fewer", {"wish": 7, "placeable": 1}, (5, "room")),
    Ruled("it says no", {"wish": 7, "placeable": 0}, (4, "not-placeable")),
    Ruled("it does not answer: no growth", {"wish": 7}, (4, "no-answer")),
    Ruled("it has just changed", {"wish": 7, "placeable": 3, "since_change_ms": 14_999}, (4, "cool-down")),
    Ruled("too much is asked for", {"wish": 2}, (2, "overload")),
    Ruled("too much, and it has just changed", {"wish": 2, "since_change_ms": 29_999}, (4, "cool-down")),
    Ruled("somebody waits: at once", {"wish": 2, "yields": 1, "since_change_ms": 0}, (2, "yields")),
    Ruled("never below the minimum", {"wish": 0, "yields": 1}, (1, "yields")),
    Ruled("never above the maximum", {"wish": 12, "placeable": 9}, (8, "room")),
    Ruled("bounds need no reason and no patience", {"present": 9, "since_change_ms": 0}, (8, "max")),
    Ruled("nor room", {"present": 1, "minimum": 3, "wish": None}, (3, "min")),
    Ruled("the cluster cannot be read", {"wish": None}, (4, "unknown")),
    Ruled("a seat is needed, and there is room elsewhere", {"yields": 1, "moves": 1}, (4, "moves")),
    Ruled("two have waited too long", {"wish": 6, "placeable": 2, "given_up": 2}, (2, "no-room")),
    Ruled("paused", {"wish": 2, "yields": 1, "paused": 1}, (4, "paused")),
    Ruled("paused, and above its maximum", {"present": 9, "paused": 1}, (8, "max")),
    Ruled("frozen by an operator: bounds wait too", {"present": 9, "frozen": 1}, (9, "frozen")),
]


@pytest.mark.parametrize("case", RULED, ids=lambda c: c.name)
def test_the_first_rule_that_applies_decides(case: Ruled) -> None:
    """One case a rule, and one for each pair whose order matters."""
    assert decide(inputs(**case.changes)) == case.answer


def test_the_scheduler_is_asked_only_when_its_answer_decides() -> None:
    """Not in a cool-down, not for a job that shrinks, not for one below its minimum."""
    asked = [
        wants_to_grow(inputs(**changes)) for changes in ({"wish": 5}, {"wish": 5, "since_change_ms": 0}, {"wish": 3})
    ]

    assert asked == [True, False, False]
    assert not wants_to_grow(inputs(present=1, minimum=3, wish=5))


NUMBERS = st.integers(0, 20)
ANY = st.builds(
    Inputs,
    generation=NUMBERS,
    present=NUMBERS,
    minimum=st.integers(1, 4),
    maximum=st.integers(4, 9),
    wish=st.none() | NUMBERS,
    yields=st.integers(0, 1),
    moves=st.integers(0, 2),
    placeable=st.none() | NUMBERS,
    given_up=st.integers(0, 3),
    since_change_ms=NUMBERS,
    grow_after_ms=NUMBERS,
    shrink_after_ms=NUMBERS,
    paused=st.integers(0, 1),
    frozen=st.integers(0, 1),
    ledger=NUMBERS,
)


@given(ANY)
def test_whatever_the_inputs_the_target_is_within_bounds_or_unchanged(given_inputs: Inputs) -> None:
    """S140: a maximum of five is never more than five."""
    target, rule = decide(given_inputs)

    assert given_inputs.minimum <= target <= given_inputs.maximum or rule == "frozen"


@given(ANY)
def test_a_decision_is_made_again_from_its_message_alone(given_inputs: Inputs) -> None:
    """Through JSON, as somebody reads it later."""
    target, rule = decide(given_inputs)
    message = ScaleDecision(
        namespace="team",
        name="bert",
        kind="job",
        target=target,
        present=given_inputs.present,
        rule=rule,
        inputs=as_integers(given_inputs),
    )
    again = msgspec.json.decode(msgspec.json.encode(message), type=ScaleDecision)

    assert replay(again) == (target, rule)
    assert of_integers(again.inputs) == given_inputs
