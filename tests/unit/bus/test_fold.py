"""What each record does to the state."""

from __future__ import annotations

from typing import Any

import pytest

from bus.ledger import state as limits
from bus.ledger.fold import mix_key
from bus.ledger.learning import MIX_LIMIT
from bus.ledger.rules import InvariantBroken
from bus.ledger.snapshot import copy, dump, load
from bus.ledger.state import Touched
from contracts.decisions import (
    CardHealthSet,
    EpochStarted,
    FactsSet,
    HealthSet,
    Observed,
    Placement,
    Released,
    Resized,
    Withdrawn,
)
from contracts.inventory import NodeFacts
from contracts.units import CardUuid, NodeName, RequestUid
from tests.builders.history import Log, accepted, adopted, inventory, piece, validate
from tests.builders.ledger import cluster, node, request

N1 = NodeName("n1")
A, B = CardUuid("n1-gpu0"), CardUuid("n1-gpu1")


# --- what each record does -----------------------------------------------------------------------------------------


def test_an_accepted_request_is_pending_under_its_name_and_counted() -> None:
    """Claim: acceptance puts a request in the queue, addressable, and into the mix."""
    c = cluster()
    r = c.accept(request("a").share(500))
    assert list(c.state.pending) == [r.uid]
    assert c.state.find(r.key) is r
    assert (c.state.totals.accepted, r.phase, r.accepted_at) == (1, "pending", 1)
    assert c.state.mix == {mix_key(r.request): 1}
    validate(c.state)


def test_a_reserved_request_holds_its_slices_cpu_and_memory() -> None:
    """Claim: a decision is charged to node and card, and leaves the queue."""
    c = cluster(node("n1").gpus(2))
    r = c.hold(request("a").share(300).gpu_memory(7).cpu(1500).memory(64), "n1", 1)
    n1, card = c.state.nodes["n1"], c.state.nodes["n1"].cards[B]
    assert (card.used_milli, card.used_mib, card.free_milli) == (300, 7, 700)
    assert (n1.used_cpu_milli, n1.used_memory_mib) == (1500, 64)
    assert (r.phase, r.decided_at, c.state.pending) == ("placed", c.state.sequence, {})
    assert r.rationale is not None
    validate(c.state)


def test_a_released_request_gives_back_exactly_what_it_held() -> None:
    """Claim: release undoes the charge, frees the name, and is remembered."""
    c = cluster(node("n1").gpus(1))
    before = c.state.nodes["n1"].free_cpu_milli
    r = c.hold(request("a").share(300).gpu_memory(7), "n1", 0)
    c.release(r.uid)
    card = c.state.nodes["n1"].cards[A]
    assert (card.used_milli, card.used_mib, card.residents) == (0, 0, {})
    assert c.state.nodes["n1"].free_cpu_milli == before
    assert (c.state.find(r.key), r.phase, r.ending) == (r, "ended", "ended")
    c.accept(request("a"))
    validate(c.state)


def test_a_withdrawn_pending_request_leaves_the_queue_at_once() -> None:
    """Claim: nothing was held, so nothing has to be seen gone."""
    c = cluster()
    r = c.accept(request("a"))
    c.fold(Withdrawn(uid=r.uid, reason="no"))
    assert (c.state.pending, c.state.totals.withdrawn, r.phase, r.detail) == ({}, 1, "withdrawn", "no")
    validate(c.state)


def test_observations_move_a_placed_request_and_keep_the_pod_name() -> None:
    """Claim: bound, then running; an observation without a name does not lose it."""
    c = cluster(node("n1").gpus(1))
    r = c.hold(request("a"), "n1", 0)
    c.fold(Observed(uid=r.uid, phase="bound", pod="a-x"), Observed(uid=r.uid, phase="running"))
    assert (r.phase, r.pod) == ("running", "a-x")
    validate(c.state)


def test_a_resize_changes_every_slice_on_the_cards_it_has() -> None:
    """Claim: growth and shrinking in place, charged by the difference on each card."""
    c = cluster(node("n1").gpus(2))
    r = c.hold(request("a").cards(2).share(300).gpu_memory(10), "n1", 0, 1)
    c.fold(Resized(uid=r.uid, share_milli=1000, memory_mib=5))
    assert [(x.used_milli, x.used_mib) for x in c.state.cards()] == [(1000, 5)] * 2
    validate(c.state)


def test_a_new_epoch_forgets_all_but_the_chain() -> None:
    """Claim: a rebuild begins empty, in the same log."""
    log = Log()
    log.write(inventory("n1", "x"), accepted("u1", "a"))
    log.write(Withdrawn(uid=RequestUid("u1")))
    touched = log.state.touched
    log.write(EpochStarted(epoch="e2", reason="rebuilt"), accepted("u1", "a"), epoch="e2", requests_through=0)
    assert (log.state.epoch, log.state.number, list(log.state.nodes)) == ("e2", 4, [])
    assert log.state.totals.accepted == 1
    assert log.state.touched is not touched, "positions in the old one mean nothing any more"
    validate(log.state)


def test_the_position_in_the_requests_stream_is_part_of_the_state() -> None:
    """Claim: a committed position is the acknowledgement; it never goes back."""
    log = Log()
    log.write(requests_through=7)
    log.write()
    assert log.state.requests_through == 7


# --- nodes and cards -----------------------------------------------------------------------------------------------


def test_a_silent_node_keeps_what_is_on_it() -> None:
    """Claim: time alone frees nothing (S020): suspicion stops new placements only."""
    c = cluster(node("n1").gpus(1))
    c.hold(request("a").share(400), "n1", 0)
    c.fold(HealthSet(node=N1, health="suspect", reason="no heartbeat for 5 s"))
    assert c.used("n1") == [400]
    validate(c.state)


def test_a_card_that_tenants_hold_outlives_its_inventory() -> None:
    """Claim: a lost card is counted, not offered, and goes with its last tenant; a free one goes at once."""
    c = cluster(node("n1").gpus(3))
    r = c.hold(request("a").share(400), "n1", 0)
    c.fold(inventory("n1", "n1-gpu2"))
    cards = c.state.nodes["n1"].cards
    assert list(cards) == ["n1-gpu2", A]
    assert (cards[A].present, cards[A].usable, cards[A].used_milli) == (False, False, 400)
    validate(c.state)
    c.release(r.uid)
    assert list(cards) == ["n1-gpu2"]
    validate(c.state)


def test_a_lost_card_that_comes_back_is_offered_with_its_tenants() -> None:
    """Claim: the sums survive the card's absence."""
    c = cluster(node("n1").gpus(1))
    c.hold(request("a").share(400), "n1", 0)
    c.fold(inventory("n1"), inventory("n1", A))
    card = c.state.nodes["n1"].cards[A]
    assert (card.usable, card.used_milli, card.reason) == (True, 400, "")
    validate(c.state)


def test_a_card_that_shrank_is_an_alarm_and_takes_nothing() -> None:
    """Claim: over-commitment by facts is shown, never by a decision."""
    c = cluster(node("n1").gpus(1, memory_mib=80_000))
    c.hold(request("a").share(500).gpu_memory(40_000), "n1", 0)
    c.fold(inventory("n1", A, memory_mib=30_000))
    assert [card.card.uuid for card in c.state.overcommits()] == [A]
    assert c.state.nodes["n1"].cards[A].free_mib == -10_000
    validate(c.state)


@pytest.mark.parametrize(("share", "memory_mib", "alarm"), [(1000, 81_920, False), (1001, 1, True), (1, 81_921, True)])
def test_only_what_is_beyond_the_card_is_an_alarm(share: int, memory_mib: int, alarm: bool) -> None:
    """Claim: share and memory are judged each for itself, and a full card is in order."""
    c = cluster(node("n1").gpus(1))
    c.fold(accepted("u1", "a"), accepted("u2", "b"))
    c.fold(adopted("u1", piece(A, share - share // 2, memory_mib)), adopted("u2", piece(A, max(share // 2, 0))))
    assert bool(c.state.overcommits()) is alarm


def test_a_request_lives_until_its_end_is_seen() -> None:
    """Claim: pending, placed and withdrawn-but-running requests keep their name."""
    c = cluster(node("n1").gpus(1))
    waiting, held = c.accept(request("w")), c.hold(request("a"), "n1", 0)
    c.fold(Withdrawn(uid=held.uid))
    assert (waiting.live, held.live) == (True, True)
    c.fold(Withdrawn(uid=waiting.uid), Released(uid=held.uid, evidence="gone"))
    assert (waiting.live, held.live) == (False, False)
    assert (c.state.get(held.uid), c.state.requests) == (held, {})


def test_a_uuid_listed_twice_in_one_inventory_is_one_card() -> None:
    """Claim: a monitor's stutter neither doubles a card nor loses its tenants."""
    c = cluster(node("n1").gpus(1))
    c.hold(request("a").share(400), "n1", 0)
    c.fold(inventory("n1", A, A))
    assert c.used("n1") == [400]
    validate(c.state)


def test_a_uuid_on_two_nodes_is_offered_by_the_first_only() -> None:
    """Claim: one physical card is never sold twice, and changes hands when the first node stops listing it."""
    c = cluster(node("n1"), node("n2"), node("n3"))
    c.fold(inventory("n2", "x"), inventory("n3", "x"), inventory("n1", "x"))
    assert [card.usable for card in c.state.cards()] == [False, True, False]
    assert c.state.nodes["n1"].cards["x"].rival == "n2"
    validate(c.state)
    c.fold(inventory("n2"))
    assert [(card.node, card.usable) for card in c.state.cards()] == [("n1", True), ("n3", False)]
    c.fold(FactsSet(facts=NodeFacts(node=N1, uid="u", gone=True)))
    assert [(card.node, card.usable) for card in c.state.cards()] == [("n3", True)]
    validate(c.state)


def test_an_adopted_card_that_turns_up_on_another_node_is_that_nodes_to_offer() -> None:
    """Claim: an orphan is no claim: it holds tenants, it offers nothing."""
    c = cluster(node("n1"), node("n2"))
    c.fold(accepted("u1", "a"), adopted("u1", piece("x", 500)))
    c.fold(inventory("n2", "x"))
    assert c.state.homes == {"x": "n2"}
    assert c.state.nodes["n2"].cards["x"].usable
    c.release(RequestUid("u1"))
    assert c.state.homes == {"x": "n2"}
    validate(c.state)


def test_a_node_goes_with_the_last_pod_on_it_once_kubernetes_deleted_it() -> None:
    """Claim: deletion frees nothing by itself; the node stays until its pods are seen to be gone."""
    c = cluster(node("n1").gpus(1))
    r = c.hold(request("a").share(400), "n1", 0)
    c.fold(FactsSet(facts=NodeFacts(node=N1, uid="u", gone=True)))
    assert c.used("n1") == [400]
    validate(c.state)
    c.fold(Released(uid=r.uid, evidence="node-gone"))
    assert (c.state.nodes, c.state.homes) == ({}, {})
    validate(c.state)


@pytest.mark.parametrize(
    ("healths", "usable", "cordoned", "health"),
    [
        (["cordoned"], False, True, "healthy"),
        (["cordoned", "healthy"], True, False, "healthy"),
        (["failed"], False, False, "failed"),
        (["failed", "healthy"], True, False, "healthy"),
        (["cordoned", "failed"], False, True, "failed"),
        (["failed", "cordoned", "healthy"], False, False, "failed"),
        (["failed", "cordoned", "healthy", "healthy"], True, False, "healthy"),
    ],
)
def test_cordon_and_health_do_not_undo_each_other(
    healths: list[Any], usable: bool, cordoned: bool, health: str
) -> None:
    """Claim: an operator's cordon survives a passing error, and a failed card is not healed by giving it back."""
    c = cluster(node("n1").gpus(1))
    c.fold(*(CardHealthSet(node=N1, card=A, health=h) for h in healths))
    card = c.state.nodes["n1"].cards[A]
    assert (card.usable, card.cordoned, card.health) == (usable, cordoned, health)


def test_a_cordon_survives_a_new_inventory_with_its_reason() -> None:
    """Claim: a monitor that starts again does not give back what an operator took."""
    c = cluster(node("n1").gpus(1))
    c.fold(CardHealthSet(node=N1, card=A, health="cordoned", reason="fan"), inventory("n1", A))
    card = c.state.nodes["n1"].cards[A]
    assert (card.usable, c.state.nodes["n1"].cordons[A].reason, card.reason) == (False, "fan", "")


def test_s076_a_cordon_holds_for_a_card_that_is_taken_out_and_put_back() -> None:
    """Claim: also while no inventory lists it, over a copy and a snapshot; a failure stays visible below it."""
    c = cluster(node("n1").gpus(1))
    c.fold(CardHealthSet(node=N1, card=A, health="cordoned", reason="fan"), inventory("n1"))
    assert A not in c.state.nodes["n1"].cards
    c.state = load(dump(copy(c.state)))
    c.fold(inventory("n1", A), CardHealthSet(node=N1, card=A, health="failed", reason="Xid 79"))
    card = c.state.nodes["n1"].cards[A]
    assert (card.cordoned, card.health, card.reason) == (True, "failed", "Xid 79")
    c.fold(CardHealthSet(node=N1, card=A, health="healthy"))
    assert (card.cordoned, card.health, c.state.nodes["n1"].cordons) == (False, "failed", {})


def test_a_card_can_be_cordoned_before_it_is_listed() -> None:
    """Claim: the order may come first; given back unseen, it is a card like any other."""
    c = cluster(node("n1").gpus(1))
    c.fold(CardHealthSet(node=N1, card=CardUuid("later"), health="cordoned"))
    c.fold(inventory("n1", A, "later"))
    assert [card.usable for card in c.state.nodes["n1"].cards.values()] == [True, False]
    with pytest.raises(InvariantBroken):
        c.fold(CardHealthSet(node=N1, card=CardUuid("never"), health="healthy"))


def test_who_asks_for_no_cpu_fits_where_others_have_taken_more_than_there_is() -> None:
    """Claim: as the kubelet does: an overbooked resource refuses those who want some of it, and only those."""
    c = cluster(node("n1").gpus(1).cpu(1000, foreign=2000).memory(10, foreign=20))
    c.hold(request("a").cpu(0).memory(0), "n1", 0)
    validate(c.state)


# --- what is bounded -----------------------------------------------------------------------------------------------


def test_finished_requests_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: memory is bounded, and a name leads to its last life."""
    from bus.ledger import on_requests

    monkeypatch.setattr(on_requests, "RECENT_LIMIT", 10)
    monkeypatch.setattr(on_requests, "RECENT_SLACK", 3)
    c = cluster()
    for i in range(40):
        r = c.accept(request("same" if i % 2 else f"r{i}"))
        c.fold(Withdrawn(uid=r.uid))
        assert c.state.find(r.key) is r
        validate(c.state)
    assert 10 <= len(c.state.recent) < 13
    assert list(c.state.recent)[-1] == r.uid
    assert c.state.find(c.state.find(r.key).key) is r  # type: ignore[union-attr]  # it was just found
    assert c.state.find("default/r0") is None  # type: ignore[arg-type]  # spelt out


def test_of_too_many_shapes_the_most_frequent_stay() -> None:
    """Claim: a flood of one-off shapes does not push out what comes often."""
    c = cluster()
    for i in range(3 * MIX_LIMIT):
        for name in (f"odd-{i}", f"often-{i}"):
            c.accept(request(name).cpu(1000 + i if name.startswith("odd") else 1))
    assert len(c.state.mix) <= 2 * MIX_LIMIT
    assert c.state.mix[mix_key(request("x").cpu(1).build())] == 3 * MIX_LIMIT


def test_changes_of_nodes_have_positions_that_never_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: a reader gets what came since, or learns that it is too late to know."""
    monkeypatch.setattr(limits, "TOUCHED_LIMIT", 4)
    touched = Touched()
    for i in range(20):
        at = len(touched)
        move = (RequestUid(f"e-1-{i}"), Placement(node=NodeName(f"n{i}"), cpu_milli=1, memory_mib=1), 1)
        touched.append(f"n{i}", move if i % 2 else None)
        assert touched[at:] == [f"n{i}"]
        assert touched.since(at) == ([f"n{i}"], [move if i % 2 else None])
        assert touched[max(0, i - 3) :] == [f"n{j}" for j in range(max(0, i - 3), i + 1)]
    assert (len(touched), touched[20:]) == (20, [])
    assert len(touched.names) == len(touched.moves) <= 8
    with pytest.raises(IndexError, match="asked for"):
        touched[3:]
