"""What the log teaches: lifetimes by class, stamped by the clock of commits, frozen at learning points."""

from __future__ import annotations

from bus.ledger.fold import apply_record, tell_time
from bus.ledger.learning import FIRST_LEARNING_POINT, IN_FORCE_AFTER, lived, mix_key
from bus.ledger.snapshot import copy, digest, dump, load
from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, Released, Reserved
from contracts.units import RequestUid
from tests.builders.ledger import Cluster, cluster, node, request

KEY = mix_key(request("r").share(500).build())


def roomy() -> Cluster:
    """One node with room for all."""
    return cluster(node("n1").gpus(4).cpu(1_000_000).pods(1000))


def test_a_life_is_counted_from_the_commit_that_placed_it_to_the_one_that_ended_it() -> None:
    """A placement has no time of its own: the end of its commit stamps it."""
    made = roomy()
    held = made.hold(request("a").share(500), "n1", 0)
    assert held.started_ms == 0
    tell_time(made.state, 1_000)
    assert (held.started_ms, lived(made.state)) == (1_000, {KEY: (0, 0)})
    tell_time(made.state, 61_000)
    assert lived(made.state) == {KEY: (60_000, 0)}  # it still runs
    made.fold(Released(uid=held.uid, evidence="ended"))
    tell_time(made.state, 91_000)
    assert lived(made.state) == {KEY: (90_000, 1)}


def test_what_begins_and_ends_in_one_commit_is_not_counted() -> None:
    """Nor is what began when no clock had been told."""
    made = roomy()
    short = made.hold(request("a").share(500), "n1", 0)
    made.fold(Released(uid=short.uid, evidence="rejected"))
    tell_time(made.state, 1_000)
    unknown = roomy()
    early = unknown.hold(request("a").share(500), "n1", 0)
    tell_time(unknown.state, 0)
    unknown.fold(Released(uid=early.uid, evidence="ended"))
    tell_time(unknown.state, 5_000)
    assert lived(made.state) == lived(unknown.state) == {}


def test_a_clock_that_goes_back_makes_no_life_negative() -> None:
    """Neither of those that ended nor of those that run."""
    made = roomy()
    held = [made.hold(request(f"r{i}").share(200), "n1", 0) for i in range(2)]
    tell_time(made.state, 100_000)
    made.fold(Released(uid=held[0].uid, evidence="ended"))
    tell_time(made.state, 40_000)
    assert lived(made.state) == {mix_key(held[0].request): (0, 1)}


def test_an_acceptance_tells_the_time_as_well() -> None:
    """A simulation without commits, and the records within a commit."""
    made = roomy()
    made.hold(request("a").share(500), "n1", 0)
    for number, now in enumerate((7_000, 9_000)):
        accepted = Accepted(
            uid=RequestUid(f"e-{number}-1"), namespace="n", request=request(f"b{number}").build(), submitted_ms=now
        )
        apply_record(made.state, accepted, 1)
    assert lived(made.state) == {KEY: (2_000, 0)}


def test_what_is_learned_comes_into_force_some_requests_later() -> None:
    """In between both stand in the state: what decisions go by, and what is coming."""
    made = roomy()
    first = made.hold(request("first").share(500), "n1", 0)
    tell_time(made.state, 1_000)
    tell_time(made.state, 5_000)
    for index in range(FIRST_LEARNING_POINT - 1):
        made.accept(request(f"r{index}").share(500))
    assert (made.state.coming, made.state.coming_service) == ({KEY: FIRST_LEARNING_POINT}, {KEY: (4_000, 0)})
    assert (made.state.learned, made.state.learned_at) == ({}, 0)
    tell_time(made.state, 50_000)
    for index in range(IN_FORCE_AFTER):
        made.accept(request(f"s{index}").share(500))
    assert (made.state.learned, made.state.learned_at) == ({KEY: FIRST_LEARNING_POINT}, FIRST_LEARNING_POINT)
    assert made.state.learned_service == {KEY: (4_000, 0)}
    assert first.started_ms == 1_000


def test_lifetimes_survive_a_dump_and_a_copy_is_apart() -> None:
    """All of it is a part of the state."""
    made = roomy()
    held = made.hold(request("a").share(500), "n1", 0)
    tell_time(made.state, 1_000)
    again, apart = load(dump(made.state)), copy(made.state)
    for state in (again, apart):
        apply_record(state, Released(uid=held.uid, evidence="ended"), 9)
        tell_time(state, 4_000)
        assert lived(state) == {KEY: (3_000, 1)}
    assert digest(again) == digest(apart)
    assert lived(made.state) == {KEY: (0, 0)}


def test_a_state_that_was_dumped_before_lifetimes_is_read() -> None:
    """Its head has none of the fields; what runs is not counted."""
    made = roomy()
    made.hold(request("a").share(500), "n1", 0)
    made.state.began = []
    head, rest = dump(made.state).split(b"\n", 1)
    assert b"service" not in head
    old: LedgerState = load(head + b"\n" + rest)
    tell_time(old, 1_000)
    assert lived(old) == {}


def test_placing_is_what_begins_a_life() -> None:
    """Waiting does not count."""
    made = roomy()
    waiting = made.accept(request("a").share(500))
    tell_time(made.state, 1_000)
    placed = roomy()
    held = placed.hold(request("a").share(500), "n1", 0)
    assert held.placement is not None
    assert held.rationale is not None
    made.fold(Reserved(uid=waiting.uid, placement=held.placement, rationale=held.rationale))
    tell_time(made.state, 9_000)
    assert waiting.started_ms == 9_000
