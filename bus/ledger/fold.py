"""The pure fold: commits in, state out, every invariant checked on the way.

    apply(state, commit, sequence)      a commit read from the log: chain, epoch and number are checked, then its records
    apply_record(state, record, at)     one record, also used by the author while it decides ahead of the log

A record that would break an invariant raises and is a defect of its author or a forgery: nobody may go on from there.

    LedgerError
    ├── ChainBroken          a commit does not follow the one before it
    └── InvariantBroken      a record would over-commit, decide twice, or speak of what is not there
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from bus.ledger.state import MIX_LIMIT, RECENT_LIMIT, CardState, LedgerState, NodeState, Phase, RequestState
from contracts.decisions import (
    Accepted,
    Adopted,
    CardHealthSet,
    CardSlice,
    Commit,
    EpochStarted,
    FactsSet,
    HealthSet,
    InventorySet,
    Observed,
    Placement,
    Record,
    Released,
    Reserved,
    Resized,
    Withdrawn,
)
from contracts.inventory import Card
from contracts.requests import PodRequest
from contracts.units import WHOLE_CARD, CardUuid, RequestUid, request_key


class LedgerError(Exception):
    """The log does not add up."""


class ChainBroken(LedgerError):  # noqa: N818 - named by what is the case
    """A commit does not follow the one before it."""


class InvariantBroken(LedgerError):  # noqa: N818
    """A record that must not be: the state before it is named in the text."""


def apply(state: LedgerState, commit: Commit, sequence: int) -> None:
    """Fold one commit, stored at `sequence`, into `state`.

    Raises:
        ChainBroken: predecessor, number or epoch do not follow.
        InvariantBroken: a record is not possible here.
    """
    check_chain(state, commit, sequence)
    for record in commit.records:
        apply_record(state, record, sequence)
    seal(state, commit, sequence)


def check_chain(state: LedgerState, commit: Commit, sequence: int) -> None:
    """The commit follows what is folded: same log, next number, no gap, same epoch unless it starts one."""
    if commit.predecessor != state.sequence or sequence <= state.sequence:
        raise ChainBroken(f"commit at {sequence} follows {commit.predecessor}, the state is at {state.sequence}")
    if commit.number != state.number + 1:
        raise ChainBroken(f"commit at {sequence} has number {commit.number}, expected {state.number + 1}")
    starts = bool(commit.records) and isinstance(commit.records[0], EpochStarted)
    if not starts and commit.epoch != state.epoch:
        raise ChainBroken(f"commit at {sequence} is of epoch {commit.epoch!r}, the state of {state.epoch!r}")


def seal(state: LedgerState, commit: Commit, sequence: int) -> None:
    """The records of `commit` are in; move the head."""
    if commit.requests_through < state.requests_through:
        raise InvariantBroken(
            f"requests_through goes back from {state.requests_through} to {commit.requests_through} at {sequence}"
        )
    state.sequence, state.number = sequence, commit.number
    state.requests_through = commit.requests_through


def apply_record(state: LedgerState, record: Record, at: int) -> None:
    """Fold one record of the commit at ledger sequence `at`.

    Raises:
        InvariantBroken: it is not possible in this state; the state may be half changed and must be dropped.
    """
    _HANDLERS[type(record)](state, record, at)


# --- requests ------------------------------------------------------------------------------------------------------


def _epoch(state: LedgerState, record: EpochStarted, at: int) -> None:
    if state.epoch and state.requests:
        raise InvariantBroken(f"epoch {record.epoch} starts at {at} over {len(state.requests)} live requests")
    fresh = LedgerState(pool=state.pool)
    for field in ("nodes", "requests", "by_key", "pending", "recent", "mix", "totals", "touched"):
        setattr(state, field, getattr(fresh, field))
    state.epoch = record.epoch
    state.requests_through = 0


def _accepted(state: LedgerState, record: Accepted, at: int) -> None:
    key = request_key(record.namespace, record.request.name)
    if key in state.by_key or record.uid in state.requests:
        raise InvariantBroken(f"{key} is accepted again at {at} while {state.by_key.get(key)} lives")
    request = RequestState(uid=record.uid, accepted=record, accepted_at=at)
    state.requests[record.uid] = state.pending[record.uid] = request
    state.by_key[key] = record.uid
    state.totals.accepted += 1
    _count_shape(state, record.request)


def mix_key(request: PodRequest) -> str:
    """The part of a request that placement quality depends on: CPU, cards, share, models."""
    gpu = request.gpu
    return f"{request.pod.cpu_milli}|{gpu.cards}|{gpu.share_milli if gpu.cards else 0}|{','.join(sorted(gpu.models))}"


def _count_shape(state: LedgerState, request: PodRequest) -> None:
    key = mix_key(request)
    state.mix[key] = state.mix.get(key, 0) + 1
    if len(state.mix) > MIX_LIMIT:
        del state.mix[min(state.mix, key=lambda k: (state.mix[k], k))]


def _live(state: LedgerState, uid: RequestUid, what: str, at: int) -> RequestState:
    request = state.requests.get(uid)
    if request is None:
        raise InvariantBroken(f"{what} at {at} for {uid}, which is not a live request")
    return request


def _withdrawn(state: LedgerState, record: Withdrawn, at: int) -> None:
    request = _live(state, record.uid, "withdrawal", at)
    request.withdrawn, request.detail = True, record.reason
    if request.placement is None:
        request.ending = "withdrawn"
        _finish(state, request, "withdrawn")


def _reserved(state: LedgerState, record: Reserved, at: int) -> None:
    request = _undecided(state, record.uid, at)
    node = state.nodes.get(record.placement.node)
    if node is None:
        raise InvariantBroken(f"{record.uid} is placed at {at} on {record.placement.node}, which is not known")
    _check_room(node, record.placement, at)
    _place(state, node, request, record.placement, at)
    request.rationale = record.rationale


def _undecided(state: LedgerState, uid: RequestUid, at: int) -> RequestState:
    request = _live(state, uid, "placement", at)
    if request.placement is not None or request.withdrawn:
        raise InvariantBroken(f"{uid} is decided again at {at}; it was at {request.decided_at}")
    return request


def _check_room(node: NodeState, placement: Placement, at: int) -> None:
    for free, asked, unit in (
        (node.free_cpu_milli, placement.cpu_milli, "milli-cores"),
        (node.free_memory_mib, placement.memory_mib, "MiB of host memory"),
    ):
        if asked > free:
            raise InvariantBroken(f"{node.name} is over-committed at {at}: {asked} {unit} asked, {free} free")
    if len({piece.card for piece in placement.slices}) < len(placement.slices):
        raise InvariantBroken(f"a placement at {at} on {node.name} names a card twice")
    for piece in placement.slices:
        _check_card(node, piece, at)


def _check_card(node: NodeState, piece: CardSlice, at: int) -> None:
    card = node.cards.get(piece.card)
    if card is None or not card.usable:
        raise InvariantBroken(f"card {piece.card} of {node.name} is sold at {at} and may not be")
    if piece.share_milli > card.free_milli or piece.memory_mib > card.free_mib:
        raise InvariantBroken(
            f"card {piece.card} is over-committed at {at}: {piece.share_milli} thousandths and {piece.memory_mib} MiB "
            f"asked, {card.free_milli} and {card.free_mib} free"
        )


def _place(state: LedgerState, node: NodeState, request: RequestState, placement: Placement, at: int) -> None:
    node.residents[request.uid] = placement
    node.used_cpu_milli += placement.cpu_milli
    node.used_memory_mib += placement.memory_mib
    for piece in placement.slices:
        card = node.cards[piece.card]
        card.residents[request.uid] = piece
        card.used_milli += piece.share_milli
        card.used_mib += piece.memory_mib
    request.placement, request.phase, request.decided_at = placement, "placed", at
    del state.pending[request.uid]
    state.touched.append(node.name)


def _adopted(state: LedgerState, record: Adopted, at: int) -> None:
    request = _undecided(state, record.uid, at)
    node = _node(state, record.placement.node)
    for piece in record.placement.slices:
        if piece.card not in node.cards:
            node.cards[piece.card] = _orphan(node.name, piece.card)
    _place(state, node, request, record.placement, at)
    request.pod = record.pod
    request.phase = "running" if record.running else "bound"


def _orphan(node: str, uuid: CardUuid) -> CardState:
    unknown = Card(uuid=uuid, index=0, model="unknown", memory_total_mib=None)
    return CardState(card=unknown, node=node, capacity_mib=0, present=False, reason="not in the node's inventory")


def _resized(state: LedgerState, record: Resized, at: int) -> None:
    request = _live(state, record.uid, "resize", at)
    if request.placement is None:
        raise InvariantBroken(f"{record.uid} is resized at {at} before it is placed")
    node = state.nodes[request.placement.node]
    pieces = tuple(
        CardSlice(card=p.card, share_milli=record.share_milli, memory_mib=record.memory_mib)
        for p in request.placement.slices
    )
    for old, new in zip(request.placement.slices, pieces, strict=True):
        _resize_card(node.cards[new.card], request.uid, old, new, at)
    request.placement = Placement(
        node=request.placement.node,
        slices=pieces,
        cpu_milli=request.placement.cpu_milli,
        memory_mib=request.placement.memory_mib,
    )
    node.residents[request.uid] = request.placement
    state.touched.append(node.name)


def _resize_card(card: CardState, uid: RequestUid, old: CardSlice, new: CardSlice, at: int) -> None:
    card.used_milli += new.share_milli - old.share_milli
    card.used_mib += new.memory_mib - old.memory_mib
    card.residents[uid] = new
    grew = new.share_milli > old.share_milli or new.memory_mib > old.memory_mib
    if grew and (card.used_milli > WHOLE_CARD or card.used_mib > card.capacity_mib):
        raise InvariantBroken(f"card {new.card} is over-committed by the resize of {uid} at {at}")


def _observed(state: LedgerState, record: Observed, at: int) -> None:
    request = _live(state, record.uid, record.phase, at)
    if request.placement is None:
        raise InvariantBroken(f"{record.uid} is {record.phase} at {at} without a placement")
    request.phase = record.phase
    request.pod = record.pod or request.pod


def _released(state: LedgerState, record: Released, at: int) -> None:
    request = _live(state, record.uid, "release", at)
    if request.placement is None:
        raise InvariantBroken(f"{record.uid} is released at {at} and holds nothing")
    node = state.nodes[request.placement.node]
    del node.residents[request.uid]
    node.used_cpu_milli -= request.placement.cpu_milli
    node.used_memory_mib -= request.placement.memory_mib
    for piece in request.placement.slices:
        _free(node, request.uid, piece)
    request.ending, request.detail = record.evidence, record.detail or request.detail
    _finish(state, request, "ended")
    state.touched.append(node.name)
    _forget_if_gone(state, node)


def _free(node: NodeState, uid: RequestUid, piece: CardSlice) -> None:
    card = node.cards[piece.card]
    del card.residents[uid]
    card.used_milli -= piece.share_milli
    card.used_mib -= piece.memory_mib
    if not card.present and not card.residents:
        del node.cards[piece.card]


def _finish(state: LedgerState, request: RequestState, phase: Phase) -> None:
    request.phase = phase
    del state.requests[request.uid]
    state.pending.pop(request.uid, None)
    del state.by_key[request.key]
    if phase == "withdrawn":
        state.totals.withdrawn += 1
    else:
        state.totals.ended += 1
    state.recent[request.uid] = request
    if len(state.recent) > RECENT_LIMIT:
        del state.recent[next(iter(state.recent))]


# --- nodes ---------------------------------------------------------------------------------------------------------


def tie_of(node: str) -> str:
    """A fixed rank that has nothing to do with hardware: names often follow racks, and rack order decides badly."""
    return hashlib.sha256(node.encode()).hexdigest()[:16]


def _node(state: LedgerState, name: str) -> NodeState:
    if name not in state.nodes:
        state.nodes[name] = NodeState(name=name, tie=tie_of(name))
    return state.nodes[name]


def _inventory(state: LedgerState, record: InventorySet, _at: int) -> None:
    node = _node(state, record.inventory.node)
    node.inventory = record.inventory
    old, node.cards = node.cards, {}
    for card in sorted(record.inventory.cards, key=lambda c: (c.index, c.uuid)):
        node.cards[card.uuid] = _refreshed(node.name, card, old.pop(card.uuid, None))
    for uuid, lost in sorted(old.items()):
        if lost.residents:
            lost.present, lost.reason = False, "no longer in the node's inventory"
            node.cards[uuid] = lost
    state.touched.append(node.name)


def _refreshed(node: str, card: Card, old: CardState | None) -> CardState:
    new = CardState(card=card, node=node, capacity_mib=card.sellable_mib)
    new.health, new.reason = card.health, card.health_reason
    if old is not None:
        new.cordoned = old.cordoned
        new.used_milli, new.used_mib, new.residents = old.used_milli, old.used_mib, old.residents
    return new


def _facts(state: LedgerState, record: FactsSet, _at: int) -> None:
    node = _node(state, record.facts.node)
    node.facts = record.facts
    state.touched.append(node.name)
    _forget_if_gone(state, node)


def _forget_if_gone(state: LedgerState, node: NodeState) -> None:
    if node.facts is not None and node.facts.gone and not node.residents:
        del state.nodes[node.name]


def _health(state: LedgerState, record: HealthSet, _at: int) -> None:
    node = _node(state, record.node)
    node.fresh, node.reason = record.health == "fresh", record.reason
    state.touched.append(node.name)


def _card_health(state: LedgerState, record: CardHealthSet, at: int) -> None:
    node = state.nodes.get(record.node)
    card = node.cards.get(record.card) if node else None
    if card is None:
        raise InvariantBroken(f"health of card {record.card} of {record.node} is set at {at}; there is none")
    card.cordoned = record.health == "cordoned"
    card.health = "healthy" if card.cordoned else record.health
    card.reason = record.reason
    state.touched.append(record.node)


_HANDLERS: dict[type, Callable[[LedgerState, Any, int], None]] = {
    EpochStarted: _epoch,
    Accepted: _accepted,
    Withdrawn: _withdrawn,
    Reserved: _reserved,
    Adopted: _adopted,
    Resized: _resized,
    Observed: _observed,
    Released: _released,
    InventorySet: _inventory,
    FactsSet: _facts,
    HealthSet: _health,
    CardHealthSet: _card_health,
}
