"""What would happen if: a copy of a state, changes to it, and the scheduler's own engine let loose on it. Pure.

In: a state, `Changes`, the default policy. Out: who of those that wait would start and where, who would still wait and
why, who would move when a node is drained, who would have to leave, and what would become of new requests. Nothing is
kept: the state that came in is copied, and no record leaves.

Drained: the node takes nothing new, and what runs there asks again under its name, in its old order, after those that
wait already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bus.ledger import snapshot
from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState, NodeState, RequestState
from contracts.decisions import FactsSet, HealthSet, InventorySet, QuotaSet, Released
from contracts.messages import Value
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest
from contracts.units import CardUuid, NodeName, RequestKey, RequestUid, request_key
from gpubus.errors import UsageError
from scheduler.core.engine import Engine
from scheduler.core.policies import DEFAULT_POLICY
from scheduler.core.queue.moves import one_move
from scheduler.core.queue.quota import beyond
from scheduler.core.queue.waiting import kind_of

KINDS_MOVED_FOR = 32
"""Of those who wait, for whom a move is looked for: a search reads every node, 0.1 ms each."""
ROUNDS = 1000
"""Commits that settling may take: each places something, or it is over."""


class Changes(Value, frozen=True, kw_only=True):
    """What is different."""

    add_nodes: int = 0
    like: str = ""
    """The node that new ones are equal to; empty = the first by name."""
    drain: tuple[str, ...] = ()
    quotas: tuple[NamespaceQuota, ...] = ()
    policy: str = ""
    """Empty = what the ledger's last placements were decided by."""
    submit: PodRequest | None = None
    namespace: str = "default"
    times: int = 1
    moves: bool = False
    """Also look for one pod each whose move would make room for those who still wait."""


class Fate(Value, frozen=True, kw_only=True):
    """What becomes of one request: a place, or the first reason against it."""

    namespace: str
    name: str
    node: str = ""
    cards: tuple[str, ...] = ()
    reason: str = ""
    before: str = ""
    """The node that it had to leave."""


class Moved(Value, frozen=True, kw_only=True):
    """One pod that could be elsewhere, and who would then start in its place."""

    namespace: str
    name: str
    before: str
    node: str
    starts: str
    """As `namespace/name`; the first of those that ask for the same."""
    starts_on: str
    cards: tuple[str, ...] = ()
    """Of who starts."""


class Answer(Value, frozen=True, kw_only=True):
    """The whole answer; each list in order of acceptance."""

    policy: str
    sequence: int
    waiting: tuple[Fate, ...]
    """Those that wait now."""
    moving: tuple[Fate, ...]
    """Those on drained nodes."""
    leaving: tuple[Fate, ...]
    """Those that would have to leave for another one."""
    submitted: tuple[Fate, ...]
    moves: tuple[Moved, ...] = ()
    """One each, and each by itself: the next one may be another when one is done."""


def what_if(state: LedgerState, changes: Changes) -> Answer:
    """The state with the changes, settled.

    Raises:
        UsageError: a node that is not there.
    """
    trial = snapshot.copy(state)
    policy = changes.policy or policy_of(state)
    waiting = list(trial.pending)
    _change(trial, changes)
    moved = [each for name in changes.drain for each in _emptied(trial, name)]
    engine = Engine(trial, policy=policy)
    moving = {request.key: _submit(engine, request.accepted.namespace, request.request) for request in moved}
    submitted = [_submit(engine, changes.namespace, each) for each in _copies(trial, changes)]
    _settle(engine)
    places = {request.key: request.placement.node for request in moved if request.placement is not None}
    return Answer(
        policy=policy,
        sequence=state.sequence,
        waiting=tuple(_fate(engine, uid) for uid in waiting),
        moving=tuple(_fate(engine, uid, before=places[key]) for key, uid in moving.items()),
        leaving=tuple(_left(request) for request in trial.requests.values() if _leaves(state, request)),
        submitted=tuple(_fate(engine, uid) for uid in submitted),
        moves=tuple(_moves(engine)) if changes.moves else (),
    )


def policy_of(state: LedgerState) -> str:
    """What requests that name no policy were decided by last; the default when there is none."""
    decided = [
        request
        for request in (*state.recent.values(), *state.requests.values())
        if request.rationale is not None and request.request.policy is None
    ]
    last = max(decided, key=lambda request: request.decided_at, default=None)
    return last.rationale.policy if last is not None and last.rationale is not None else DEFAULT_POLICY.name


# --- changing ---------------------------------------------------------------------------------------------------------


def _change(state: LedgerState, changes: Changes) -> None:
    at = state.sequence + 1
    for quota in changes.quotas:
        apply_record(state, QuotaSet(quota=quota), at)
    if changes.add_nodes:
        like = _node(state, changes.like or min(state.nodes, default=""))
        for number in range(1, changes.add_nodes + 1):
            for record in _twin(like, f"{like.name}-more-{number}"):
                apply_record(state, record, at)
    for name in changes.drain:
        facts = _node(state, name).facts
        if facts is not None:
            apply_record(state, FactsSet(facts=msgspec.structs.replace(facts, unschedulable=True)), at)


def _node(state: LedgerState, name: str) -> NodeState:
    found = state.nodes.get(name)
    if found is None:
        raise UsageError(f"there is no node {name!r} in this ledger")
    return found


def _twin(like: NodeState, name: str) -> Iterable[InventorySet | FactsSet | HealthSet]:
    """A healthy, empty node of the same make, without the pods of others."""
    if like.facts is None or like.inventory is None:
        raise UsageError(f"node {like.name}: its facts or cards are not known, so nothing can be made like it")
    cards = tuple(
        msgspec.structs.replace(card, uuid=CardUuid(f"{name}-{card.index}"), health="healthy", health_reason="")
        for card in like.inventory.cards
    )
    node = NodeName(name)
    yield InventorySet(inventory=msgspec.structs.replace(like.inventory, node=node, cards=cards))
    yield FactsSet(
        facts=msgspec.structs.replace(
            like.facts,
            node=node,
            uid=name,
            ready=True,
            unschedulable=False,
            foreign_cpu_milli=0,
            foreign_memory_mib=0,
            foreign_pods=0,
            mode="dedicated",
            acquired=(),
        )
    )
    yield HealthSet(node=node, health="fresh")


def _emptied(state: LedgerState, name: str) -> list[RequestState]:
    """Everybody off the node; as they were there."""
    there = sorted((state.requests[uid] for uid in state.nodes[name].residents), key=_age)
    before = [msgspec.structs.replace(request) for request in there]
    for request in there:
        apply_record(state, Released(uid=request.uid, evidence="gone"), state.sequence + 1)
    return before


def _age(request: RequestState) -> tuple[int, int, str]:
    return (request.accepted_at, len(request.uid), request.uid)


# --- letting go -------------------------------------------------------------------------------------------------------


def _copies(state: LedgerState, changes: Changes) -> list[PodRequest]:
    """The request as often as was asked, under names that nobody has."""
    if changes.submit is None:
        return []
    taken = state.by_key
    base = changes.submit.name
    while any(_key(changes, f"{base}-{number}") in taken for number in range(1, changes.times + 1)):
        base += "-x"
    if changes.times == 1 and _key(changes, changes.submit.name) not in taken:
        return [changes.submit]
    return [msgspec.structs.replace(changes.submit, name=f"{base}-{n}") for n in range(1, changes.times + 1)]


def _key(changes: Changes, name: str) -> RequestKey:
    return request_key(changes.namespace, name)


def _submit(engine: Engine, namespace: str, request: PodRequest) -> RequestUid:
    answer = engine.submit(namespace, request, now_ms=engine.state.clock_ms)
    if answer.refusals:
        raise UsageError(f"{namespace}/{request.name}: {answer.refusals[0].text}")
    return answer.uid


def _settle(engine: Engine) -> None:
    """Commit after commit until nothing more can be placed."""
    for _ in range(ROUNDS):
        engine.schedule()
        engine.take()
        engine.state.number += 1
        engine.state.sequence += 1
        if not engine.unfinished:
            return


def _fate(engine: Engine, uid: RequestUid, *, before: str = "") -> Fate:
    request = engine.state.requests[uid]
    place = request.placement
    reasons = engine.reasons(request) if place is None else ()
    return Fate(
        namespace=request.accepted.namespace,
        name=request.request.name,
        node=place.node if place is not None else "",
        cards=tuple(piece.card for piece in place.slices) if place is not None else (),
        reason=reasons[0].text if reasons else "",
        before=before,
    )


def _moves(engine: Engine) -> Iterator[Moved]:
    """For the first of each kind that waits for room, in order of acceptance."""
    state, seen = engine.state, set[object]()
    for request in sorted(state.pending.values(), key=_age):
        alone = request.request.gang is None and request.nomination is None and engine.queue.desk.nominable(request)
        if not alone or (kind := kind_of(request)) in seen:
            continue
        seen.add(kind)
        if len(seen) > KINDS_MOVED_FOR:
            return
        move = one_move(engine.queue.desk.search, engine.placer, request)
        if move is not None and beyond(state, request.accepted.namespace, (move.place,)) is None:
            mover = state.requests[move.mover]
            yield Moved(
                namespace=mover.accepted.namespace,
                name=mover.request.name,
                before=move.place.node,
                node=move.home.node,
                starts=request.key,
                starts_on=move.place.node,
                cards=tuple(piece.card for piece in move.place.slices),
            )


def _leaves(before: LedgerState, request: RequestState) -> bool:
    """It is told to go, and was not before."""
    old = before.requests.get(request.uid)
    return request.evicted_for != "" and (old is None or old.evicted_for == "")


def _left(request: RequestState) -> Fate:
    place = request.placement
    return Fate(
        namespace=request.accepted.namespace,
        name=request.request.name,
        before=place.node if place is not None else "",
        reason=f"for {request.evicted_for}",
    )


def counted(fates: Sequence[Fate]) -> tuple[int, int]:
    """How many have a place, and how many wait."""
    placed = sum(fate.node != "" for fate in fates)
    return placed, len(fates) - placed
