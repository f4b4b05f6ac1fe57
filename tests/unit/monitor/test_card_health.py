"""The book of a node's cards over time: vanished, broken, re-sliced, silent, moved, remembered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.inventory import Card, NodeInventory
from contracts.units import CardUuid, NodeName
from monitor.cards.protocol import Look, Sign, Weight
from monitor.health import Book, Round, observe, released, silent, warned
from monitor.past import adopt, remember
from monitor.standing import At, Rules

RULES = Rules(quiet_ms=60_000)
LOST = "lost"


def card(name: str, index: int = 0, *, reserved_mib: int = 100, parent: str | None = None) -> Card:
    return Card(
        uuid=CardUuid(name), index=index, model="T4", memory_total_mib=15_000, memory_reserved_mib=reserved_mib,
        parent=None if parent is None else CardUuid(parent),
    )  # fmt: skip


def at(now_ms: int) -> At:
    return At(now_ms=now_ms, wall_ms=0)


def sign(of: Card, weight: Weight = "fatal", *, event: bool = False) -> Sign:
    return Sign(card=of.uuid, weight=weight, reason=LOST, event=event)


def look(book: Book, *seen: Card, lost: tuple[Card, ...] = (), at_ms: int = 0) -> Book:
    """A round in which every seat answered; `lost` ones with a fatal sign."""
    looks: dict[int, Look] = {}
    for one in seen:
        before = looks.get(one.index, Look())
        signs = (sign(one),) if one in lost else ()
        looks[one.index] = Look(cards=(*before.cards, one), signs=(*before.signs, *signs))
    return observe(book, Round(looks=looks), at(at_ms), RULES)


def health(book: Book) -> dict[str, str]:
    return {card.uuid: card.health for card in book.cards}


A, B = card("GPU-a", 0), card("GPU-b", 1)


def test_s061_only_the_lost_card_leaves_the_pool() -> None:
    """Claim: a failed card is unhealthy, its neighbour is not, and both stay listed with what they are."""
    book = look(look(Book(), A, B), A, B, lost=(B,))

    assert book.cards == (A, replace(B, health="failed", health_reason=LOST, health_needs="answer"))
    assert book.unhealthy == ("GPU-b",)


def test_s061_an_event_is_news_without_a_look() -> None:
    """Claim: a fatal event fails its card and no other; one of a card that is not held says nothing."""
    book = warned(look(Book(), A, B), [sign(B, event=True), sign(card("GPU-x"), event=True)], at(1), RULES)

    assert health(book) == {"GPU-a": "healthy", "GPU-b": "failed"}
    assert health(look(book, A, B, at_ms=10_000_000)) == {"GPU-a": "healthy", "GPU-b": "failed"}


def test_a_reset_of_one_card_gives_that_one_the_chance_to_come_back() -> None:
    """Claim: released, seen well, believed after its time; the other failed card stays where it is."""
    book = warned(look(Book(), A, B), [sign(A, event=True), sign(B, event=True)], at(0), RULES)
    book = look(look(released(book, [A.uuid]), A, B, at_ms=1000), A, B, at_ms=61_000)

    assert health(book) == {"GPU-a": "healthy", "GPU-b": "failed"}
    assert health(look(released(book), A, B, at_ms=62_000)) == {"GPU-a": "healthy", "GPU-b": "recovering"}


def test_s064_a_card_that_the_driver_stops_listing_has_failed() -> None:
    """Claim: within a boot a missing card is a lost one, not one that never was: its pods must be told."""
    book = look(look(Book(), A, B), A)

    assert health(book) == {"GPU-a": "healthy", "GPU-b": "failed"}
    assert "does not list" in book.cards[1].health_reason


def test_s062_a_card_that_comes_back_is_believed_after_a_quiet_minute() -> None:
    """Claim: failed, recovering from the first good look on, healthy a minute later; a relapse doubles that."""
    book = look(look(Book(), A, B), A, B, lost=(B,))
    timeline = []
    for at_ms, lost in [(1000, ()), (60_500, (B,)), (61_000, ()), (180_999, ()), (181_000, ())]:
        book = look(book, A, B, lost=lost, at_ms=at_ms)
        timeline.append(book.cards[1].health)

    assert timeline == ["recovering", "failed", "recovering", "recovering", "healthy"]
    assert book.cards == look(Book(), A, B).cards


def test_a_recovering_card_is_no_news_at_every_look() -> None:
    """Claim: while a card waits to be believed, its entry does not change from look to look."""
    book = look(look(look(Book(), B), B, lost=(B,)), B, at_ms=1000)

    assert look(book, B, at_ms=2000).cards == book.cards


def test_a_silent_driver_makes_every_card_suspect_and_none_disappear() -> None:
    """Claim: no answer is not "no cards"; failed cards stay failed; the first answer makes the others well at once."""
    book = look(look(Book(), A, B), A, B, lost=(B,))
    quiet = silent(book, "no answer for 5.0 s", at(1), RULES)

    assert health(quiet) == {"GPU-a": "suspect", "GPU-b": "failed"}
    assert quiet.cards[0].health_reason == "no answer for 5.0 s"
    assert health(look(quiet, A, B, at_ms=9000)) == {"GPU-a": "healthy", "GPU-b": "recovering"}


def test_a_silent_seat_is_one_card_s_matter() -> None:
    """Claim: the card whose call hangs is suspect, the others go on; while a call may still come back nothing is."""
    book = look(Book(), A, B)
    waiting = observe(book, Round(looks={0: Look(cards=(A,))}, waiting=frozenset({1})), at(1), RULES)
    hangs = observe(book, Round(looks={0: Look(cards=(A,))}, silent={1: "hangs"}), at(2), RULES)

    assert health(waiting) == {"GPU-a": "healthy", "GPU-b": "healthy"}
    assert health(hangs) == {"GPU-a": "healthy", "GPU-b": "suspect"}
    assert hangs.cards[1].health_reason == "hangs"


def test_reserved_memory_only_grows_so_that_sellable_is_never_overstated() -> None:
    """Claim: the largest reserve seen counts; wavering below it is no news."""
    book = Book()
    for reserved_mib in (100, 120, 90):
        book = look(book, card("x", reserved_mib=reserved_mib))

    assert book.cards[0].memory_reserved_mib == 120


# --- MIG and renumbering --------------------------------------------------------------------------------------------

PARTS = (card("MIG-1", 1, parent="GPU-b"), card("MIG-2", 1, parent="GPU-b"))
OTHER_PART = card("MIG-3", 1, parent="GPU-b")


@pytest.mark.parametrize(
    ("before", "after"),
    [((B,), PARTS), (PARTS, (B,)), (PARTS, (PARTS[0], OTHER_PART)), (PARTS, (OTHER_PART,))],
    ids=["split", "whole again", "one part of two made anew", "sliced otherwise"],
)
def test_s106_a_card_that_is_sliced_anew_has_lost_nothing(before: tuple[Card, ...], after: tuple[Card, ...]) -> None:
    """Claim: a card and its instances are never listed together, and none of them counts as lost."""
    book = look(look(Book(), A, *before), A, *after)

    assert health(book) == {c.uuid: "healthy" for c in (A, *after)}


def test_a_card_that_moved_is_not_blamed_for_who_sits_at_its_old_seat() -> None:
    """Claim: seat 1 cannot name itself and is held for B, B speaks at seat 0: only A is lost."""
    here = Look(cards=(replace(B, index=0),))
    nobody = Look(cards=(B,), signs=(sign(B),), named=False)
    book = observe(look(Book(), A, B), Round(looks={0: here, 1: nobody}), at(1), RULES)

    assert health(book) == {"GPU-b": "healthy", "GPU-a": "failed"}


# --- across restarts ------------------------------------------------------------------------------------------------


def published(*cards: Card, boot: str = "boot-1", provider: str = "nvml") -> NodeInventory:
    return NodeInventory(node=NodeName("n"), boot_id=boot, incarnation="i", cards=cards, provider=provider)


def recall(last: NodeInventory | None, boot: str = "boot-1", provider: str = "nvml") -> Book:
    return remember(last, boot_id=boot, provider=provider, at=at(0), rules=RULES)


def test_a_card_lost_while_no_monitor_looked_is_still_missed() -> None:
    """Claim: same boot, new monitor: what the last inventory had and the driver lacks is failed."""
    assert health(look(recall(published(A, B)), A)) == {"GPU-a": "healthy", "GPU-b": "failed"}


@pytest.mark.parametrize(
    ("doubt", "then"),
    [
        ({"health": "failed", "health_reason": LOST, "health_needs": "answer"}, "recovering"),
        ({"health": "failed", "health_reason": LOST, "health_needs": "reset"}, "failed"),
        ({"health": "failed", "health_reason": LOST}, "recovering"),  # from a monitor that did not say what it needs
        ({"health": "recovering", "health_reason": LOST, "health_needs": "time"}, "recovering"),
        ({"health": "suspect", "health_reason": LOST, "health_needs": "time"}, "suspect"),
        ({"health": "suspect", "health_reason": "no answer", "health_needs": "answer"}, "healthy"),
    ],
)
def test_a_doubt_is_not_forgiven_by_a_restart(doubt: dict[str, str], then: str) -> None:
    """Claim: what a card needed under the last monitor it needs under this one too; silence is over with an answer."""
    book = look(recall(published(A, replace(B, **doubt))), A, B, at_ms=5)

    assert health(book) == {"GPU-a": "healthy", "GPU-b": then}
    healed = health(look(look(released(book), A, B, at_ms=6), A, B, at_ms=60_006))
    assert healed == {"GPU-a": "healthy", "GPU-b": "healthy"}


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

    assert look(recall(last, boot, provider), new).cards == (new,)


def test_what_is_remembered_late_joins_what_was_seen_meanwhile() -> None:
    """Claim: what was seen well is well unless its past needs more, and what was seen ill stays ill."""
    past = recall(published(A, B, replace(card("GPU-c", 2), health="failed", health_needs="reset")))
    seen = look(look(Book(), A, card("GPU-c", 2)), A, card("GPU-c", 2), lost=(A,))

    assert health(adopt(Book(), past, at(9), RULES)) == {"GPU-a": "suspect", "GPU-b": "suspect", "GPU-c": "failed"}
    assert health(adopt(seen, past, at(9), RULES)) == {"GPU-a": "failed", "GPU-b": "failed", "GPU-c": "failed"}
    assert adopt(seen, past, at(9), RULES).cards[2].health_needs == "reset"
    assert health(adopt(look(Book(), A), past, at(9), RULES))["GPU-a"] == "healthy"


rounds = st.lists(
    st.one_of(
        st.none(),
        st.dictionaries(st.sampled_from("abcd"), st.booleans()).map(
            lambda states: (
                tuple(card(name, ord(name)) for name in states),
                tuple(card(name, ord(name)) for name, lost in states.items() if lost),
            )
        ),
    ),
    max_size=12,
)


@settings(deadline=None)  # a busy machine is no failure
@given(rounds)
def test_no_card_ever_disappears_and_none_that_failed_is_trusted_early(
    story: list[tuple[tuple[Card, ...], tuple[Card, ...]] | None],
) -> None:
    """Claim: over any story of looks and silences, cards only accumulate, in order, and trust takes its time."""
    book, ever, failed_at = Book(), set[str](), dict[str, int]()
    for second, seen in enumerate(story):
        cards, lost = seen or ((), ())
        now_ms = second * 20_000
        book = silent(book, "quiet", at(now_ms), RULES) if seen is None else look(book, *cards, lost=lost, at_ms=now_ms)
        ever |= {card.uuid for card in cards}
        assert {card.uuid for card in book.cards} == ever
        assert list(book.cards) == sorted(book.cards, key=lambda card: (card.index, card.uuid))
        failed_at |= {card.uuid: second for card in book.cards if card.health == "failed"}
        for one in book.cards:
            if one.health == "healthy":
                assert one.uuid in {card.uuid for card in cards}
                assert second - failed_at.get(one.uuid, -99) > 3
