"""Memory of nobody, damped: what flaps writes no record, what stays is not sold, what left is sold again later."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.inventory import Card
from contracts.units import CardUuid, RequestUid
from contracts.usage import ProcessUsage
from monitor.unmanaged import Damped, Patience, observe, overlaid, remembered, said, words

A = CardUuid("GPU-a")
CARD = Card(uuid=A, index=0, model="T4", memory_total_mib=15_000, memory_reserved_mib=500)
WHO = (ProcessUsage(pid=4242, command="python3", memory_mib=9000), ProcessUsage(pid=17, command="Xorg", memory_mib=50))
PATIENCE = Patience()


def run(values: list[int | None], *, book: dict[CardUuid, Damped] | None = None) -> tuple[list[int], int]:
    """One value a second: what is said after each, and how often it changed."""
    book = dict(book or {})
    told, changes = [], 0
    for second, mib in enumerate(values):
        before = said(book)
        book = observe(book, {A: mib}, {A: WHO}, now_ms=1000 * second, patience=PATIENCE)
        changes += said(book) != before
        told.append(said(book).get(A, 0))
    return told, changes


def test_s077_what_stays_is_taken_off_after_ten_seconds() -> None:
    """Claim: 10,000 MiB of a process outside are not sold from the tenth second on, rounded up to a step."""
    told, changes = run([10_000] * 15)

    assert told == [0] * 10 + [10_240] * 5
    assert changes == 1


def test_it_is_sold_again_after_a_minute() -> None:
    """Claim: not before it has been free for 60 s in one piece."""
    told, changes = run([1000] * 12 + [0] * 65)

    assert told[11] == 1024
    assert told[12 + 59] == 1024
    assert told[12 + 61] == 0
    assert changes == 2


@pytest.mark.parametrize(
    ("pattern", "most"),
    [([5000] * 3 + [0] * 3, 0), ([5000] * 30 + [0] * 30, 1), ([5000, None], 1), ([0] * 59 + [5000], 0)],
    ids=["comes and goes", "half a minute each", "every other look is blind", "for a moment a minute"],
)
def test_a_process_that_flaps_writes_no_records(pattern: list[int | None], most: int) -> None:
    """Claim: over ten minutes at most one change, where each look would have been one."""
    _, changes = run((pattern * 600)[:600])

    assert changes <= most


def test_what_grows_all_the_time_is_one_record_in_ten_seconds() -> None:
    """Claim: 300 MiB more each second for two minutes: 12 changes and not 120."""
    _, changes = run([300 * second for second in range(120)])

    assert changes <= 12


def test_what_is_unknown_leaves_the_last_word() -> None:
    """Claim: a driver that lists no processes takes nothing back."""
    told, _ = run([3000] * 12 + [None] * 200)

    assert told[-1] == 3072


def test_a_new_monitor_goes_on_from_what_the_old_one_said() -> None:
    """Claim: after a restart the memory is not offered for ten seconds, and given back when it is free."""
    overlay = overlaid((CARD,), {A: Damped(said_mib=3072, by="python3 (4242)")})

    kept, _ = run([3000] * 30, book=remembered(overlay))
    freed, _ = run([0] * 70, book=remembered(overlay))

    assert set(kept) == {3072}
    assert (freed[59], freed[61]) == (3072, 0)


def test_the_card_says_how_much_and_who() -> None:
    """Claim: it stands in the inventory, and what is sellable shrinks by it and never below zero."""
    book = observe({}, {A: 9000}, {A: WHO}, now_ms=0, patience=PATIENCE)
    book = observe(book, {A: 9000}, {A: WHO}, now_ms=10_000, patience=PATIENCE)

    (card,) = overlaid((CARD,), book)

    assert (card.memory_unmanaged_mib, card.unmanaged_by) == (9216, "python3 (4242), Xorg (17)")
    assert (card.owned_mib, card.sellable_mib) == (14_500, 5284)
    assert overlaid((CARD,), {A: Damped(said_mib=99_999)})[0].sellable_mib == 0
    assert overlaid((CARD,), {}) == (CARD,)


def test_a_card_that_is_gone_is_forgotten() -> None:
    """Claim: the book holds the cards of the last period and no others."""
    book = observe({}, {A: 9000}, {}, now_ms=0, patience=PATIENCE)

    assert observe(book, {}, {}, now_ms=1, patience=PATIENCE) == {}


def test_what_flaps_for_an_hour_is_remembered_for_a_minute() -> None:
    """Claim: the steps of the long window and one before it, however long it goes on."""
    book: dict[CardUuid, Damped] = {}
    for second in range(3600):
        book = observe(book, {A: 1000 * (second % 2)}, {}, now_ms=1000 * second, patience=PATIENCE)

    assert len(book[A].steps) <= 62


def test_many_are_named_by_the_first_three() -> None:
    """Claim: a line that people can read, also when a program has no name."""
    many = tuple(ProcessUsage(pid=pid) for pid in range(1, 6))

    assert words(many) == "unnamed (1), unnamed (2), unnamed (3) and 2 more"
    assert words(()) == ""
    astray = ProcessUsage(pid=7, command="train", belongs="nobody", request=RequestUid("e-1-0"))
    assert words((astray,)) == "train (7) of request e-1-0, which has no share here"


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.one_of(st.none(), st.integers(0, 20_000)), max_size=200))
def test_what_is_said_was_seen_and_the_book_stays_small(values: list[int | None]) -> None:
    """Claim: never above the most that was ever seen (in steps), never below zero, 61 steps kept at most."""
    book: dict[CardUuid, Damped] = {}
    most = 0
    for second, mib in enumerate(values):
        book = observe(book, {A: mib}, {}, now_ms=1000 * second, patience=PATIENCE)
        most = max(most, -(-(mib or 0) // 256) * 256)

        assert 0 <= book[A].said_mib <= most
        assert len(book[A].steps) <= 62
