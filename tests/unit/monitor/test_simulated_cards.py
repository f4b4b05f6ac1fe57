"""Cards made up from the settings behave like cards, the same way every time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.inventory import Card
from contracts.outcomes import NodeShares, ShareAssignment
from contracts.units import NodeName, RequestUid
from contracts.usage import CardUsage
from monitor.cards.simulated import SimulatedCards, SimulatedKind, card_usage, card_uuid, fault
from monitor.settings import SimulatedSettings

KIND = SimulatedKind(cards=2, model="Simulated T4", memory_mib=15_360, reserved_mib=450)


def make(node: str = "n1", now_ms: int = 0) -> SimulatedCards:
    return SimulatedCards(node, KIND, lambda: now_ms)


def found(cards: SimulatedCards) -> list[Card]:
    return [card for seat in cards.seats() for card in cards.look(seat).cards]


def use(cards: SimulatedCards) -> list[CardUsage]:
    return [usage for seat in cards.seats() for usage in cards.look(seat).usage]


def share(card: str, uid: str = "e-1-0", share_milli: int = 500, memory_mib: int = 1000) -> ShareAssignment:
    return ShareAssignment(
        uid=RequestUid(uid), namespace="team", pod="p", card=card, share_milli=share_milli, memory_mib=memory_mib
    )


def test_the_same_node_has_the_same_cards_on_every_start() -> None:
    """Claim: UUIDs come from node name and index, look like the driver's, and differ between nodes."""
    cards = found(make())

    assert cards == found(make())
    assert [card.uuid for card in cards] == [card_uuid("n1", 0), card_uuid("n1", 1)]
    assert card_uuid("n1", 0) == "GPU-2ef9f4b7-981f-5dfa-8a08-adb801a9cd90"
    assert len({card.uuid for node in ("n1", "n2") for card in found(make(node))}) == 4
    assert [card.sellable_mib for card in cards] == [14_910, 14_910]


def test_without_shares_nothing_is_used() -> None:
    """Claim: an empty card is known to be idle: zero use and no processes, not unknown."""
    used = use(make())[0]

    assert (used.compute_percent, used.memory_used_mib, used.processes) == (0, 0, ())


def test_use_follows_the_shares_and_only_on_their_card() -> None:
    """Claim: after `assign` the card of the share is used, its neighbour is not; an empty snapshot ends it."""
    cards = make(now_ms=1234)
    held, free = (card.uuid for card in found(cards))
    cards.assign(NodeShares(node=NodeName("n1"), epoch="e", ledger_sequence=1, assignments=(share(held),)))
    used = {usage.uuid: usage for usage in use(cards)}

    assert used[held].memory_used_mib == 900
    assert used[held].compute_percent is not None
    assert 10 <= used[held].compute_percent <= 50
    assert used[free].compute_percent == 0
    cards.assign(NodeShares(node=NodeName("n1"), epoch="e", ledger_sequence=2))
    assert use(cards) == use(make(now_ms=1234))


def test_a_broken_card_tells_nothing_until_it_is_repaired() -> None:
    """Claim: `break_card` is a sign at each look, a broken card's use is unknown, `repair` ends both."""
    cards = make()
    cards.break_card(1, "pulled out")
    look = cards.look(1)

    assert [(sign.card, sign.weight, sign.reason) for sign in look.signs] == [
        (card_uuid("n1", 1), "fatal", "pulled out")
    ]
    assert look.usage == (CardUsage(uuid=card_uuid("n1", 1)),)
    assert cards.look(0) == make().look(0)
    cards.repair(1)
    assert cards.look(1) == make().look(1)
    with pytest.raises(IndexError):
        cards.break_card(2, "there is none")


def test_a_scripted_fault_comes_and_goes() -> None:
    """Claim: from `after_s` on for `for_s` seconds since the start, with its reason; the other card is never hit."""
    clock = [5_000]
    cards = SimulatedCards("n1", KIND, lambda: clock[0], faults=[fault("1@20+30:Xid 79")])
    told = []
    for second in (0, 19, 20, 49, 50):
        clock[0] = 5_000 + second * 1000
        told.append([sign.reason for seat in cards.seats() for sign in cards.look(seat).signs])

    assert told == [[], [], ["Xid 79"], ["Xid 79"], []]


@pytest.mark.parametrize("text", ["", "1", "1@2", "@1+2", "1@2+3:", "1@-2+3", "x@1+2", "1@2+3 ", "1@2+9999999"])
def test_a_fault_that_is_spelt_otherwise_is_refused(text: str) -> None:
    """Claim: the error shows what was given and how it is spelt."""
    with pytest.raises(ValueError, match="INDEX@AFTER\\+FOR") as refused:
        fault(text)

    assert repr(text) in str(refused.value)


def test_faults_in_the_settings_are_checked_with_them() -> None:
    """Claim: each that is spelt otherwise, or of a card that there is not, is named before anything starts."""
    wrong = SimulatedSettings(cards=2, faults=("1@2+3", "2@2+3", "soon"))

    assert [text.partition(":")[0] for text in wrong.problems()] == ["faults = '2@2+3'", "faults = 'soon'"]
    assert list(SimulatedSettings(cards=2, faults=("1@2+3",)).problems()) == []


def test_a_whole_card_swings_between_a_fifth_and_all_of_it() -> None:
    """Claim: over a minute one pod with the whole card uses 20 to 100 %, and comes back to where it was."""
    card = found(make())[0]
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
    card = found(make())[0]
    assigned = tuple(share(card.uuid, str(uid), milli, memory) for uid, milli, memory in held)
    used = card_usage(card, assigned, now_ms)

    assert used == card_usage(card, assigned[::-1], now_ms)
    assert used.compute_percent is not None
    assert used.memory_used_mib is not None
    assert 0 <= used.compute_percent <= 100
    assert used.memory_used_mib <= card.sellable_mib
