"""The state as bytes: one spelling, nothing lost, damage refused; and the copy."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.ledger.fold import apply
from bus.ledger.snapshot import SnapshotError, copy, digest, dump, load
from bus.ledger.state import LedgerState
from contracts.decisions import Withdrawn
from tests.builders.history import Log, Step, accepted, steps, tell, validate
from tests.builders.ledger import cluster, node, request

GOLDEN = "caff31043a5ccfa843d31d8106fdafd2ea992d7d00a6fa744160ccf38a76e37e"
"""Of `a_little_of_everything`. Another one means that checkpoints changed: raise FORMAT if old ones would mislead."""


def a_little_of_everything() -> LedgerState:
    """A state with a queue, placements, a lost card, finished requests and a mix."""
    kinds = ("accept", "place", "observe", "withdraw", "release", "adopt", "resize", "commit")
    history: list[Step] = [(kind, 7 * i % 60, 11 * i % 60) for i in range(1, 40) for kind in kinds]
    return tell([*history, ("cards", 0, 1), ("card_health", 1, 3)]).log.state


def shuffled(state: LedgerState, seed: int) -> LedgerState:
    """The same value with every dict whose order means nothing in another order."""
    rng, other = random.Random(seed), copy(state)
    for field in ("nodes", "requests", "by_key", "recent_by_key", "homes", "mix"):
        setattr(other, field, _mixed(getattr(other, field), rng))
    for one in other.nodes.values():
        one.residents = _mixed(one.residents, rng)
        for card in one.cards.values():
            card.residents = _mixed(card.residents, rng)
    return other


def _mixed(whole: dict[Any, Any], rng: random.Random) -> dict[Any, Any]:
    items = list(whole.items())
    rng.shuffle(items)
    return dict(items)


def test_the_digest_is_the_same_on_every_machine() -> None:
    """Claim: nothing of this process (hash seed, addresses, order of sets) is in it."""
    assert digest(a_little_of_everything()) == GOLDEN


def test_the_dump_covers_every_field_of_the_state() -> None:
    """Claim: a new field of LedgerState must be stored, computed or excluded here on purpose."""
    stored = {"pool", "epoch", "sequence", "number", "requests_through", "nodes", "requests", "pending", "recent"}
    stored |= {"learned", "learned_at", "learned_service", "coming", "coming_at", "coming_service", "mix", "service"}
    stored |= {"clock_ms", "began", "ended", "totals"}
    stored |= {"evicted", "quotas"}
    computed = {"by_key", "recent_by_key", "homes", "usage", "nominated"}
    assert set(LedgerState.__struct_fields__) == stored | computed | {"touched"}


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(0, 2**32))
def test_equal_states_give_equal_bytes_whatever_the_order_of_their_dicts(history: list[Step], seed: int) -> None:
    """Claim: insertion history does not show."""
    state = tell(history).log.state
    assert dump(shuffled(state, seed)) == dump(state)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_a_loaded_state_is_the_dumped_one(history: list[Step]) -> None:
    """Claim: nothing is lost, every index and sum is there again, and the order of queue and memory is kept."""
    state = tell(history).log.state
    again = load(dump(state))
    validate(again)
    assert dump(again) == dump(state)
    assert (again.requests, again.nodes, again.totals) == (state.requests, state.nodes, state.totals)
    for field in ("pending", "recent", "recent_by_key", "requests"):
        assert list(getattr(again, field)) == list(getattr(state, field))
    assert {n: list(s.cards) for n, s in again.nodes.items() if all(c.present for c in s.cards.values())} == {
        n: list(s.cards) for n, s in state.nodes.items() if all(c.present for c in s.cards.values())
    }


@settings(max_examples=80, deadline=None)
@given(steps, st.data())
def test_a_fold_that_goes_on_from_a_loaded_or_copied_state_ends_where_the_whole_fold_ends(
    history: list[Step], data: st.DataObject
) -> None:
    """Claim: checkpoint + tail = whole fold, at every cut; and the state that was left behind has not moved."""
    log = tell(history).log
    cut = data.draw(st.integers(0, len(log.commits)))
    left = log.replay(cut)
    before = dump(left)
    for state in (load(before), copy(left)):
        for commit, sequence in log.commits[cut:]:
            apply(state, commit, sequence)
        validate(state)
        assert digest(state) == digest(log.state)
    assert dump(left) == before


def test_whatever_is_done_to_a_copy_the_original_stays() -> None:
    """Claim: nothing that can change is shared, down to the residents of a card."""
    c = cluster(node("n1").gpus(2))
    held, waiting = c.hold(request("a").share(100), "n1", 0), c.accept(request("b"))
    before = dump(c.state)
    other = copy(c.state)
    assert other.touched is not c.state.touched
    other.requests[held.uid].phase = "running"
    other.pending[waiting.uid].detail = "x"
    other.nodes["n1"].cards["n1-gpu0"].residents.clear()
    other.nodes["n1"].cards["n1-gpu1"].used_milli = 7
    other.nodes["n1"].residents.clear()
    other.totals.ended = 9
    for field in ("nodes", "requests", "by_key", "pending", "recent", "recent_by_key", "homes", "mix"):
        getattr(other, field).clear()
    assert dump(c.state) == before
    validate(c.state)


def test_an_empty_state_survives() -> None:
    """Claim: the beginning is a state too."""
    assert dump(load(dump(LedgerState(pool="p")))) == dump(LedgerState(pool="p"))


def _line(data: bytes, index: int, **changes: Any) -> bytes:
    lines = data.split(b"\n")
    lines[index] = msgspec.json.encode({**msgspec.json.decode(lines[index]), **changes})
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda d: b"", "unreadable"),
        (lambda d: d[:-1], "unreadable"),
        (lambda d: d[: d.rindex(b"\n")], "lines of format 1"),
        (lambda d: d + b"\n" + d.split(b"\n")[-1], "lines of format 1"),
        (lambda d: _line(d, 0, format=2), "lines of format 2"),
        (lambda d: _line(d, 1, used_cpu_milli=1), "does not add up"),
        (lambda d: d.replace(b'"used_milli":300', b'"used_milli":299'), "does not add up"),
        (lambda d: d.replace(b'"node":"n1","slices"', b'"node":"n9","slices"'), "unreadable"),
        (lambda d: d.replace(b'"slices":[{"card":"n1-gpu0"', b'"slices":[{"card":"n1-gpu7"'), "unreadable"),
    ],
)
def test_damaged_bytes_are_refused(damage: Any, text: str) -> None:
    """Claim: a state is loaded whole and adding up, or not at all."""
    c = cluster(node("n1").gpus(2))
    c.hold(request("a").share(300), "n1", 0)
    c.accept(request("b"))
    data = dump(c.state)
    assert damage(data) != data
    with pytest.raises(SnapshotError, match=text):
        load(damage(data))


def test_the_queue_keeps_its_order_beyond_ten_in_one_commit() -> None:
    """Claim: the eleventh request of a commit does not sort between the first and the second."""
    log = Log()
    log.write(*(accepted(f"e0000000-2-{i}", f"r{i}") for i in range(12)))
    log.write(Withdrawn(uid=next(iter(log.state.requests))))
    again = load(dump(log.state))
    assert [r.request.name for r in again.pending.values()] == [f"r{i}" for i in range(1, 12)]
    assert list(again.requests) == list(log.state.requests)
