"""The proof from the log: it holds for what is sound, and finds what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from bus.ledger import on_requests
from bus.ledger.proof import Proof, Prover, conservation, prove
from bus.ledger.snapshot import digest
from bus.ledger.state import LedgerState, NodeState
from bus.protocol import MALFORMED, Received
from contracts.decisions import CardSlice, Commit, Released, Reserved, Resized, Withdrawn
from contracts.units import RequestUid
from tests.builders.history import Log, Step, accepted, adopted, as_message, inventory, piece, reserve, steps, tell
from tests.builders.ledger import cluster, node


def a_log() -> Log:
    """One card, two requests placed on it one after the other, by two authors in two terms."""
    log = Log()
    log.write(*cluster(node("n1").gpus(1)).log, term=3)
    log.write(accepted("u1", "a"), accepted("u2", "b"), accepted("u3", "c"), term=3)
    log.write(reserve(log.state.requests[RequestUid("u1")], "n1", piece("n1-gpu0", 700, 50)), term=3)
    log.write(Released(uid=RequestUid("u1"), evidence="ended"), author="z", term=9)
    log.write(reserve(log.state.requests[RequestUid("u2")], "n1", piece("n1-gpu0", 600, 80)), author="z", term=9)
    log.write(Withdrawn(uid=RequestUid("u3")), gap=5, author="z", term=9)
    return log


def tampered(log: Log, index: int, **changes: Any) -> list[Received]:
    """The stored messages with one commit changed."""
    messages = list(log.messages)
    commit, sequence = log.commits[index]
    messages[index] = as_message(msgspec.structs.replace(commit, **changes), sequence)
    return messages


def test_a_sound_log_is_proved_in_one_line() -> None:
    """Claim: counts, authors, terms and the fullest moment of each card, from the log alone."""
    log = a_log()
    proof = prove(log.messages)
    assert proof.holds, proof
    assert (proof.commits, proof.first_sequence, proof.last_sequence) == (7, 1, 12)
    assert (proof.accepted, proof.decided, proof.released, proof.withdrawn) == (3, 2, 1, 1)
    assert (proof.pending, proof.placed) == (0, 1)
    assert (proof.authors, proof.terms, proof.epochs) == (("a", "z"), (0, 3, 9), ("e0000000",))
    (peak,) = proof.peaks
    assert (peak.card, peak.share_milli, peak.memory_mib, peak.capacity_mib) == ("n1-gpu0", 700, 80, 81_920)
    assert proof.digest == digest(log.state)
    assert str(proof) == (
        "holds: 7 commits (1..12) with 11 records by 2 authors in 3 terms; 3 accepted, 2 decided, 1 released, "
        "1 withdrawn, 0 pending, 1 placed; the fullest of 1 cards had 700 of 1000 thousandths sold; "
        f"state {proof.digest[:12]}"
    )


def test_an_empty_log_holds() -> None:
    """Claim: nothing was promised, nothing is broken."""
    assert prove([]).holds
    assert prove([]).commits == 0


@pytest.mark.parametrize(
    ("index", "changes", "text"),
    [
        (2, {"predecessor": 1}, "commit at 3 follows 1"),
        (2, {"number": 9}, "number 9"),
        (2, {"epoch": "other"}, "epoch 'other'"),
        (2, {"records": ()}, "not a live request"),
        (4, {"records": ()}, "over-committed at 6"),
        (0, {"records": ()}, "epoch"),
    ],
)
def test_a_log_that_was_tampered_with_is_broken_at_the_sequence(index: int, changes: Any, text: str) -> None:
    """Claim: the first thing that does not hold is named, and what came before is counted."""
    proof = prove(tampered(a_log(), index, **changes))
    assert not proof.holds
    assert text in proof.broken
    assert str(proof).startswith(f"BROKEN after {proof.commits} sound commits")


def test_a_commit_that_is_missing_or_doubled_is_found() -> None:
    """Claim: the chain has no gap and no repetition."""
    messages = a_log().messages
    for broken in (messages[1:], [*messages[:3], *messages[4:]], [*messages, messages[-1]], messages[::-1]):
        assert not prove(broken).holds


def test_bytes_that_are_no_commit_are_found() -> None:
    """Claim: an unreadable message is an answer, not an exception; nothing after it is taken."""
    messages = a_log().messages
    prover = Prover()
    assert prover.take(messages[0])
    assert not prover.take(msgspec.structs.replace(messages[1], data=b"{}"))
    assert not prover.take(messages[1])
    assert "message at 2 is no commit" in prover.proof().broken


def test_a_message_whose_frame_was_hostile_is_found() -> None:
    """Claim: what the client could not parse as sent is not judged by its payload."""
    messages = a_log().messages
    messages[2] = msgspec.structs.replace(messages[2], headers={MALFORMED: "header"})
    assert "message at 3 is no commit: header" in prove(messages).broken


def test_a_fold_that_lets_too_much_through_is_caught_by_the_second_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: the proof does not rest on the fold's own check: with it switched off, over-commitment is still found."""
    monkeypatch.setattr(on_requests, "check_room", lambda *_: None)
    log = a_log()
    late = log.write(accepted("u4", "d"))
    log.write(reserve(log.state.requests[late.records[0].uid], "n1", piece("n1-gpu0", 401)))  # type: ignore[union-attr]
    assert "1001 of 1000 thousandths" in prove(log.messages).broken


def test_a_fold_that_adds_up_wrongly_is_caught_by_the_second_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: sums are compared, not believed."""
    log = a_log()
    real = on_requests._free

    def leaking(state: LedgerState, where: NodeState, uid: RequestUid, slice_: CardSlice) -> None:
        real(state, where, uid, slice_)
        where.cards[slice_.card].used_milli += 1

    monkeypatch.setattr(on_requests, "_free", leaking)
    assert "records sold (0, 0), the fold has (1, 0) at 5" in prove(log.messages).broken


def test_a_request_that_is_lost_is_caught_by_conservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: accepted = pending + placed + withdrawn + ended, or the log is broken."""
    log = a_log()
    real = on_requests.withdrawn
    from bus.ledger import fold

    def forgetful(state: LedgerState, record: Withdrawn, at: int) -> None:
        real(state, record, at)
        state.totals.withdrawn -= 1

    monkeypatch.setitem(fold._HANDLERS, Withdrawn, forgetful)
    assert "do not add up at 12" in prove(log.messages).broken
    assert conservation(log.state)


def test_growth_beyond_the_card_is_judged_and_growth_in_the_other_measure_is_not() -> None:
    """Claim: a card that lost memory may still sell thousandths to a tenant that is over its memory."""
    log = a_log()
    log.write(inventory("n1", "n1-gpu0", memory_mib=10))
    log.write(Resized(uid=RequestUid("u2"), share_milli=900, memory_mib=80))
    assert prove(log.messages).holds


def test_a_card_that_is_exactly_full_holds_and_so_does_one_that_was_found_too_full() -> None:
    """Claim: the bound is allowed; what was adopted beyond it is counted, and may still change in the other measure."""
    log = a_log()
    log.write(accepted("u4", "d"), accepted("u5", "e"))
    log.write(reserve(log.state.requests[RequestUid("u4")], "n1", piece("n1-gpu0", 400, 81_920 - 80)))
    assert prove(log.messages).holds
    log.write(adopted("u5", piece("n1-gpu0", 300, 0)))
    log.write(Resized(uid=RequestUid("u4"), share_milli=400, memory_mib=1))
    log.write(Resized(uid=RequestUid("u4"), share_milli=400, memory_mib=2))
    proof = prove(log.messages)
    assert proof.holds, proof
    assert proof.peaks[0].share_milli == 1300


def test_a_proof_from_a_checkpoint_knows_what_was_placed_before_it() -> None:
    """Claim: the books are opened with the placements of the state, and without its queue."""
    log = a_log()
    prover = Prover(state=log.replay(6))
    log.write(accepted("u4", "d"))
    log.write(reserve(log.state.requests[RequestUid("u4")], "n1", piece("n1-gpu0", 400)))
    assert all(prover.take(message) for message in log.messages[6:]), prover.broken
    assert prover.proof().peaks[0].share_milli == 1000


@settings(max_examples=80, deadline=None)
@given(steps)
def test_any_legal_history_is_proved(history: list[Step]) -> None:
    """Claim: no false alarm, and the same counts as the log has."""
    log = tell(history).log
    proof = prove(log.messages)
    assert proof.holds, proof
    records = [record for commit, _ in log.commits for record in commit.records]
    assert proof.records == len(records)
    assert proof.decided == sum(isinstance(record, Reserved) for record in records)
    assert (proof.pending, proof.placed) == (len(log.state.pending), log.state.placed_count())


@settings(max_examples=40, deadline=None)
@given(steps)
def test_a_proof_may_begin_at_a_checkpoint(history: list[Step]) -> None:
    """Claim: when the oldest commits have aged out, what is left is proved from a state that was."""
    log = tell(history).log
    half = len(log.commits) // 2
    prover = Prover(state=log.replay(half))
    assert all(prover.take(message) for message in log.messages[half:]), prover.broken
    assert prover.proof().digest == digest(log.state)


def test_a_proof_is_a_message() -> None:
    """Claim: it can be sent and stored."""
    proof = prove(a_log().messages)
    assert msgspec.json.decode(msgspec.json.encode(proof), type=Proof) == proof
    assert isinstance(a_log().commits[0][0], Commit)
