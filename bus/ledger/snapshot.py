"""The state as bytes and back: equal states give equal bytes, on any machine. Pure.

In: a state. Out: lines of JSON, its digest, a state again, or a copy. The lines: a head; nodes by name; the queue in
its order; what is placed, by age; what is finished, oldest first.
What can be computed is not stored: who sits where follows from the placements, and the sums are stored only to be
compared with it, so that a state that does not add up is refused instead of healed in silence. `touched` is no part of
the value: positions in it end with the state that they were taken from.

Lines, not one document: each encodes in microseconds, so that a dump in a thread never holds the interpreter for long.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from copy import copy as shallow

import msgspec

from bus.ledger import holds
from bus.ledger.rules import LedgerError
from bus.ledger.state import CardState, Hold, LedgerState, NodeState, RequestState, Service, Totals
from contracts.decisions import CardHealthSet, Placement
from contracts.messages import encode
from contracts.quotas import NamespaceQuota
from contracts.units import NodeName, RequestUid

FORMAT = 1
"""Raised when old bytes would be read wrongly; a reader of another format ignores the checkpoint and folds the log."""


class SnapshotError(LedgerError):
    """Bytes that are no state: damaged, of another format, or not adding up."""


class _Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    format: int
    pool: str
    epoch: str
    sequence: int
    number: int
    requests_through: int
    nodes: int
    pending: int
    placed: int
    recent: int
    mix: dict[str, int]
    learned: dict[str, int]
    learned_at: int
    totals: Totals
    learned_service: dict[str, tuple[int, int]] = {}
    coming: dict[str, int] = {}
    coming_at: int = 0
    coming_service: dict[str, tuple[int, int]] = {}
    service: dict[str, Service] = {}
    clock_ms: int = 0
    evicted: int = 0
    quotas: dict[str, NamespaceQuota] = {}
    began: list[RequestUid] = []
    ended: list[tuple[str, int]] = []


# --- out -----------------------------------------------------------------------------------------------------------


def dump(state: LedgerState) -> bytes:
    """The one spelling of a state; whoever wants it off the event loop dumps a `copy` in a thread."""
    return b"\n".join(_lines(state))


def digest(state: LedgerState) -> str:
    """SHA-256 of `dump(state)`, hexadecimal: two states with one digest are the same state."""
    return digest_of(dump(state))


def digest_of(dumped: bytes) -> str:
    """SHA-256 of a dump, hexadecimal."""
    return hashlib.sha256(dumped).hexdigest()


def _lines(state: LedgerState) -> Iterator[bytes]:
    placed = sorted((r for r in state.requests.values() if r.placement is not None), key=_age)
    yield encode(_head(state, placed=len(placed)))
    for name in sorted(state.nodes):
        yield encode(_bare(state.nodes[name]))
    yield from map(encode, state.pending.values())
    yield from map(encode, placed)
    yield from map(encode, state.recent.values())


def _head(state: LedgerState, *, placed: int) -> _Head:
    return _Head(
        format=FORMAT,
        pool=state.pool,
        epoch=state.epoch,
        sequence=state.sequence,
        number=state.number,
        requests_through=state.requests_through,
        nodes=len(state.nodes),
        pending=len(state.pending),
        placed=placed,
        recent=len(state.recent),
        mix=state.mix,
        learned=state.learned,
        learned_at=state.learned_at,
        totals=state.totals,
        learned_service=state.learned_service,
        coming=state.coming,
        coming_at=state.coming_at,
        coming_service=state.coming_service,
        service=state.service,
        clock_ms=state.clock_ms,
        evicted=state.evicted,
        quotas=state.quotas,
        began=state.began,
        ended=state.ended,
    )


def _age(request: RequestState) -> tuple[int, int, str]:
    """Order of acceptance: the commit, then the index in it, which ends the uid (a longer one is a later one)."""
    return (request.accepted_at, len(request.uid), request.uid)


def _bare(node: NodeState) -> NodeState:
    """The node without what follows from the placements."""
    bare = shallow(node)
    bare.residents, bare.cards, bare.holds = {}, {}, {}
    bare.cordons = dict(sorted(node.cordons.items()))
    for uuid, card in node.cards.items():
        bare.cards[uuid] = shallow(card)
        bare.cards[uuid].residents = {}
    return bare


# --- in ------------------------------------------------------------------------------------------------------------

_read_head = msgspec.json.Decoder(_Head).decode
_read_node = msgspec.json.Decoder(NodeState).decode
_read_request = msgspec.json.Decoder(RequestState).decode


def load(data: bytes) -> LedgerState:
    """The state that was dumped.

    Raises:
        SnapshotError: these bytes are no dump of this format, or sums and placements disagree.
    """
    lines = data.split(b"\n")
    try:
        head = _read_head(lines[0])
        state = _begun(head, lines=len(lines))
        living = 1 + head.nodes + head.pending + head.placed
        _load_nodes(state, map(_read_node, lines[1 : 1 + head.nodes]))
        _load_live(state, [_read_request(line) for line in lines[1 + head.nodes : living]])
        _load_recent(state, map(_read_request, lines[living:]))
    except (msgspec.MsgspecError, KeyError) as error:
        raise SnapshotError(f"unreadable state: {error!r}") from error
    for node in state.nodes.values():
        _check_sums(node)
    return state


def _begun(head: _Head, *, lines: int) -> LedgerState:
    if head.format != FORMAT or lines != 1 + head.nodes + head.pending + head.placed + head.recent:
        raise SnapshotError(f"{lines} lines of format {head.format}; this reads format {FORMAT}, announced {head}")
    return LedgerState(
        pool=head.pool,
        epoch=head.epoch,
        sequence=head.sequence,
        number=head.number,
        requests_through=head.requests_through,
        mix=head.mix,
        learned=head.learned,
        learned_at=head.learned_at,
        totals=head.totals,
        learned_service=head.learned_service,
        coming=head.coming,
        coming_at=head.coming_at,
        coming_service=head.coming_service,
        service=head.service,
        clock_ms=head.clock_ms,
        evicted=head.evicted,
        quotas=head.quotas,
        began=head.began,
        ended=head.ended,
    )


def _load_nodes(state: LedgerState, nodes: Iterable[NodeState]) -> None:
    for node in nodes:
        node.cards = dict(sorted(node.cards.items(), key=_card_order))
        node.cordons |= {uuid: _cordon(c) for uuid, c in node.cards.items() if c.cordoned and uuid not in node.cordons}
        state.nodes[node.name] = node
        state.homes.update((uuid, node.name) for uuid, c in node.cards.items() if c.present and not c.rival)


def _cordon(card: CardState) -> CardHealthSet:
    """Of a state that was dumped when a cordon stood on its card alone, with its reason."""
    return CardHealthSet(node=NodeName(card.node), card=card.card.uuid, health="cordoned", reason=card.reason[:1024])


def _card_order(item: tuple[str, CardState]) -> tuple[bool, int, str]:
    uuid, card = item
    return (not card.present, card.card.index if card.present else 0, uuid)


def _load_live(state: LedgerState, live: list[RequestState]) -> None:
    state.pending = {request.uid: request for request in live if request.placement is None}
    for request in sorted(live, key=_age):
        state.requests[request.uid] = request
        state.by_key[request.key] = request.uid
        if request.nomination is not None and request.held is not None:
            _load_nomination(state, request, request.nomination.placement, request.held)
        if request.placement is not None:
            holds.charge(state, request.accepted.namespace, request.placement)
            node = state.nodes[request.placement.node]
            node.residents[request.uid] = request.placement
            for piece in request.placement.slices:
                node.cards[piece.card].residents[request.uid] = piece


def _load_nomination(state: LedgerState, request: RequestState, placement: Placement, held: Hold) -> None:
    state.nodes[placement.node].holds[request.uid] = held
    state.nominated[request.uid] = request
    holds.charge(state, request.accepted.namespace, placement)


def _load_recent(state: LedgerState, recent: Iterable[RequestState]) -> None:
    for request in recent:
        state.recent[request.uid] = request
        state.recent_by_key[request.key] = request.uid


def _check_sums(node: NodeState) -> None:
    seated: tuple[Placement | Hold, ...] = (*node.residents.values(), *node.holds.values())
    sums = (sum(p.cpu_milli for p in seated), sum(p.memory_mib for p in seated))
    if sums != (node.used_cpu_milli, node.used_memory_mib):
        raise SnapshotError(f"{node.name} does not add up: {sums} placed, {node.used_cpu_milli} milli-cores stored")
    for uuid, card in node.cards.items():
        pieces = [(p.share_milli, p.memory_mib) for p in card.residents.values()]
        pieces += [hold.cards[uuid] for hold in node.holds.values() if uuid in hold.cards]
        sold = (sum(milli for milli, _ in pieces), sum(mib for _, mib in pieces))
        if sold != (card.used_milli, card.used_mib):
            raise SnapshotError(f"card {uuid} of {node.name} does not add up: {sold} sold, {card.used_milli} stored")


# --- a copy --------------------------------------------------------------------------------------------------------


def copy(state: LedgerState) -> LedgerState:
    """An equal state, independent from here on; values that cannot change are shared. `touched` begins anew."""
    requests = {uid: shallow(request) for uid, request in state.requests.items()}
    return LedgerState(
        pool=state.pool,
        epoch=state.epoch,
        sequence=state.sequence,
        number=state.number,
        requests_through=state.requests_through,
        nodes={name: copy_node(node) for name, node in state.nodes.items()},
        requests=requests,
        by_key=dict(state.by_key),
        pending={uid: requests[uid] for uid in state.pending},
        recent=dict(state.recent),
        recent_by_key=dict(state.recent_by_key),
        homes=dict(state.homes),
        mix=dict(state.mix),
        learned=state.learned,
        learned_at=state.learned_at,
        learned_service=state.learned_service,
        coming=state.coming,
        coming_at=state.coming_at,
        coming_service=state.coming_service,
        service={key: shallow(spent) for key, spent in state.service.items()},
        clock_ms=state.clock_ms,
        evicted=state.evicted,
        quotas=dict(state.quotas),
        usage={namespace: shallow(use) for namespace, use in state.usage.items()},
        nominated={uid: requests[uid] for uid in state.nominated},
        began=list(state.began),
        ended=list(state.ended),
        totals=shallow(state.totals),
    )


def copy_node(node: NodeState) -> NodeState:
    """An equal node, independent from here on."""
    new = shallow(node)
    new.residents, new.cards, new.holds = dict(node.residents), {}, dict(node.holds)
    new.cordons = dict(node.cordons)
    for uuid, card in node.cards.items():
        new.cards[uuid] = shallow(card)
        new.cards[uuid].residents = dict(card.residents)
    return new
