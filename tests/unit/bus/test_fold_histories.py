"""What holds after any legal history."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.ledger.fold import ChainBroken, apply, apply_record
from bus.ledger.snapshot import copy, digest
from contracts.decisions import (
    FactsSet,
    HealthSet,
)
from contracts.inventory import NodeFacts
from contracts.units import CardUuid, NodeName
from tests.builders.history import Step, inventory, over, steps, tell, validate

N1 = NodeName("n1")
A, B = CardUuid("n1-gpu0"), CardUuid("n1-gpu1")


# --- histories -----------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(steps)
def test_any_legal_history_keeps_every_sum_and_sells_no_card_twice(history: list[Step]) -> None:
    """Claim: indexes and sums are what counting again gives, and what was assumed is what was committed."""
    story = tell(history)
    validate(story.log.state)
    assert over(story.log.state) == []
    assert digest(story.assumed) == digest(story.log.state)


@settings(max_examples=80, deadline=None)
@given(steps)
def test_the_same_log_gives_the_same_state_and_never_twice(history: list[Step]) -> None:
    """Claim: folding is a function of the log, and a commit that comes twice is refused, not counted twice (S013)."""
    log = tell(history).log
    state = log.replay()
    assert digest(state) == digest(log.state)
    for commit, sequence in log.commits[-2:]:
        with pytest.raises(ChainBroken):
            apply(state, commit, sequence)
    assert digest(state) == digest(log.state)


@settings(max_examples=80, deadline=None)
@given(steps, st.permutations(["n1", "n2", "n3"]))
def test_the_order_of_unrelated_records_does_not_matter(history: list[Step], order: list[str]) -> None:
    """Claim: records about different nodes commute."""
    states = []
    for names in (["n1", "n2", "n3"], order):
        state = copy(tell(history).log.state)
        for name in names:
            for record in (
                inventory(name, f"{name}-x", f"{name}-y"),
                FactsSet(facts=NodeFacts(node=NodeName(name), uid="v", allocatable_cpu_milli=10)),
                HealthSet(node=NodeName(name), health="suspect", reason="r"),
            ):
                apply_record(state, record, state.sequence + 1)
        states.append(digest(state))
    assert states[0] == states[1]


@settings(max_examples=60, deadline=None)
@given(steps, st.data())
def test_a_mutilated_log_is_refused(history: list[Step], data: st.DataObject) -> None:
    """Claim: dropping any commit but the last breaks the chain."""
    log = tell(history).log
    dropped = data.draw(st.integers(0, len(log.commits) - 2))
    state = log.replay(dropped)
    with pytest.raises(ChainBroken):
        apply(state, *log.commits[dropped + 1])
