"""The pure fold: commits in, state out, every invariant checked on the way.

    apply(state, commit, sequence)    a commit read from the log: chain, epoch and number are checked, then its records
    apply_record(state, record, at)   one record, also used by the author while it decides ahead of the log

A record that would break an invariant raises and is a defect of its author or a forgery: nobody may go on from there.
The rules are in `rules`, what each record does in `on_requests` and `on_nodes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bus.ledger import on_nodes, on_queue, on_requests
from bus.ledger.learning import mix_key, tell_time
from bus.ledger.on_nodes import tie_of
from bus.ledger.rules import ChainBroken, InvariantBroken, LedgerError, check_chain, check_gangs
from bus.ledger.state import LedgerState
from contracts.decisions import (
    Accepted,
    Adopted,
    CardHealthSet,
    Commit,
    EpochStarted,
    FactsSet,
    HealthSet,
    InventorySet,
    Nominated,
    NominationEnded,
    Observed,
    QuotaSet,
    Record,
    Refused,
    Released,
    Reserved,
    Resized,
    Withdrawn,
)


def apply(state: LedgerState, commit: Commit, sequence: int) -> None:
    """Fold one commit, stored at `sequence`, into `state`.

    Raises:
        ChainBroken: predecessor, number, epoch or pool do not follow; the state is as it was.
        InvariantBroken: a record is not possible here; the state may be half changed and must be dropped.
    """
    check_chain(state, commit, sequence)
    for record in commit.records:
        _HANDLERS[type(record)](state, record, sequence)
    check_gangs(state, commit.records, sequence)
    seal(state, commit, sequence)


def apply_record(state: LedgerState, record: Record, at: int) -> None:
    """Fold one record of the commit at ledger sequence `at`.

    Raises:
        InvariantBroken: it is not possible in this state; the state may be half changed and must be dropped.
    """
    _HANDLERS[type(record)](state, record, at)


def seal(state: LedgerState, commit: Commit, sequence: int) -> None:
    """The records of `commit` are in; move the head and the clock."""
    tell_time(state, commit.at_ms)
    state.sequence, state.number = sequence, commit.number
    state.requests_through = commit.requests_through


def _epoch(state: LedgerState, record: EpochStarted, at: int) -> None:
    if state.requests:
        raise InvariantBroken(f"epoch {record.epoch} starts at {at} over {len(state.requests)} live requests")
    if record.epoch == state.epoch:
        raise InvariantBroken(f"epoch {record.epoch} starts again at {at}")
    fresh = LedgerState(pool=state.pool)
    for field in _OF_AN_EPOCH:
        setattr(state, field, getattr(fresh, field))
    state.epoch = record.epoch


_OF_AN_EPOCH = (
    "requests_through",
    "nodes",
    "requests",
    "by_key",
    "pending",
    "recent",
    "recent_by_key",
    "homes",
    "learned",
    "learned_at",
    "learned_service",
    "coming",
    "coming_at",
    "coming_service",
    "mix",
    "service",
    "clock_ms",
    "began",
    "ended",
    "totals",
    "evicted",
    "quotas",
    "usage",
    "nominated",
    "touched",
)
"""All but pool and chain, which go on."""

_HANDLERS: dict[type, Callable[[LedgerState, Any, int], None]] = {
    EpochStarted: _epoch,
    Accepted: on_requests.accepted,
    Refused: on_requests.refused,
    Withdrawn: on_requests.withdrawn,
    Reserved: on_requests.reserved,
    Adopted: on_requests.adopted,
    Resized: on_requests.resized,
    Observed: on_requests.observed,
    Released: on_requests.released,
    InventorySet: on_nodes.inventory,
    FactsSet: on_nodes.facts,
    HealthSet: on_nodes.health,
    CardHealthSet: on_nodes.card_health,
    Nominated: on_queue.nominated,
    NominationEnded: on_queue.nomination_ended,
    QuotaSet: on_queue.quota,
}

__all__ = [
    "ChainBroken",
    "InvariantBroken",
    "LedgerError",
    "apply",
    "apply_record",
    "check_chain",
    "check_gangs",
    "mix_key",
    "seal",
    "tell_time",
    "tie_of",
]
