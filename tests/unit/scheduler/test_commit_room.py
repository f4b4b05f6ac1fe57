"""How much of a commit is for what comes in, and how much for decisions."""

from __future__ import annotations

import pytest

from bus.frames import store_header
from bus.ledger.append import commit_after
from bus.ledger.state import LedgerState
from bus.protocol import Outgoing
from contracts.decisions import Candidate, CardSlice, Placement, Rationale, Reserved
from contracts.messages import encode
from contracts.subjects import LEDGER, stream
from contracts.units import MAX_INTEGER, CardUuid, NodeName, RequestUid
from scheduler.core.engine import COMMIT_RECORDS, Engine
from scheduler.core.message_room import decision_bytes, largest_gang, size_of
from scheduler.core.policies import POLICIES
from tests.builders.ledger import cluster, node, request


def test_a_backlog_is_placed_while_it_is_accepted() -> None:
    """Claim: half a commit is left for decisions: nobody waits until the last of a backlog has been accepted."""
    state: LedgerState = cluster(*(node(f"n{i}").gpus(8).cpu(10**6) for i in range(8))).state
    engine = Engine(state, policy="packing")
    for number in range(COMMIT_RECORDS):
        if engine.laden:
            break
        engine.submit("ns", request(f"r{number}").share(1).cpu(1).build())
    assert len(state.pending) == COMMIT_RECORDS // 2
    engine.schedule()
    assert not state.pending
    assert len(engine.records) == COMMIT_RECORDS
    assert engine.full


def _longest(cards: int) -> Reserved:
    """A decision with the longest names and numbers that there may be."""
    name = NodeName("n" * 253)
    pieces = tuple(
        CardSlice(card=CardUuid(f"{index:0128d}"), share_milli=1000, memory_mib=10_000_000) for index in range(cards)
    )
    why = Rationale(
        policy=max(POLICIES, key=len),
        version=99,
        chosen=Candidate(node=name, score=-MAX_INTEGER),
        runner_up=Candidate(node=name, score=-MAX_INTEGER),
        feasible_nodes=100_000,
        rejected_nodes=100_000,
        parts={f"{index:020d}": -MAX_INTEGER for index in range(8)},
        nominated=MAX_INTEGER,
        instead_of="mine: raised " + "E" * 60,
    )
    where = Placement(node=name, slices=pieces, cpu_milli=10_000_000, memory_mib=100_000_000)
    return Reserved(uid=RequestUid("u" * 64), placement=where, rationale=why)


@pytest.mark.parametrize("cards", [0, 1, 8, 64])
def test_the_largest_gang_fits_one_message(cards: int) -> None:
    """Claim: whatever nodes and cards are called, all members that the door lets in are placed by one commit."""
    members = [_longest(cards)] * largest_gang(cards)
    assert len(encode(members[0])) <= decision_bytes(cards)
    commit = commit_after(LedgerState(epoch="e" * 64), members, author="a" * 200, policy_version="p" * 200)
    sent = Outgoing(
        subject=LEDGER.subject(pool="p" * 40), data=b"", message_id="i" * 120, expected_last=MAX_INTEGER, stream="s"
    )
    assert len(encode(commit)) + len(store_header(sent)) <= stream(LEDGER.stream).max_msg_bytes


def test_a_gang_that_does_not_fit_the_rest_of_a_commit_has_the_next_for_itself() -> None:
    """Claim: it is neither cut nor forgotten, nothing comes in before it, and afterwards things go on as ever."""
    state: LedgerState = cluster(*(node(f"n{i}").gpus(8).cpu(10**6) for i in range(2))).state
    engine = Engine(state, policy="packing")
    limit = 6_000
    engine.queue.desk.room = lambda: limit - engine.size
    for number in range(12):
        engine.submit("ns", request(f"r{number}").share(1000).cpu(1).gang("g", 12).build())
    engine.schedule()
    assert len(state.pending) == 12
    assert engine.laden
    assert engine.unfinished
    engine.take()
    engine.schedule()
    assert not state.pending
    assert len(engine.records) == 12
    assert size_of(engine.records) == engine.size <= limit
    assert not engine.laden
    assert not engine.unfinished
