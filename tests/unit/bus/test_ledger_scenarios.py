"""What goes wrong in this field with accounting, and what our ledger does: each test is named by what it shows."""

from __future__ import annotations

from typing import Any

import pytest

from bus.ledger.fold import ChainBroken, InvariantBroken, apply
from bus.ledger.snapshot import digest, dump, load
from bus.ledger.state import RequestState
from contracts.decisions import FactsSet, HealthSet, InventorySet, Observed, Released, Resized, Withdrawn
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.units import CardUuid, NodeName
from tests.builders.history import Log, accepted, adopted, inventory, piece, reserve, validate
from tests.builders.ledger import Cluster, cluster, node, request


def fill(c: Cluster, count: int, share: int, memory_mib: int = 0) -> list[RequestState]:
    """Requests in one burst, each on the first card that takes it; who finds none stays pending."""
    burst = [c.accept(request(f"p{i}").share(share).gpu_memory(memory_mib).cpu(0)) for i in range(count)]
    for one in burst:
        for card in c.state.cards():
            if card.free_milli >= share and card.free_mib >= memory_mib:
                c.fold(reserve(one, card.node, piece(card.card.uuid, share, memory_mib)))
                break
    validate(c.state)
    return [one for one in burst if one.phase == "pending"]


def refused(c: Cluster, one: RequestState, card: str, share: int, memory_mib: int = 0) -> str:
    """What the fold says to one more slice on a card."""
    with pytest.raises(InvariantBroken) as caught:
        c.fold(reserve(one, "n1", piece(card, share, memory_mib)))
    return str(caught.value)


def test_sixteen_halves_in_one_burst_fill_eight_cards_exactly() -> None:
    """Claim (S001): two per card, every sum 1000, nobody left over, and not one more half."""
    c = cluster(node("n1").gpus(8))
    assert fill(c, 16, 500) == []
    assert c.used("n1") == [1000] * 8
    assert "0 and 81920 free" in refused(c, c.accept(request("p16")), "n1-gpu0", 500)


def test_the_twenty_fourth_slice_of_2000_mib_is_refused_because_68_are_left() -> None:
    """Claim (S002): memory is counted to the last MiB, and the refusal names both numbers."""
    c = cluster(node("n1").gpus(1, memory_mib=46_068))
    (left,) = fill(c, 24, 1, 2000)
    assert left.request.name == "p23"
    assert "2000 MiB asked, 977 and 68 free" in refused(c, left, "n1-gpu0", 1, 2000)


def test_eight_pods_of_half_a_card_are_two_to_a_card_though_memory_would_take_more() -> None:
    """Claim (S004): compute and memory are two sums, and the tighter one decides."""
    c = cluster(node("n1").gpus(8))
    fill(c, 8, 500, 4544)
    assert c.used("n1") == [1000] * 4 + [0] * 4
    assert "over-committed" in refused(c, c.accept(request("more")), "n1-gpu0", 500, 4544)


def test_a_placement_that_never_became_a_pod_is_given_back_once() -> None:
    """Claim (S008): the charge is undone by evidence, and a retry is charged anew, not twice."""
    c = cluster(node("n1").gpus(1))
    for _ in range(2):
        r = c.hold(request("a").share(700), "n1", 0)
        assert c.used("n1") == [700]
        c.fold(Released(uid=r.uid, evidence="never-created"))
    assert c.used("n1") == [0]
    validate(c.state)


def test_a_second_release_is_refused_and_frees_nothing() -> None:
    """Claim (S009): the delete event and the audit may both see the end; the ledger takes one of them."""
    c = cluster(node("n1").gpus(1))
    r = c.hold(request("a").share(500), "n1", 0)
    c.hold(request("b").share(500), "n1", 0)
    c.release(r.uid)
    before = digest(c.state)
    with pytest.raises(InvariantBroken, match="not a live request"):
        c.release(r.uid)
    assert (c.used("n1"), digest(c.state)) == ([500], before)
    validate(c.state)


def test_a_terminating_pod_is_still_counted_after_a_restart() -> None:
    """Claim (S010): withdrawn is not gone; the share is free when the pod is seen to be gone."""
    c = cluster(node("n1").gpus(1))
    r = c.hold(request("a").share(600), "n1", 0)
    c.fold(Observed(uid=r.uid, phase="running", pod="a-1"), Withdrawn(uid=r.uid, reason="user"))
    c.state = load(dump(c.state))
    again = c.state.requests[r.uid]
    assert (c.used("n1"), again.phase, again.withdrawn) == ([600], "running", True)
    c.fold(Released(uid=r.uid, evidence="gone"))
    assert c.used("n1") == [0]
    validate(c.state)


def test_the_old_pod_of_a_rolling_update_is_counted_until_it_ends() -> None:
    """Claim (S012): 2 GiB become 4 GiB; for a while both are held, then only the new one."""
    c = cluster(node("n1").gpus(1))
    old = c.hold(request("web-1").share(100).gpu_memory(2048), "n1", 0)
    c.hold(request("web-2").share(100).gpu_memory(4096), "n1", 0)
    card = c.state.nodes["n1"].cards["n1-gpu0"]
    assert card.used_mib == 6144
    c.release(old.uid)
    assert card.used_mib == 4096
    validate(c.state)


def test_a_pod_that_is_assumed_and_then_seen_is_counted_once() -> None:
    """Claim (S013): an observation moves a placement, it does not add one; a commit that comes twice is refused."""
    log = Log()
    c = cluster(node("n1").gpus(1))
    log.write(*c.log)
    log.write(accepted("u1", "a"))
    placed = log.write(reserve(next(iter(log.state.pending.values())), "n1", piece("n1-gpu0", 400)))
    log.write(Observed(uid=next(iter(log.state.requests)), phase="bound", pod="a-1"))
    with pytest.raises(ChainBroken):
        apply(log.state, placed, 99)
    assert [card.used_milli for card in log.state.cards()] == [400]
    validate(log.state)


def test_an_allocation_on_a_card_that_nobody_lists_is_counted_and_not_offered() -> None:
    """Claim (S014): a replaced card's tenants keep their size; the slot is theirs until they are gone."""
    c = cluster(node("n1").gpus(1))
    c.fold(accepted("u1", "a"), adopted("u1", piece("GPU-old", 500, 8000), pod="a-1", running=True))
    orphan = c.state.nodes["n1"].cards["GPU-old"]
    assert (orphan.used_milli, orphan.used_mib, orphan.usable, orphan.present) == (500, 8000, False, False)
    assert orphan.reason
    assert "may not be" in refused(c, c.accept(request("b")), "GPU-old", 1)
    c.fold(inventory("n1", "n1-gpu0"))
    assert "GPU-old" in c.state.nodes["n1"].cards, "a new inventory does not drop it either"
    validate(c.state)


def test_a_card_that_was_replaced_while_in_use_becomes_an_orphan() -> None:
    """Claim (S014, S073): the index is reused by the new card, the old UUID keeps its tenants."""
    c = cluster(node("n1").gpus(1))
    c.hold(request("a").share(500), "n1", 0)
    c.fold(inventory("n1", "GPU-new"))
    cards = c.state.nodes["n1"].cards
    assert {uuid: (card.usable, card.used_milli) for uuid, card in cards.items()} == {
        "GPU-new": (True, 0),
        "n1-gpu0": (False, 500),
    }
    validate(c.state)


@pytest.mark.parametrize(
    ("cpu", "memory", "text"), [(1001, 64, "1001 milli-cores"), (100, 2049, "2049 MiB of host memory")]
)
def test_a_share_that_fits_is_refused_where_the_node_has_no_room(cpu: int, memory: int, text: str) -> None:
    """Claim (S016): CPU and host memory count what foreign pods take, before anything is bound."""
    c = cluster(node("n1").gpus(1).cpu(4000, foreign=3000).memory(4096, foreign=2048))
    one = c.accept(request("a").cpu(cpu).memory(memory).share(100))
    assert text in refused(c, one, "n1-gpu0", 100)


@pytest.mark.parametrize("evidence", ["ended", "gone", "rejected", "node-gone", "never-created"])
def test_a_share_is_free_as_soon_as_the_end_is_seen(evidence: Any) -> None:
    """Claim (S018): a terminal phase frees it, though the pod object stays; so does every other evidence."""
    c = cluster(node("n1").gpus(1))
    r = c.hold(request("a").share(1000), "n1", 0)
    c.fold(Observed(uid=r.uid, phase="running"), Released(uid=r.uid, evidence=evidence, detail="Succeeded"))
    assert (c.used("n1"), r.phase, r.ending, r.detail) == ([0], "ended", evidence, "Succeeded")
    c.hold(request("b").share(1000), "n1", 0)
    validate(c.state)


def test_a_slow_bind_keeps_its_assumption_whatever_time_says() -> None:
    """Claim (S020): silence of the node, of the pod and of everybody else frees nothing."""
    c = cluster(node("n1").gpus(1))
    c.hold(request("a").share(1000), "n1", 0)
    c.fold(HealthSet(node=NodeName("n1"), health="suspect"))
    for _ in range(100):
        c.fold(FactsSet(facts=NodeFacts(node=NodeName("n1"), uid="u", ready=False, allocatable_cpu_milli=64_000)))
    assert c.used("n1") == [1000]
    validate(c.state)


def test_eighty_pods_of_18_hundredths_are_five_to_a_card_without_drift() -> None:
    """Claim (S026): integers add up: 5 x 180 = 900 on each of 16 cards, exactly."""
    c = cluster(node("n1").gpus(8), node("n2").gpus(8))
    assert fill(c, 80, 180) == []
    assert c.used("n1") + c.used("n2") == [900] * 16
    assert all(len(card.residents) == 5 for card in c.state.cards())


@pytest.mark.parametrize("shares", [[250] * 4, [100] * 10, [300, 300, 400], [1] * 1000], ids=str)
def test_fractions_that_add_up_to_a_card_fit_and_a_hundredth_more_does_not(shares: list[int]) -> None:
    """Claim (S028): no rounding stands between the parts and the whole."""
    c = cluster(node("n1").gpus(1).pods(2000))
    for i, share in enumerate(shares):
        c.hold(request(f"p{i}").share(share).gpu_memory(1).cpu(0).memory(0), "n1", 0)
    assert c.used("n1") == [1000]
    assert "10 thousandths" in refused(c, c.accept(request("more").cpu(0).memory(0)), "n1-gpu0", 10)
    assert "1 thousandths" in refused(c, c.state.find(c.accept(request("few")).key), "n1-gpu0", 1)  # type: ignore[arg-type]


def test_memory_that_the_driver_keeps_is_never_sold() -> None:
    """Claim (S033): two halves of a 16 GiB card are halves of what is left of it."""
    card = Card(uuid=CardUuid("t4"), index=0, model="T4", memory_total_mib=16_384, memory_reserved_mib=384)
    c = cluster(node("n1"))
    c.fold(InventorySet(inventory=NodeInventory(node=NodeName("n1"), boot_id="b", incarnation="i", cards=(card,))))
    assert fill(c, 2, 500, 8000) == []
    assert "1 MiB asked, 0 and 0 free" in refused(c, c.accept(request("more")), "t4", 1, 1)


def test_four_shares_of_one_pod_are_charged_four_times_when_it_grows() -> None:
    """Claim (S146): the difference is per card, on each of its cards."""
    c = cluster(node("n1").gpus(4))
    r = c.hold(request("a").cards(4).share(200).gpu_memory(1000), "n1", 0, 1, 2, 3)
    c.fold(Resized(uid=r.uid, share_milli=300, memory_mib=1500))
    assert [(card.used_milli, card.used_mib) for card in c.state.cards()] == [(300, 1500)] * 4
    validate(c.state)
