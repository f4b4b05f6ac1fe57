"""Records and commits that must not be: the fold refuses each, and says at which sequence and by which numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bus.ledger.fold import ChainBroken, InvariantBroken, apply, apply_record, check_gangs
from bus.ledger.snapshot import copy, digest
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import (
    Accepted,
    CardHealthSet,
    EpochStarted,
    FactsSet,
    HealthSet,
    InventorySet,
    Observed,
    Record,
    Refused,
    Released,
    Resized,
    Withdrawn,
)
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.units import CardUuid, NodeName, RequestUid
from tests.builders.history import EPOCH, Log, accepted, adopted, inventory, piece, reserve, validate
from tests.builders.ledger import Cluster, cluster, node, request

N1 = NodeName("n1")
A, B = CardUuid("n1-gpu0"), CardUuid("n1-gpu1")


# --- records that must not be --------------------------------------------------------------------------------------

Setup = Callable[[Cluster], Iterable[Record]]


def _stale(c: Cluster, how: str) -> Iterable[Record]:
    facts = {"gone": {"gone": True}, "pods": {"allocatable_cpu_milli": 500, "allocatable_pods": 4, "foreign_pods": 3}}
    if how == "silent":
        c.fold(HealthSet(node=N1, health="suspect"))
    else:
        c.hold(request("anchor").share(1), "n1", 1)
        c.fold(FactsSet(facts=NodeFacts(node=N1, uid="u", allocatable_memory_mib=500, **facts[how])))
    return [reserve(c.accept(request("a")), "n1")]


def _of_card(c: Cluster, *before: Record, share: int = 1, memory: int = 0) -> Iterable[Record]:
    c.fold(*before)
    return [reserve(c.accept(request("a")), "n1", piece(A, share, memory))]


def _held(c: Cluster, *slices: tuple[str, int, int], **placement: Any) -> RequestState:
    held = c.accept(request("held"))
    c.fold(reserve(held, "n1", *(piece(*s) for s in slices), **placement))
    return held


def _ended(c: Cluster) -> RequestState:
    held = _held(c)
    c.release(held.uid)
    return held


def _resize(c: Cluster, share: int, memory: int) -> Iterable[Record]:
    _held(c, (A, 400, 100))
    other = c.accept(request("other"))
    c.fold(reserve(other, "n1", piece(A, 400, 100)))
    return [Resized(uid=other.uid, share_milli=share, memory_mib=memory)]


def _unheard(c: Cluster) -> Iterable[Record]:
    c.fold(inventory("n3", "x"), HealthSet(node=NodeName("n3"), health="fresh"))
    return [reserve(c.accept(request("a").cpu(0).memory(0)), "n3", piece("x", 1))]


def _withdrawn(c: Cluster) -> Iterable[Record]:
    r = c.accept(request("a"))
    return [Withdrawn(uid=r.uid), reserve(r, "n1")]


def _handled(c: Cluster) -> Iterable[Record]:
    c.state.requests_through = 7
    return [Refused(namespace="ns", name="a", request_sequence=7, refusals=())]


FULL = 81_920
BROKEN: dict[str, tuple[Setup, str]] = {
    "accepts a name that lives": (lambda c: [c.accept(request("a")).accepted], "accepted again"),
    "accepts a living uid": (
        lambda c: [accepted(c.accept(request("a")).uid, "b")],
        "accepted again",
    ),
    "accepts a uid that has ended": (lambda c: [accepted(_ended(c).uid, "b")], "accepted again"),
    "withdraws nobody": (lambda c: [Withdrawn(uid=RequestUid("u9"))], "not a live request"),
    "withdraws what has ended": (lambda c: [Withdrawn(uid=_ended(c).uid)], "not a live request"),
    "refuses what is handled": (_handled, "all up to 7 are handled"),
    "places nobody": (lambda c: [adopted("u9")], "not a live request"),
    "places twice": (lambda c: [reserve(_held(c), "n1")], "decided again"),
    "adopts what is placed": (lambda c: [adopted(_held(c).uid)], "decided again"),
    "places what was withdrawn": (_withdrawn, "not a live request"),
    "places on a node that is not there": (lambda c: [reserve(c.accept(request("a")), "n9")], "not known"),
    "places on a silent node": (lambda c: _stale(c, "silent"), "may not: it is not fresh"),
    "places on a deleted node": (lambda c: _stale(c, "gone"), "it is gone"),
    "places on a node that Kubernetes has not reported": (_unheard, "has not been heard of"),
    "takes more CPU than is free": (
        lambda c: [reserve(c.accept(request("a").cpu(64_001)), "n1")],
        "64001 milli-cores asked, 64000 free",
    ),
    "takes more host memory than is free": (
        lambda c: [reserve(c.accept(request("a").memory(524_289)), "n1")],
        "524289 MiB of host memory asked, 524288 free",
    ),
    "takes a pod slot that is not free": (lambda c: _stale(c, "pods"), "pods asked"),
    "names a card twice": (
        lambda c: [reserve(c.accept(request("a")), "n1", piece(A, 1), piece(A, 1))],
        "names a card twice",
    ),
    "adopts a card twice": (
        lambda c: [c.accept(request("a")).accepted and adopted(next(iter(c.state.pending)), piece(A, 1), piece(A, 1))],
        "names a card twice",
    ),
    "sells a card of another node": (
        lambda c: [reserve(c.accept(request("a")), "n1", piece("n2-gpu0", 1))],
        "may not be",
    ),
    "sells a cordoned card": (
        lambda c: _of_card(c, CardHealthSet(node=N1, card=A, health="cordoned")),
        "may not be",
    ),
    "sells a failed card": (lambda c: _of_card(c, CardHealthSet(node=N1, card=A, health="failed")), "may not be"),
    "sells a suspect card": (lambda c: _of_card(c, CardHealthSet(node=N1, card=A, health="suspect")), "may not be"),
    "sells a card that another node offers": (
        lambda c: _of_card(c, inventory("n1"), inventory("n2", A), inventory("n1", A)),
        "may not be",
    ),
    "sells a card that is lost": (
        lambda c: [_held(c, (A, 1, 1)) and inventory("n1"), *_of_card(c)],
        "may not be",
    ),
    "sells a thousandth too many": (
        lambda c: [_held(c, (A, 400, 0)) and reserve(c.accept(request("a")), "n1", piece(A, 601))],
        "601 thousandths and 0 MiB asked, 600 and 81920 free",
    ),
    "sells a MiB too much": (
        lambda c: [_held(c, (A, 1, FULL - 10)) and reserve(c.accept(request("a")), "n1", piece(A, 1, 11))],
        "1 thousandths and 11 MiB asked, 999 and 10 free",
    ),
    "sells memory that the driver keeps": (
        lambda c: [
            InventorySet(
                inventory=NodeInventory(
                    node=N1,
                    boot_id="b",
                    incarnation="i",
                    cards=(Card(uuid=A, index=0, model="m", memory_total_mib=FULL, memory_reserved_mib=600),),
                )
            ),
            reserve(c.accept(request("a")), "n1", piece(A, 1, FULL - 599)),
        ],
        "over-committed",
    ),
    "resizes what is pending": (
        lambda c: [Resized(uid=c.accept(request("a")).uid, share_milli=1, memory_mib=1)],
        "holds nothing",
    ),
    "resizes what has no card": (
        lambda c: [Resized(uid=_held(c).uid, share_milli=1, memory_mib=1)],
        "holds no card",
    ),
    "grows a share beyond its card": (lambda c: _resize(c, 601, 100), "201 thousandths and 0 MiB more asked, 200"),
    "grows memory beyond its card": (lambda c: _resize(c, 400, FULL - 99), "over-committed by the resize"),
    "observes what is pending": (
        lambda c: [Observed(uid=c.accept(request("a")).uid, phase="running")],
        "holds nothing",
    ),
    "observes nobody": (lambda c: [Observed(uid=RequestUid("u9"), phase="bound")], "not a live request"),
    "releases what is pending": (
        lambda c: [Released(uid=c.accept(request("a")).uid, evidence="gone")],
        "holds nothing",
    ),
    "releases twice": (lambda c: [Released(uid=_ended(c).uid, evidence="gone")], "not a live request"),
    "judges a card that is not there": (
        lambda c: [CardHealthSet(node=N1, card=CardUuid("x"), health="failed")],
        "there is none",
    ),
    "judges a card of a node that is not there": (
        lambda c: [CardHealthSet(node=NodeName("n9"), card=A, health="failed")],
        "there is none",
    ),
    "starts an epoch over live requests": (
        lambda c: [c.accept(request("a")) and EpochStarted(epoch="e2", reason="")],
        "over 1 live requests",
    ),
    "starts the same epoch again": (lambda c: [EpochStarted(epoch=EPOCH, reason="")], "starts again"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_record_that_must_not_be_is_refused_with_its_sequence(what: str) -> None:
    """Claim: the fold refuses every record of this table; the last one is the broken one, all before it are sound."""
    setup, text = BROKEN[what]
    c = cluster(node("n1").gpus(2), node("n2").gpus(1))
    *sound, broken = setup(c)
    for record in sound:
        apply_record(c.state, record, 76)
    validate(c.state)
    with pytest.raises(InvariantBroken, match="at 77") as caught:
        apply_record(c.state, broken, 77)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("share", "memory"),
    [(1, FULL), (600, FULL - 100), (200, 0)],
    ids=["all the memory that is left", "all the share that is left", "shrink"],
)
def test_a_resize_up_to_the_brim_is_fine(share: int, memory: int) -> None:
    """Claim: the bound itself is allowed."""
    c = cluster(node("n1").gpus(1))
    _held(c, (A, 400, 100))
    other = c.accept(request("other"))
    c.fold(reserve(other, "n1", piece(A, 200, 0)))
    c.fold(Resized(uid=other.uid, share_milli=share, memory_mib=min(memory, FULL - 100)))
    validate(c.state)


def test_a_placement_that_takes_all_that_is_left_is_fine() -> None:
    """Claim: every bound itself is allowed: CPU, host memory, pod slots, share and memory of the card."""
    c = cluster(node("n1").gpus(1).cpu(1000, foreign=400).memory(2000, foreign=500).pods(2))
    c.hold(request("a").share(1).gpu_memory(1).cpu(1).memory(1), "n1", 0)
    c.hold(request("b").share(999).gpu_memory(FULL - 1).cpu(599).memory(1499), "n1", 0)
    n1 = c.state.nodes["n1"]
    assert (n1.free_cpu_milli, n1.free_memory_mib, n1.free_pods) == (0, 0, 0)
    assert (n1.cards[A].free_milli, n1.cards[A].free_mib) == (0, 0)
    validate(c.state)


def test_a_tenant_of_an_overcommitted_card_may_still_give_back() -> None:
    """Claim: shrinking is possible whatever the card has become, and growing in what is not short too."""
    c = cluster(node("n1").gpus(1, memory_mib=80_000))
    r = c.hold(request("a").share(500).gpu_memory(40_000), "n1", 0)
    c.fold(inventory("n1", A, memory_mib=30_000))
    c.fold(Resized(uid=r.uid, share_milli=600, memory_mib=35_000))
    assert c.used("n1") == [600]
    validate(c.state)


# --- the chain -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sequence", "text"),
    [
        ({"pool": "other"}, 5, "of pool 'other'"),
        ({"predecessor": 3}, 5, "follows 3, the state is at 4"),
        ({"predecessor": 5}, 6, "follows 5, the state is at 4"),
        ({}, 4, "the state is at 4"),
        ({"number": 2}, 5, "has number 2, expected 3"),
        ({"number": 4}, 5, "has number 4, expected 3"),
        ({"epoch": "e2"}, 5, "is of epoch 'e2'"),
        ({"epoch": "e2", "records": (EpochStarted(epoch="e3", reason=""),)}, 5, "starts 'e3'"),
        ({"epoch": EPOCH, "records": (EpochStarted(epoch=EPOCH, reason=""),)}, 5, "starts 'e0000000'"),
        ({"epoch": "", "records": (EpochStarted(epoch="", reason=""),)}, 5, "starts ''"),
    ],
)
def test_a_commit_that_does_not_follow_is_refused_and_changes_nothing(
    fields: dict[str, Any], sequence: int, text: str
) -> None:
    """Claim: a gap, a repetition, a foreign pool or epoch is seen before any record is folded."""
    import msgspec

    log = Log()
    commit = log.write(accepted("u1", "a"), gap=2)
    before = digest(log.state)
    follower = msgspec.structs.replace(commit, number=3, predecessor=4, records=(accepted("u2", "b"),))
    with pytest.raises(ChainBroken) as caught:
        apply(log.state, msgspec.structs.replace(follower, **fields), sequence)
    assert text in str(caught.value)
    assert f"at {sequence}" in str(caught.value)
    assert digest(log.state) == before
    apply(log.state, follower, 5)


def test_a_log_that_does_not_begin_with_an_epoch_is_refused() -> None:
    """Claim: the first commit says which log this is."""
    import msgspec

    commit, _ = Log().commits[0]
    for epoch in ("", "e0000000"):
        with pytest.raises(ChainBroken):
            apply(LedgerState(), msgspec.structs.replace(commit, records=(), epoch=epoch), 1)


def test_a_position_in_the_requests_stream_that_goes_back_is_refused() -> None:
    """Claim: what is handled stays handled."""
    log = Log()
    log.write(requests_through=7)
    with pytest.raises(InvariantBroken, match="from 7 to 6 at 3"):
        log.write(requests_through=6)


# --- gangs ---------------------------------------------------------------------------------------------------------


def gang_of(c: Cluster, size: int, members: int) -> list[RequestState]:
    """Members of one gang, pending."""
    return [c.accept(request(f"m{i}").share(1).gang("g", size)) for i in range(members)]


def test_a_part_of_a_gang_is_refused_and_the_whole_of_it_is_not() -> None:
    """Claim: all or nothing, judged for the commit as a whole."""
    c = cluster(node("n1").gpus(1))
    records = [reserve(m, "n1", piece(A, 1)) for m in gang_of(c, 3, 3)]
    for part in (records[:1], records[:2]):
        before, after = c.state, copy(c.state)
        for record in part:
            apply_record(after, record, 9)
        for state in (before, after):
            with pytest.raises(InvariantBroken, match=f"{len(part)} of 3 members of gang default/g are placed at 9"):
                check_gangs(state, part, 9)
    check_gangs(c.state, records, 9)
    c.fold(*records)
    check_gangs(c.state, records, 9)


def test_a_gang_that_comes_and_is_placed_in_one_commit_is_judged_before_it_is_folded() -> None:
    """Claim: an author sees it before it is stored, also for members that nobody has heard of yet."""
    c = cluster(node("n1").gpus(1))
    accepted = [m.accepted for m in gang_of(copied(c), 2, 2)]
    records = [reserve(RequestState(uid=a.uid, accepted=a), "n1", piece(A, 1)) for a in accepted]
    check_gangs(c.state, [*accepted, *records], 9)
    with pytest.raises(InvariantBroken, match="1 of 2 members"):
        check_gangs(c.state, [*accepted, records[0]], 9)


def copied(c: Cluster) -> Cluster:
    """Another cluster in the same state."""
    other = Cluster()
    other.state = copy(c.state)
    return other


def test_a_lost_member_of_a_gang_is_placed_again_alone() -> None:
    """Claim: the rest still runs or has ended, so the gang is whole again (S080, S088)."""
    c = cluster(node("n1").gpus(1))
    members = gang_of(c, 3, 3)
    c.fold(*(reserve(m, "n1", piece(A, 1)) for m in members))
    c.release(members[0].uid).release(members[1].uid)
    again = c.accept(request("m0").share(1).gang("g", 3))
    record = reserve(again, "n1", piece(A, 1))
    c.fold(record)
    check_gangs(c.state, [record], 9)


def test_the_last_member_of_a_gang_that_was_adopted_but_for_it_completes_it() -> None:
    """Claim: exactly as many as the gang has is the whole of it, wherever they were placed."""
    c = cluster(node("n1").gpus(1))
    members = gang_of(c, 3, 3)
    c.fold(*(adopted(m.uid, piece(A, 1)) for m in members[:2]))
    record = reserve(members[2], "n1", piece(A, 1))
    check_gangs(c.state, [record], 9)
    c.fold(record)
    check_gangs(c.state, [record], 9)


def test_two_gangs_of_one_name_in_two_namespaces_are_two() -> None:
    """Claim: a member elsewhere does not complete a gang here."""
    c = cluster(node("n1").gpus(1))
    mine = gang_of(c, 2, 1)[0]
    theirs = request("x").share(1).gang("g", 2).build()
    c.fold(Accepted(uid=RequestUid("u9"), namespace="other", request=theirs))
    records = [reserve(r, "n1", piece(A, 1)) for r in (mine, c.state.requests[RequestUid("u9")])]
    c.fold(*records)
    with pytest.raises(InvariantBroken, match="1 of 2 members of gang default/g"):
        check_gangs(c.state, records, 9)
