"""The replicas of a function as they are: from the ledger, from what workers say, and from what they were told. Pure.

In: requests of the ledger, the last report of each replica's worker, our own intents. Out: `Replica` values for the
decisions in `autoscaler.core`. The ledger says what exists; a replica serves when its worker says so, not when its pod
runs: a worker that is silent serves nothing.

A request of a replica's name that is not ours (no `WORKER_FUNCTION` in its environment) counts for nothing and keeps
its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from autoscaler.core.names import replica_index, replica_name
from autoscaler.core.profiles import cheapest
from autoscaler.core.replicas import Phase, Replica
from bus.ledger.state import LedgerState, RequestState
from contracts.functions import WorkerOrder, WorkerReport
from contracts.requests import EnvVar, PodRequest
from contracts.units import RequestKey, RequestUid, request_key
from contracts.workloads import Function

FUNCTION, REPLICA, WARM, CONCURRENCY = "WORKER_FUNCTION", "WORKER_REPLICA", "WORKER_WARM", "WORKER_CONCURRENCY"
URLS, CALLS = "WORKER_NATS_URLS", "WORKER_CALLS"

Role = Literal["ready", "warm", "draining"]
_ORDERS: dict[Role, Literal["promote", "demote", "drain"]] = {"ready": "promote", "warm": "demote", "draining": "drain"}


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a replica's worker, and since when it is ready and hot."""

    report: WorkerReport
    at_ms: int
    ready_ms: int
    hot_ms: int


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What we remember of one replica: when it was first seen, and what it was told."""

    since_ms: int
    role: Role
    told_ms: int
    """When it was told that role."""
    uid: str = ""
    not_worker: str = ""
    """The worker of an earlier request of this name: what was heard of it says nothing about this one."""


def heard(before: Heard | None, report: WorkerReport, at_ms: int) -> Heard:
    """With one more report. Another worker of the replica begins anew; an older word of the same one is dropped."""
    if before is None or before.report.worker != report.worker:
        return Heard(report=report, at_ms=at_ms, ready_ms=at_ms, hot_ms=at_ms)
    if report.sequence <= before.report.sequence:
        return before
    promoted = before.report.phase != "ready" and report.phase == "ready"
    return Heard(report=report, at_ms=at_ms, ready_ms=before.ready_ms, hot_ms=at_ms if promoted else before.hot_ms)


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """One function's replicas, and what is remembered of them."""

    replicas: tuple[Replica, ...] = ()
    seen: Mapping[str, Seen] = {}
    pending: Mapping[str, int] = {}
    """Names that wait for a card: since when."""


def roster(
    state: LedgerState,
    namespace: str,
    function: Function,
    before: Roster,
    words: Mapping[str, Heard],
    *,
    highest: int,
    now_ms: int,
    fresh_ms: int,
) -> Roster:
    """The replicas at this moment; `highest` is the largest index that may be in use."""
    replicas, seen, pending = [], {}, {}
    for request in _requests(state, namespace, function.name, highest):
        name = request.request.name
        if not is_ours(request.request, namespace, function.name):
            replicas.append(Replica(name=name, phase="Failed"))
            continue
        word = words.get(name)
        known = seen[name] = _known(before.seen.get(name), request, word, now_ms)
        if request.placement is None:
            pending[name] = before.pending.get(name, now_ms)
        replicas.append(_replica(request, known, _own(word, known), now_ms=now_ms, fresh_ms=fresh_ms))
    return Roster(replicas=tuple(replicas), seen=seen, pending=pending)


def told(before: Roster, name: str, role: Role, now_ms: int) -> Roster:
    """After a replica was told to do something else."""
    known = before.seen.get(name) or Seen(since_ms=now_ms, role=role, told_ms=now_ms)
    changed = msgspec.structs.replace(known, role=role, told_ms=now_ms)
    return msgspec.structs.replace(before, seen={**before.seen, name: changed})


def deaf(roster_: Roster, words: Mapping[str, Heard]) -> Iterator[tuple[str, WorkerOrder]]:
    """Replicas whose worker does something else than it was told, with what to tell it again."""
    for name, seen in roster_.seen.items():
        word = words.get(name)
        if word is not None and word.report.phase not in (seen.role, "gone"):
            yield name, WorkerOrder(order=_ORDERS[seen.role])


def order_of(role: Role) -> WorkerOrder:
    """What to tell a worker so that it is that."""
    return WorkerOrder(order=_ORDERS[role])


def _known(before: Seen | None, request: RequestState, word: Heard | None, now_ms: int) -> Seen:
    """What we remember of it; of a name that has begun a new life nothing but whom not to listen to."""
    if before is not None and before.uid in ("", request.uid):
        return msgspec.structs.replace(before, uid=request.uid)
    stale = word.report.worker if word is not None and before is not None else ""
    role: Role = "warm" if value_of(request.request, WARM) == "1" else "ready"
    if word is not None and not stale and word.report.phase != "gone":
        role = word.report.phase  # after a restart of ours the worker itself knows what it was told
    return Seen(since_ms=now_ms, role=role, told_ms=now_ms, uid=request.uid, not_worker=stale)


def _own(word: Heard | None, seen: Seen) -> Heard | None:
    """What was heard of this life's worker, if it has not said that it is gone."""
    over = word is None or word.report.phase == "gone" or word.report.worker == seen.not_worker
    return None if over else word


def _replica(request: RequestState, seen: Seen, word: Heard | None, *, now_ms: int, fresh_ms: int) -> Replica:
    """One whose worker fell silent is not ready, and keeps when it was: it may hold calls, and is drained first."""
    fresh = word is not None and now_ms - word.at_ms <= fresh_ms
    return Replica(
        name=request.request.name,
        uid=request.uid,
        node=request.placement.node if request.placement else "",
        cards=tuple(piece.card for piece in request.placement.slices) if request.placement else (),
        phase=_phase(request, word),
        ready=fresh,
        ready_ms=word.ready_ms if word else None,
        created_ms=seen.since_ms,
        deleting=request.withdrawn or request.leaving,
        draining_since_ms=seen.told_ms if seen.role == "draining" else None,
        warm=seen.role == "warm",
        in_flight=word.report.in_flight if word and fresh else None,
    )


def _phase(request: RequestState, word: Heard | None) -> Phase:
    return "Running" if word is not None or request.phase == "running" else "Pending"


def _requests(state: LedgerState, namespace: str, function: str, highest: int) -> Iterator[RequestState]:
    """By name, so that a look costs what the function has, not what the cluster has."""
    for index in range(highest + 1):
        uid = state.by_key.get(request_key(namespace, replica_name(function, index)))
        if uid is not None:
            yield state.requests[uid]


def slice_of(state: LedgerState, uid: str) -> tuple[str, int] | None:
    """Card model and thousandths that a request holds of each of its cards; None = nothing, or it is not known."""
    request = state.get(RequestUid(uid))
    pieces = request.placement.slices if request is not None and request.placement is not None else ()
    node = state.nodes.get(request.placement.node) if request is not None and request.placement is not None else None
    card = node.cards.get(pieces[0].card) if node is not None and pieces else None
    return (card.card.model, pieces[0].share_milli) if card is not None else None


def highest_index(state: LedgerState, namespace: str, function: str) -> int:
    """The largest index in use, -1 = none; looks at everything, once per start."""
    prefix = f"{namespace}/"
    names = (key[len(prefix) :] for key in state.by_key if key.startswith(prefix))
    return max((index for name in names if (index := replica_index(function, name)) is not None), default=-1)


def replica_request(
    namespace: str, function: Function, name: str, *, warm: bool, urls: str = "", cause: str = ""
) -> PodRequest:
    """The pod of one replica: the function's, told in its environment whose worker it is."""
    ours = {
        FUNCTION: f"{namespace}/{function.name}",
        REPLICA: name,
        CONCURRENCY: str(function.scaling.concurrency),
        **({CALLS: "1"} if not function.scaling.reuse else {}),
        **({WARM: "1"} if warm else {}),
        **({URLS: urls} if urls else {}),
    }
    env = (
        *(variable for variable in function.pod.env if variable.name not in ours),
        *(EnvVar(name=key, value=value) for key, value in ours.items()),
    )
    pod = msgspec.structs.replace(function.pod, env=env)
    return PodRequest(name=name, pod=pod, gpu=cheapest(function), cause=cause)


def is_ours(request: PodRequest, namespace: str, function: str) -> bool:
    """Whether a request is a replica of the function."""
    return value_of(request, FUNCTION) == f"{namespace}/{function}"


def value_of(request: PodRequest, variable: str) -> str:
    """A variable of the pod, empty when it is not there."""
    return next((entry.value for entry in request.pod.env if entry.name == variable), "")


def key_of(namespace: str, name: str) -> RequestKey:
    """How the ledger knows a replica."""
    return request_key(namespace, name)
