"""Replicas of a function as the decisions see them: which ones count, how many there should be, how they are made.

In: what is known of each replica. Out: counts, the wanted number where it is fixed by hand, sizes of creation batches.
Nothing here looks at load (`horizontal`) or says who goes first (`order`).

A replica is *active* until it has ended or is being deleted. An active one is *hot* (it serves, or will) or *warm* (it
is started and bound to its card, and gets no calls). Hot ones that are told to finish are *draining*: they count for
nothing any more, and hold their card.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from contracts.messages import Value

Phase = Literal["Pending", "Unknown", "Running", "Succeeded", "Failed"]


class Replica(Value, frozen=True, kw_only=True):
    """One replica. Times are milliseconds of one monotonic clock."""

    name: str
    uid: str = ""
    node: str = ""
    """Empty = not placed yet."""
    cards: tuple[str, ...] = ()
    """UUIDs of those that it holds a piece of."""
    phase: Phase = "Pending"
    ready: bool = False
    ready_ms: int | None = None
    """When it last became ready; None = never yet."""
    created_ms: int | None = None
    deleting: bool = False
    draining_since_ms: int | None = None
    warm: bool = False
    deletion_cost: int = 0
    """`controller.kubernetes.io/pod-deletion-cost`: lower goes first."""
    restarts: int = 0
    """The largest restart count of its containers."""
    in_flight: int | None = None
    """Calls it works on; None = it has not told."""


class Counts(Value, frozen=True, kw_only=True):
    """How many replicas are what. Nobody is counted twice."""

    hot_ready: int = 0
    coming: int = 0
    """Hot, asked for, not ready yet: capacity that is on its way."""
    warm_ready: int = 0
    warm_coming: int = 0
    draining: int = 0
    busy: int = 0
    """Of the hot and the draining: those that tell of calls in progress. A silent one is not among them: it is drained
    before it goes, and does not keep a function from going to zero for ever."""

    @property
    def planned(self) -> int:
        """What serves, and what will once it has started."""
        return self.hot_ready + self.coming

    @property
    def warm(self) -> int:
        """Started or starting, out of traffic."""
        return self.warm_ready + self.warm_coming


def is_active(replica: Replica) -> bool:
    """It has not ended and is not being deleted."""
    return replica.phase not in ("Succeeded", "Failed") and not replica.deleting


def is_draining(replica: Replica) -> bool:
    """Active, and told to finish what it has."""
    return is_active(replica) and replica.draining_since_ms is not None


def is_hot(replica: Replica) -> bool:
    """Active, gets calls or will get them."""
    return is_active(replica) and not replica.warm and not is_draining(replica)


def is_warm(replica: Replica) -> bool:
    """Active, kept out of traffic."""
    return is_active(replica) and replica.warm and not is_draining(replica)


def has_served(replica: Replica) -> bool:
    """It was ready once, so it may hold calls, also if nothing is heard of it now."""
    return replica.ready or replica.ready_ms is not None


def is_busy(replica: Replica) -> bool:
    """Something may fail if it is deleted now: it has calls, or it has served and does not tell."""
    return replica.in_flight != 0 if has_served(replica) else bool(replica.in_flight)


def counts(replicas: Iterable[Replica]) -> Counts:
    """How many replicas are what."""
    active = [replica for replica in replicas if is_active(replica)]
    hot = [replica for replica in active if is_hot(replica)]
    warm = [replica for replica in active if is_warm(replica)]
    draining = [replica for replica in active if is_draining(replica)]
    return Counts(
        hot_ready=sum(replica.ready for replica in hot),
        coming=sum(not replica.ready for replica in hot),
        warm_ready=sum(replica.ready for replica in warm),
        warm_coming=sum(not replica.ready for replica in warm),
        draining=len(draining),
        busy=sum(bool(replica.in_flight) for replica in (*hot, *draining)),
    )


def wanted_replicas(minimum: int | None, replicas: int | None) -> int | None:
    """How many there should be by hand; None = nobody said.

    minimum     replicas    wanted
    none        none        nobody said
    m           none        m
    any         0           0           (off wins)
    none        r           r
    m           r           the larger
    """
    if replicas is None:
        return minimum or None
    return max(replicas, minimum or 0) if replicas else 0


def next_batch(remaining: int, previous: int, *, failed: bool) -> int:
    """Size of the next batch of creations: 1, 2, 4, ... and 0 once all are made or the last batch had an error.

    A quota that refuses everything costs one refused creation instead of a thousand.
    """
    return 0 if failed else max(0, min(remaining, 2 * previous or 1))
