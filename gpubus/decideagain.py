"""One commit of a log, decided again from the log before it. Pure.

In: a log, a sequence. Out: each decision of that commit as it stands and as it is computed now, and whether their bytes
are equal. The deciding is `scheduler.core.replay`, the same that the audit walks the whole log with.
"""

from __future__ import annotations

from contracts.decisions import Nominated, Reserved
from contracts.messages import Value, encode
from gpubus.ledgerfile import Log
from scheduler.core.replay import Decided, Replay, foreign


class Decision(Value, frozen=True, kw_only=True):
    """One of them: a placement, or a place in sight; `again` is None when there is none now."""

    namespace: str
    name: str
    logged: Decided
    again: Decided | None
    equal: bool
    unknown: str = ""
    """A policy, or a version of one, that is not known here: it could not be decided again."""


class Again(Value, frozen=True, kw_only=True):
    """The commit and its decisions."""

    sequence: int
    policy_version: str
    author: str
    at_ms: int
    decisions: tuple[Decision, ...]


def decide_again(log: Log, at: int) -> Again:
    """The commit at that sequence, which is in the log.

    Raises:
        LedgerError: the log before it does not add up.
        UsageError: a commit that cannot be read.
    """
    commit = next(commit for commit, sequence in log.commits() if sequence == at)
    replay = Replay(log.pool, log.state(before=at))
    replay.take(commit, at)
    others = {encode(difference.logged): difference.again for difference in replay.differences}
    decisions = []
    for record in commit.records:
        if not isinstance(record, Reserved | Nominated):
            continue
        again = others.get(encode(record), record)
        request = replay.state.get(record.uid)
        decisions.append(
            Decision(
                namespace=request.accepted.namespace if request is not None else "",
                name=request.request.name if request is not None else record.uid,
                logged=record,
                again=again,
                equal=not (unknown := foreign(record)) and again is not None and encode(again) == encode(record),
                unknown=unknown,
            )
        )
    return Again(
        sequence=at,
        policy_version=commit.policy_version,
        author=commit.author,
        at_ms=commit.at_ms,
        decisions=tuple(decisions),
    )
