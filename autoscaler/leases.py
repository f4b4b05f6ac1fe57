"""How long a replica may hold its card without a word of its worker. Pure.

In: the replicas, the last words of their workers, since when every word would have been heard. Out: who gives the card
back, and why. What the ledger sees to itself is not looked at here: pods that end, nodes that are lost.

    never spoke    for `start_s` since it was asked for, or first seen by this autoscaler; without `start_s` it may take
                   as long as it takes
    fell silent    for `silent_s` since its last word, or since we could hear again, whichever is later

One that drains has its own end (`drain_s`). Silence that is our own is nobody's: it does not count while the bus does
not answer, nor when we have not looked for half of `silent_s`, because we stood still then.

    Silent since 0 s, the bus away from 100 to 400 s, silent_s 900: given back at 1300 s, unless it speaks before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from autoscaler.core.replicas import Replica, has_served, is_active, is_draining
from autoscaler.roster import Heard, Roster
from contracts.workloads import Scaling

S = 1000


class Hearing(msgspec.Struct, frozen=True, kw_only=True):
    """Since when we have heard whoever spoke, and when we looked last."""

    since_ms: int
    looked_ms: int


def hearing(before: Hearing | None, scaling: Scaling, *, answered: bool, now_ms: int) -> Hearing:
    """After one more look; `answered` = the bus did."""
    kept = before is not None and answered and now_ms - before.looked_ms <= scaling.silent_s * S // 2
    return Hearing(since_ms=before.since_ms if before is not None and kept else now_ms, looked_ms=now_ms)


def lapsed(
    roster: Roster, words: Mapping[str, Heard], scaling: Scaling, *, since_ms: int, now_ms: int
) -> Iterator[tuple[str, str]]:
    """Names of replicas that give their cards back, with the reason in words; `since_ms` is that of `hearing`."""
    for replica in roster.replicas:
        if not is_active(replica) or not replica.node or is_draining(replica) or replica.ready:
            continue
        limit_s, from_ms = _lease(replica, words, scaling, since_ms)
        if limit_s is not None and from_ms is not None and now_ms - from_ms >= limit_s * S:
            yield replica.name, f"its worker has said nothing for {limit_s} s"


def _lease(
    replica: Replica, words: Mapping[str, Heard], scaling: Scaling, since_ms: int
) -> tuple[int | None, int | None]:
    """Seconds, and from when they count."""
    word = words.get(replica.name)
    if word is None or not has_served(replica):
        return scaling.start_s, replica.created_ms
    return scaling.silent_s, max(word.at_ms, since_ms)
