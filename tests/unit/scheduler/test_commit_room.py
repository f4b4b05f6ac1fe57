"""How much of a commit is for what comes in, and how much for decisions."""

from __future__ import annotations

from bus.ledger.state import LedgerState
from scheduler.core.engine import COMMIT_RECORDS, Engine
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
