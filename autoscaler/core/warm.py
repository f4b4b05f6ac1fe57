"""From a target to steps: who is promoted, created, sent to the warm pool, drained, withdrawn.

In: the replicas as they are, how many should serve, how many should be warm. Out: `Plan`, names only. A warm replica is
started and bound to its card, and gets no calls; promoting it is one message to its worker, no cold start. The pool is
refilled behind a promotion, and is the first thing given back when somebody waits for the cards.

More are wanted:     1. call back those that drain (the latest first), 2. promote warm ones that are ready, then
                     warm ones that still start, 3. create. Which of several warm ones: `core.standby`, by default
                     the steadiest, which is the last of the deletion order.
Fewer are wanted:    1. withdraw those that never served, 2. drain idle ones, 3. drain those with calls; each in
                     the order of `order`. The last of them go to the warm pool instead, while that is short.
Draining is over:    no calls left, or `drain_ms` have passed; then it is withdrawn. A replica that serves, or has, is
                     never withdrawn without that, also an idle one: it may be taking a call at this moment.
Warm ones:           those beyond the wanted number are withdrawn, or drained while they finish what they had; first
                     those that would be promoted last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from autoscaler.core.names import free_names
from autoscaler.core.order import deletion_order
from autoscaler.core.replicas import Replica, has_served, is_active, is_busy, is_draining, is_hot, is_warm
from autoscaler.core.standby import STEADIEST, Choice, last_first, promoted
from contracts.messages import Value

Names = tuple[str, ...]


class Plan(Value, frozen=True, kw_only=True):
    """Steps, to be done in this order. No name stands in two of them."""

    promote: Names = ()
    """Into traffic: draining ones and warm ones. One message to each worker."""
    create: Names = ()
    create_warm: Names = ()
    demote: Names = ()
    """Out of traffic, into the warm pool; what they work on they finish."""
    drain: Names = ()
    """Take no more calls, finish what there is."""
    withdraw: Names = ()
    """Delete."""


def plan(
    function: str,
    replicas: Sequence[Replica],
    *,
    target: int,
    warm_target: int,
    now_ms: int,
    drain_ms: int,
    reserved: Collection[str] = (),
    pressure: bool = False,
    choice: Choice = STEADIEST,
) -> Plan:
    """The steps from what is to what should be.

    Args:
        function: its name, from which those of new replicas are made.
        replicas: all that are known, ended ones too: their names are taken while they are listed.
        target: how many should serve.
        warm_target: how many should be warm besides.
        now_ms: the clock of the replicas.
        drain_ms: how long a replica may finish its calls.
        reserved: names that were asked for without an answer; the next creations take them again.
        pressure: somebody waits for the cards: the warm are given back, none is made.
        choice: which of the warm are promoted, and which given back.
    """
    hot = [replica for replica in replicas if is_hot(replica)]
    warm = deletion_order([replica for replica in replicas if is_warm(replica)], now_ms)[::-1]
    back = _called_back(replicas, target - len(hot), now_ms, drain_ms)
    risen = promoted(warm, target - len(hot) - len(back), choice)
    leaving = _leaving(hot, len(hot) - target, now_ms)
    left = last_first(_without(warm, risen), choice)
    room = 0 if pressure else warm_target
    stay = [replica for replica in leaving if replica.ready][: -1 - max(0, room - len(left)) : -1]
    gone = _without(leaving, stay)
    missing = max(0, target - len(hot) - len(back) - len(risen))
    short = max(0, room - len(left) - len(stay))
    names = free_names(function, {replica.name for replica in replicas}, missing + short, reserved)
    spare = left[: max(0, len(left) - room)]
    return Plan(
        promote=_names(chain(back, risen)),
        create=names[:missing],
        create_warm=names[missing:],
        demote=_names(stay),
        drain=_names(
            chain(
                (replica for replica in gone if has_served(replica)), (replica for replica in spare if is_busy(replica))
            )
        ),
        withdraw=_names(
            chain(
                (replica for replica in gone if not has_served(replica)),
                _without([replica for replica in replicas if _drained(replica, now_ms, drain_ms)], back),
                (replica for replica in spare if not is_busy(replica)),
            )
        ),
    )


def _called_back(replicas: Sequence[Replica], count: int, now_ms: int, drain_ms: int) -> list[Replica]:
    """Those that drain and are still needed; one whose time is up is on its way out already."""
    draining = [r for r in replicas if is_draining(r) and r.ready and not _overdue(r, now_ms, drain_ms)]
    return sorted(draining, key=lambda r: (-(r.draining_since_ms or 0), r.name))[: max(0, count)]


def _leaving(hot: list[Replica], count: int, now_ms: int) -> list[Replica]:
    """Those that never served, then idle ones, then busy ones, each in deletion order."""
    ordered = deletion_order(hot, now_ms) if count > 0 else ()
    return sorted(ordered, key=lambda replica: (has_served(replica), is_busy(replica)))[: max(0, count)]


def _drained(replica: Replica, now_ms: int, drain_ms: int) -> bool:
    return is_draining(replica) and (not is_busy(replica) or _overdue(replica, now_ms, drain_ms))


def _overdue(replica: Replica, now_ms: int, drain_ms: int) -> bool:
    return is_active(replica) and now_ms - (replica.draining_since_ms or 0) >= drain_ms


def _without(replicas: Sequence[Replica], others: Sequence[Replica]) -> list[Replica]:
    names = {replica.name for replica in others}
    return [replica for replica in replicas if replica.name not in names]


def _names(replicas: Iterable[Replica]) -> Names:
    return tuple(replica.name for replica in replicas)
