"""Proof that a place will do, before anybody is told to leave for it.

In: a place found by numbers, and who would be gone. Out: whether the rules of feasibility themselves take the request
there: on a copy of the node without those who leave, with all who are nominated there seated, and with no other cards
than the chosen ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy

from bus.ledger.state import CardState, LedgerState, NodeState
from contracts.decisions import CardSlice, Nominated, Placement
from contracts.units import CardUuid, NodeName, RequestUid
from scheduler.core.queue.loads import lingers
from scheduler.core.reasons import node_reason
from scheduler.core.request import Shape, memory_on

NOBODY = RequestUid("")


def placement_on(node: NodeState, shape: Shape, cards: Iterable[str]) -> Placement:
    """The placement of a shape on these cards of a node."""
    chosen = [node.cards[uuid] for uuid in cards]
    return Placement(
        node=NodeName(node.name),
        slices=tuple(
            CardSlice(
                card=CardUuid(card.card.uuid),
                share_milli=shape.share_milli,
                memory_mib=memory_on(card.capacity_mib, shape, known=card.card.memory_total_mib is not None),
            )
            for card in chosen
        ),
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.host_memory_mib,
    )


def fits_after(state: LedgerState, shape: Shape, record: Nominated, gone: Iterable[RequestUid]) -> bool:
    """Whether the rules take it on exactly these cards when these, and whoever leaves anyway, are gone."""
    node = state.nodes[record.placement.node]
    leaving = (uid for uid in node.residents if (r := state.requests[uid]).leaving and not lingers(r, state.clock_ms))
    going = {*leaving, *gone}
    bare = emptied(node, lambda uid: uid not in going)
    seat_nominated(state, node, bare)
    only_cards(bare, record.placement)
    return node_reason(shape, bare, state.requests) is None


def only_cards(node: NodeState, placement: Placement) -> None:
    """Leave the node no other cards than those of the placement."""
    chosen = {piece.card for piece in placement.slices}
    node.cards = {uuid: card for uuid, card in node.cards.items() if not chosen or uuid in chosen}


def emptied(node: NodeState, stays: Callable[[RequestUid], bool]) -> NodeState:
    """A copy of the node with those residents who stay, and nothing held for anybody."""
    bare = copy(node)
    bare.residents, bare.holds, bare.used_cpu_milli, bare.used_memory_mib = {}, {}, 0, 0
    bare.cards = {uuid: _bare_card(card) for uuid, card in node.cards.items()}
    for uid, placement in node.residents.items():
        if stays(uid):
            _seat(bare, uid, placement)
    return bare


def _bare_card(card: CardState) -> CardState:
    bare = copy(card)
    bare.used_milli, bare.used_mib, bare.residents = 0, 0, {}
    return bare


def _seat(node: NodeState, uid: RequestUid, placement: Placement) -> None:
    node.residents[uid] = placement
    node.used_cpu_milli += placement.cpu_milli
    node.used_memory_mib += placement.memory_mib
    for piece in placement.slices:
        card = node.cards[piece.card]
        card.residents[uid] = piece
        card.used_milli += piece.share_milli
        card.used_mib += piece.memory_mib


def seat_nominated(state: LedgerState, node: NodeState, bare: NodeState, but: RequestUid = NOBODY) -> None:
    """On a copy of a node, let all who are nominated there have their places, but one."""
    for uid in node.holds:
        other = state.nominated[uid].nomination
        if other is not None and uid != but:
            _seat(bare, uid, other.placement)
