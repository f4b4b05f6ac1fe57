"""S077 in the ledger: memory that somebody outside holds is not sold; what was sold stays sold, and is shown."""

from __future__ import annotations

import pytest

from bus.ledger.rules import InvariantBroken
from contracts.decisions import Candidate, CardSlice, Commit, InventorySet, Placement, Rationale, Reserved
from contracts.inventory import Card, NodeInventory
from contracts.outcomes import RequestEvent
from contracts.units import CardUuid, NodeName
from scheduler.core.feasibility.card_memory import memory
from scheduler.core.locality import Tags
from scheduler.core.request import shape_of
from scheduler.events import of_commit
from tests.builders.ledger import Cluster, cluster, node, request

CARD = CardUuid("n1-gpu0")
STRANGER = "miner (666)"


def found(unmanaged_mib: int) -> InventorySet:
    """The monitor's next inventory."""
    card = Card(
        uuid=CARD, index=0, model="A100", memory_total_mib=80_000, memory_unmanaged_mib=unmanaged_mib,
        unmanaged_by=STRANGER if unmanaged_mib else "",
    )  # fmt: skip
    return InventorySet(inventory=NodeInventory(node=NodeName("n1"), boot_id="boot", incarnation="one", cards=(card,)))


def half_sold() -> Cluster:
    """A card of 80,000 MiB with half of it sold."""
    c = cluster(node("n1").gpus(1, memory_mib=80_000))
    c.hold(request("a").share(500).gpu_memory(40_000), "n1", 0)
    return c


@pytest.mark.parametrize(
    ("unmanaged", "free", "squeezed"),
    [(0, 40_000, 0), (10_240, 29_760, 0), (40_000, 0, 0), (50_000, -10_000, 10_000), (99_999, -40_000, 40_000)],
)
def test_a_stranger_takes_what_is_free_first(unmanaged: int, free: int, squeezed: int) -> None:
    """Claim: free memory shrinks by it; beyond that the card is squeezed, and that is no over-commit of ours."""
    c = half_sold().fold(found(unmanaged))
    card = c.state.nodes["n1"].cards[CARD]

    assert (card.free_mib, card.squeezed_mib, card.used_mib) == (free, squeezed, 40_000)
    assert c.state.overcommits() == []


def test_nothing_new_is_placed_on_what_a_stranger_holds() -> None:
    """Claim: the fold refuses it, and whoever asks hears how much is held and by whom."""
    c = half_sold().fold(found(50_000))
    asked = c.accept(request("b").share(100).gpu_memory(1000))
    piece = CardSlice(card=CARD, share_milli=100, memory_mib=1000)
    chosen = Candidate(node=NodeName("n1"), score=0)
    placed = Reserved(
        uid=asked.uid,
        placement=Placement(node=NodeName("n1"), slices=(piece,), cpu_milli=1, memory_mib=1),
        rationale=Rationale(policy="test", chosen=chosen, feasible_nodes=1, rejected_nodes=0),
    )

    with pytest.raises(InvariantBroken, match="over-committed"):
        c.fold(placed)
    on = c.state.nodes["n1"]
    reason = memory(shape_of(asked.request), on, on.cards[CARD], Tags())
    assert reason is not None
    assert reason.text.endswith("needs 1000 MiB, 0 MiB free of 30000, 50000 MiB are held by miner (666)")


def test_memory_of_a_share_follows_what_is_there() -> None:
    """Claim: a request that names no memory gets its share of what a stranger left: 8/10 of 70,000."""
    c = cluster(node("n1").gpus(1, memory_mib=80_000)).fold(found(10_000))
    held = c.hold(request("a").share(800), "n1", 0)

    assert held.placement is not None
    assert held.placement.slices[0].memory_mib == 56_000


def test_when_the_stranger_leaves_everything_is_as_before() -> None:
    """Claim: nothing was released or taken meanwhile: the same sums, and the card sells again."""
    c = half_sold()
    before = c.state.nodes["n1"].cards[CARD].free_mib
    c.fold(found(50_000)).fold(found(0))
    card = c.state.nodes["n1"].cards[CARD]

    assert (card.free_mib, card.squeezed_mib, card.used_mib) == (before, 0, 40_000)


def test_who_holds_the_card_is_told_by_whom_it_is_squeezed() -> None:
    """Claim: one event for each resident with the numbers; none while what is held was not sold."""
    c = half_sold()
    b = c.hold(request("b").share(100).gpu_memory(1000), "n1", 0)
    free = told(c.fold(found(10_000)), found(10_000))
    squeezed = told(c.fold(found(50_000)), found(50_000))

    assert free == []
    assert [(e.name, e.phase, e.text) for e in squeezed] == [
        (name, "squeezed", "11000 MiB of what is sold of card n1-gpu0 are held by miner (666)") for name in ("a", "b")
    ]
    assert squeezed[1].uid == b.uid


def told(c: Cluster, record: InventorySet) -> list[RequestEvent]:
    """The events of a commit with this record, which is folded already."""
    commit = Commit(pool="default", epoch="e", number=1, predecessor=0, author="s", records=(record,))
    return [event for _, event in of_commit(c.state, commit, 7)]
