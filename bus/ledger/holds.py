"""What is kept free for nominated requests: taken as it becomes free, given back when the wait is over. Pure.

A hold is counted in the sums of its node and cards like something sold, so that the same arithmetic that sells nothing
twice keeps everybody else off it. It never takes more than is free, so it can over-commit nothing.

Several may wait for one node: whoever was nominated first is served first (ledger sequence, then acceptance), with all
that it lacks, before the next one. Pods of a node (a number, not a size) are not held: the last pod slot may go to
another one, and the nominated request then waits for the next.
"""

from __future__ import annotations

from bus.ledger.state import Hold, LedgerState, NodeState, RequestState, Use
from contracts.decisions import CardSlice, Placement
from contracts.units import RequestUid

NOTHING = Hold()


def charge(state: LedgerState, namespace: str, placement: Placement, sign: int = 1) -> None:
    """Add a placement to what its namespace holds, or take it away (`sign` -1)."""
    use = state.usage.setdefault(namespace, Use())
    for piece in placement.slices:
        use.share_milli += sign * piece.share_milli
        use.memory_mib += sign * piece.memory_mib
    use.requests += sign
    if not use.requests:
        del state.usage[namespace]


def complete(request: RequestState) -> bool:
    """All of its place is held."""
    wanted, held = request.nomination, request.held
    return wanted is not None and held is not None and held == whole(wanted.placement)


def whole(placement: Placement) -> Hold:
    """The hold that is all of a placement."""
    return Hold(
        cpu_milli=placement.cpu_milli,
        memory_mib=placement.memory_mib,
        cards={piece.card: (piece.share_milli, piece.memory_mib) for piece in placement.slices},
    )


def begin(state: LedgerState, node: NodeState, request: RequestState) -> None:
    """Nothing is held yet; `serve` takes what is free."""
    request.held = node.holds[request.uid] = NOTHING
    state.nominated[request.uid] = request


def serve(state: LedgerState, node: NodeState) -> None:
    """Whatever is free goes to those who wait for it, the first nominated first."""
    for uid in sorted(node.holds, key=lambda uid: order(state.nominated[uid])) if node.holds else ():
        request = state.nominated[uid]
        if request.nomination is not None and request.held is not None:
            request.held = node.holds[uid] = _grown(node, request.nomination.placement, request.held)


def order(request: RequestState) -> tuple[int, int, RequestUid]:
    """Who was nominated first."""
    return (request.nominated_at, len(request.uid), request.uid)


def _grown(node: NodeState, wanted: Placement, held: Hold) -> Hold:
    cpu = held.cpu_milli + _more(wanted.cpu_milli - held.cpu_milli, node.free_cpu_milli)
    memory = held.memory_mib + _more(wanted.memory_mib - held.memory_mib, node.free_memory_mib)
    grown = Hold(cpu, memory, {piece.card: _card(node, piece, held) for piece in wanted.slices})
    count(node, held, -1)
    count(node, grown, 1)
    return grown


def _more(lacking: int, free: int) -> int:
    return max(0, min(lacking, free))


def _card(node: NodeState, piece: CardSlice, held: Hold) -> tuple[int, int]:
    milli, mib = held.cards.get(piece.card, (0, 0))
    card = node.cards[piece.card]
    return milli + _more(piece.share_milli - milli, card.free_milli), mib + _more(piece.memory_mib - mib, card.free_mib)


def count(node: NodeState, hold: Hold, sign: int) -> None:
    """Add a hold to the sums of a node and its cards, or take it away (`sign` -1)."""
    node.used_cpu_milli += sign * hold.cpu_milli
    node.used_memory_mib += sign * hold.memory_mib
    for uuid, (milli, mib) in hold.cards.items():
        node.cards[uuid].used_milli += sign * milli
        node.cards[uuid].used_mib += sign * mib


def end(state: LedgerState, request: RequestState) -> None:
    """The nomination is over: what it held is free, for the next who wait here first."""
    wanted = request.nomination
    node = state.nodes.get(wanted.placement.node) if wanted is not None else None
    drop(state, request)
    if node is not None:
        serve(state, node)
        state.touched.append(node.name)


def drop(state: LedgerState, request: RequestState) -> None:
    """The nomination is over and what it held is free, for whoever is placed next; its namespace is not charged."""
    wanted = request.nomination
    if wanted is None:
        return
    node = state.nodes.get(wanted.placement.node)
    if node is not None and (hold := node.holds.pop(request.uid, None)) is not None:
        count(node, hold, -1)
    charge(state, request.accepted.namespace, wanted.placement, -1)
    state.nominated.pop(request.uid, None)
    request.nomination, request.held, request.nominated_at, request.nominated_ms = None, None, 0, 0


def lift(node: NodeState) -> None:
    """Give everything back for a moment: the cards of the node are about to be listed anew."""
    for uid, hold in node.holds.items():
        count(node, hold, -1)
        node.holds[uid] = NOTHING


def resume(state: LedgerState, node: NodeState) -> None:
    """Take it again, after `lift`; whose card is no longer there waits for this place no more."""
    for request in [state.nominated[uid] for uid in node.holds]:
        request.held = NOTHING
        wanted = request.nomination
        if wanted is not None and not all(_there(node, piece) for piece in wanted.placement.slices):
            drop(state, request)
    serve(state, node)


def _there(node: NodeState, piece: CardSlice) -> bool:
    card = node.cards.get(piece.card)
    return card is not None and card.present
