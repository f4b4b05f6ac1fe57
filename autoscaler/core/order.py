"""Who is deleted first.

In: active replicas and the time. Out: the same replicas, the first to go in front. Rules, the first that differs
decides (those of the Kubernetes ReplicaSet controller, in its order):

1. not placed before placed
2. phase: Pending, then Unknown, then Running
3. not ready before ready
4. lower deletion cost
5. more active replicas on the same node
6. of two ready ones: ready for a shorter time
7. more restarts
8. created later

Ages (6 and 8) are compared on a logarithmic scale: trunc(log2(nanoseconds)). Of equal ages, and at the very end, the
smaller uid goes first, then the smaller name. An unknown time goes before every known one.

    ready 70 s and 100 s ago: both 36 on the scale, so the uid decides       2^36 ns = 68.7 s, 2^37 ns = 137 s
    ready 60 s and 100 s ago: 35 and 36, so the younger goes

The rules compare two replicas; as they stand three can form a ring: a before b by restarts (same ready time), b before
c and c before a by uid (same age on the scale). Here replicas of exactly the same time stand together, under the
smallest uid among them. Any two replicas alone are ordered as the rules say; many have one order, whatever their input
order was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from autoscaler.core.replicas import Replica, is_active

NS_PER_MS = 1_000_000
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}

Key = tuple[int | str, ...]
Time = Callable[[Replica], int | None]


def deletion_order(replicas: Sequence[Replica], now_ms: int, *, log_scale: bool = True) -> tuple[Replica, ...]:
    """Active replicas, first to be deleted in front. `log_scale=False` compares times as they are."""
    active = [replica for replica in replicas if is_active(replica)]
    on_node = Counter(replica.node for replica in active)
    keys: dict[int, Key] = {i: _standing(replica, on_node[replica.node]) for i, replica in enumerate(active)}
    for time, more in ((_ready, _restarts), (_created, _nothing)):
        ages = _ages(active, keys, time, now_ms if log_scale else None)
        keys = {i: (*keys[i], *ages[i], *more(replica)) for i, replica in enumerate(active)}
    ends = sorted(range(len(active)), key=lambda i: (*keys[i], active[i].uid, active[i].name))
    return tuple(active[i] for i in ends)


def _standing(replica: Replica, neighbours: int) -> Key:
    """Rules 1 to 5."""
    return (
        int(bool(replica.node)),
        PHASES.get(replica.phase, 0),
        int(replica.ready),
        replica.deletion_cost,
        -neighbours,
    )


def _ready(replica: Replica) -> int | None:
    return replica.ready_ms if replica.ready else None


def _created(replica: Replica) -> int | None:
    return replica.created_ms


def _restarts(replica: Replica) -> Key:
    """Rule 7."""
    return (-replica.restarts,)


def _nothing(_: Replica) -> Key:
    return ()


def _ages(replicas: Sequence[Replica], keys: dict[int, Key], time: Time, now_ms: int | None) -> dict[int, Key]:
    """Rules 6 and 8: (unknown first, age on the scale, smallest uid of those with this very time)."""
    groups: dict[tuple[Key, int | None], str] = {}
    for i, replica in enumerate(replicas):
        group = (keys[i], time(replica))
        groups[group] = min(groups.get(group, replica.uid), replica.uid)
    return {i: _age(time(r), now_ms, groups[keys[i], time(r)]) for i, r in enumerate(replicas)}


def _age(at_ms: int | None, now_ms: int | None, uid: str) -> Key:
    if at_ms is None:
        return (0, 0, "")
    if now_ms is None:
        return (1, -at_ms, "")
    return (1, log2_age(now_ms - at_ms), uid)


def log2_age(age_ms: int) -> int:
    """trunc(log2(age in nanoseconds)); -1 for what has not begun."""
    return (age_ms * NS_PER_MS).bit_length() - 1 if age_ms > 0 else -1
