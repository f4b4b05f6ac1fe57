"""Cards over time: vanished, broken, flapping, silent, remembered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.inventory import Card, CardHealth, NodeInventory
from contracts.units import CardUuid, NodeName
from monitor.health import Book, adopt, observe, remember, silent

HOLD_MS = 60_000


def card(name: str, index: int = 0, health: CardHealth = "healthy", *, reserved_mib: int = 100) -> Card:
    reason = "lost" if health == "failed" else ""
    return Card(
        uuid=CardUuid(name), index=index, model="T4", memory_total_mib=15_000, memory_reserved_mib=reserved_mib,
        health=health, health_reason=reason,
    )  # fmt: skip


def look(book: Book, *seen: Card, at_ms: int = 0) -> Book:
    return observe(book, seen, now_ms=at_ms, hold_ms=HOLD_MS)


def health(book: Book) -> dict[str, str]:
    return {card.uuid: card.health for card in book.cards}


A, B = card("GPU-a", 0), card("GPU-b", 1)
LOST_B = replace(B, health="failed", health_reason="lost")


def test_s061_only_the_lost_card_leaves_the_pool() -> None:
    """Claim: a failed card is unhealthy, its neighbour is not, and both stay listed."""
    book = look(look(Book(), A, B), A, LOST_B)

    assert book.cards == (A, LOST_B)
    assert book.unhealthy == ("GPU-b",)


def test_a_card_that_the_driver_stops_listing_has_failed() -> None:
    """Claim: within a boot a missing card is a lost one, not one that never was: its pods must be told."""
    book = look(look(Book(), A, B), A)

    assert health(book) == {"GPU-a": "healthy", "GPU-b": "failed"}
    assert "does not list" in book.cards[1].health_reason


def test_a_card_that_comes_back_is_believed_after_a_quiet_minute() -> None:
    """Claim: failed, then suspect from the first good look on, healthy `hold_ms` later; a new failure starts over."""
    book = look(look(Book(), A, B), A, LOST_B)
    timeline = []
    for at_ms, seen in [(1000, B), (60_000, B), (60_500, LOST_B), (61_000, B), (120_999, B), (121_000, B)]:
        book = look(book, A, seen, at_ms=at_ms)
        timeline.append(book.cards[1].health)

    assert timeline == ["suspect", "suspect", "failed", "suspect", "suspect", "healthy"]
    assert book == look(Book(), A, B)


def test_a_flapping_card_is_news_twice_a_flap_and_not_every_look() -> None:
    """Claim: while a card waits to be believed, its entry does not change from look to look."""
    book = look(look(look(Book(), B), LOST_B), B, at_ms=1000)

    assert look(book, B, at_ms=2000).cards == book.cards


def test_a_silent_driver_makes_every_card_suspect_and_none_disappear() -> None:
    """Claim: no answer is not "no cards"; failed cards stay failed; the first answer makes the others well at once."""
    book = look(look(Book(), A, B), A, LOST_B)
    quiet = silent(book, "no answer for 5.0 s")

    assert health(quiet) == {"GPU-a": "suspect", "GPU-b": "failed"}
    assert quiet.cards[0].health_reason == "no answer for 5.0 s"
    assert health(look(quiet, A, B, at_ms=9000)) == {"GPU-a": "healthy", "GPU-b": "suspect"}


def test_reserved_memory_only_grows_so_that_sellable_is_never_overstated() -> None:
    """Claim: the largest reserve seen counts; wavering below it is no news."""
    book = look(
        look(look(Book(), card("x", reserved_mib=100)), card("x", reserved_mib=120)), card("x", reserved_mib=90)
    )

    assert book.cards[0].memory_reserved_mib == 120


# --- across restarts ------------------------------------------------------------------------------------------------


def published(*cards: Card, boot: str = "boot-1", provider: str = "nvml") -> NodeInventory:
    return NodeInventory(node=NodeName("n"), boot_id=boot, incarnation="i", cards=cards, provider=provider)


def test_a_card_lost_while_no_monitor_looked_is_still_missed() -> None:
    """Claim: same boot, new monitor: what the last inventory had and the driver lacks is failed."""
    book = look(remember(published(A, B), boot_id="boot-1", provider="nvml"), A)

    assert health(book) == {"GPU-a": "healthy", "GPU-b": "failed"}


def test_a_remembered_failure_is_not_forgiven_by_a_restart() -> None:
    """Claim: a card that had failed under the last monitor waits its quiet minute under this one too."""
    book = look(remember(published(A, LOST_B), boot_id="boot-1", provider="nvml"), A, B, at_ms=5)

    assert health(book) == {"GPU-a": "healthy", "GPU-b": "suspect"}


@pytest.mark.parametrize(
    ("last", "boot", "provider"),
    [
        (None, "boot-1", "nvml"),
        (published(A, B), "boot-2", "nvml"),
        (published(A, B, provider="simulated"), "boot-1", "nvml"),
        (published(A, B, provider="simulated"), "boot-1", "simulated"),
    ],
    ids=["first start ever", "s073 another boot", "another provider", "made-up cards"],
)
def test_s073_old_cards_are_forgotten_when_the_machine_was_off(
    last: NodeInventory | None, boot: str, provider: str
) -> None:
    """Claim: after a boot with fewer cards of another model, nothing of the old ones is left."""
    new = replace(A, uuid=CardUuid("GPU-new"), model="L4")
    book = look(remember(last, boot_id=boot, provider=provider), new)

    assert book.cards == (new,)


def test_what_is_remembered_late_joins_what_was_seen_meanwhile() -> None:
    """Claim: the stream may be readable only later; before the first look the remembered cards are all suspect."""
    past = remember(published(A, B), boot_id="boot-1", provider="nvml")

    assert health(adopt(look(Book(), A), past, now_ms=9, hold_ms=HOLD_MS)) == {"GPU-a": "healthy", "GPU-b": "failed"}
    assert health(adopt(Book(), past, now_ms=9, hold_ms=HOLD_MS)) == {"GPU-a": "suspect", "GPU-b": "suspect"}


looks = st.lists(
    st.one_of(
        st.none(),
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["healthy", "failed"])).map(
            lambda states: tuple(card(name, ord(name), health) for name, health in states.items())
        ),
    ),
    max_size=12,
)


@settings(deadline=None)  # a busy machine is no failure
@given(looks)
def test_no_card_ever_disappears_and_none_that_failed_is_trusted_early(seen: list[tuple[Card, ...] | None]) -> None:
    """Claim: over any story of looks and silences, cards only accumulate, in order, and trust takes `hold_ms`."""
    book, ever, failed_at = Book(), set(), {}
    for second, cards in enumerate(seen):
        before = book
        book = silent(book, "quiet") if cards is None else look(book, *cards, at_ms=second * 20_000)
        ever |= {card.uuid for card in cards or ()}
        assert {card.uuid for card in book.cards} == ever
        assert list(book.cards) == sorted(book.cards, key=lambda card: (card.index, card.uuid))
        failed_at |= {card.uuid: second for card in book.cards if card.health == "failed"}
        for card in book.cards:
            if card.health == "healthy":
                assert card in (cards or ())
                assert second - failed_at.get(card.uuid, -99) > 3
        assert before.cards == () or len(before.cards) <= len(book.cards)
