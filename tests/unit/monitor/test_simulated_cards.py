"""Cards made up from the settings behave like cards, the same way every time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.outcomes import NodeShares, ShareAssignment
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import CardUsage
from monitor.cards.simulated import SimulatedCards, SimulatedKind, card_usage, card_uuid

KIND = SimulatedKind(cards=2, model="Simulated T4", memory_mib=15_360, reserved_mib=450)


def make(node: str = "n1", now_ms: int = 0) -> SimulatedCards:
    return SimulatedCards(node, KIND, lambda: now_ms)


def share(card: str, uid: str = "e-1-0", share_milli: int = 500, memory_mib: int = 1000) -> ShareAssignment:
    return ShareAssignment(
        uid=RequestUid(uid), namespace="team", pod="p", card=card, share_milli=share_milli, memory_mib=memory_mib
    )


def test_the_same_node_has_the_same_cards_on_every_start() -> None:
    """Claim: UUIDs come from node name and index, look like the driver's, and differ between nodes."""
    cards = make().inventory()

    assert cards == make().inventory()
    assert [card.uuid for card in cards] == [card_uuid("n1", 0), card_uuid("n1", 1)]
    assert card_uuid("n1", 0) == "GPU-2ef9f4b7-981f-5dfa-8a08-adb801a9cd90"
    assert len({card.uuid for node in ("n1", "n2") for card in make(node).inventory()}) == 4
    assert [card.sellable_mib for card in cards] == [14_910, 14_910]


def test_without_shares_nothing_is_used() -> None:
    """Claim: an empty card is known to be idle: zero use and no processes, not unknown."""
    used = make().usage()[0]

    assert (used.compute_percent, used.memory_used_mib, used.processes) == (0, 0, ())


def test_use_follows_the_shares_and_only_on_their_card() -> None:
    """Claim: after `assign` the card of the share is used, its neighbour is not; an empty snapshot ends it."""
    cards = make(now_ms=1234)
    held, free = (card.uuid for card in cards.inventory())
    cards.assign(NodeShares(node=NodeName("n1"), epoch="e", ledger_sequence=1, assignments=(share(held),)))
    used = {usage.uuid: usage for usage in cards.usage()}

    assert used[held].memory_used_mib == 900
    assert used[held].compute_percent is not None
    assert 10 <= used[held].compute_percent <= 50
    assert used[free].compute_percent == 0
    cards.assign(NodeShares(node=NodeName("n1"), epoch="e", ledger_sequence=2))
    assert cards.usage() == make(now_ms=1234).usage()


def test_a_broken_card_tells_nothing_until_it_is_repaired() -> None:
    """Claim: `set_health` shows in the inventory, and a failed card's use is unknown."""
    cards = make()
    broken = cards.inventory()[1].uuid
    cards.set_health(broken, "failed", "pulled out")

    assert [(card.health, card.health_reason) for card in cards.inventory()] == [
        ("healthy", ""),
        ("failed", "pulled out"),
    ]
    assert cards.usage()[1] == CardUsage(uuid=broken)
    cards.set_health(broken, "healthy")
    assert cards.inventory() == make().inventory()
    with pytest.raises(KeyError):
        cards.set_health(CardUuid("GPU-none"), "failed")


def test_a_whole_card_swings_between_a_fifth_and_all_of_it() -> None:
    """Claim: over a minute one pod with the whole card uses 20 to 100 %, and comes back to where it was."""
    card = make().inventory()[0]
    curve = [
        card_usage(card, (share(card.uuid, share_milli=1000),), ms).compute_percent for ms in range(0, 60_001, 100)
    ]

    assert (min(curve), max(curve)) == (20, 100)
    assert curve[0] == curve[-1]


shares = st.lists(st.tuples(st.uuids(), st.integers(1, 1000), st.integers(0, 20_000)), max_size=8)


@settings(deadline=None)  # a busy machine is no failure
@given(shares, st.integers(0, 2**45))
def test_use_is_a_function_of_card_time_and_shares(held: list[tuple[object, int, int]], now_ms: int) -> None:
    """Claim: the same three give the same use, in any order of shares, within what a card has."""
    card = make().inventory()[0]
    assigned = tuple(share(card.uuid, str(uid), milli, memory) for uid, milli, memory in held)
    used = card_usage(card, assigned, now_ms)

    assert used == card_usage(card, assigned[::-1], now_ms)
    assert used.compute_percent is not None
    assert used.memory_used_mib is not None
    assert 0 <= used.compute_percent <= 100
    assert used.memory_used_mib <= card.sellable_mib
