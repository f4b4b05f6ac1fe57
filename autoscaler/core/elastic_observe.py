"""The ledger as the dry run sees it: room and load of the nodes that are offered, and who waits.

In: a ledger state. Out: values of this package. What is leaving counts as free: it was told to go, and counting it
would make the next round take as much again. A node counts when it is heard of, known to Kubernetes and open; a card
when something may be placed on it. Foreign pods are taken off the total.
"""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.core.elastic_load import Amounts, Limits, Load
from autoscaler.core.elastic_room import CardRoom, NodeRoom, Room
from autoscaler.core.elastic_runner import Waiting
from autoscaler.core.elastic_shape import shape_of
from bus.ledger.state import CardState, LedgerState, NodeState, RequestState
from contracts.decisions import CardSlice, Placement
from contracts.priorities import priority_of
from contracts.units import CardUuid, RequestKey

MAX_WAITING = 2000
"""Who waits behind so many others is not looked at: the next round comes when these are served."""


def room_of(state: LedgerState) -> Room:
    """Free room, in the order in which equal nodes are taken: by a digest of their names."""
    room = Room(node_room(node) for node in sorted(state.nodes.values(), key=lambda n: (n.tie, n.name)) if _open(node))
    for request in state.requests.values():
        if request.leaving and request.placement is not None:
            room.give(request.placement)
    for request in state.nominated.values():
        if (held := _held(request)) is not None:
            room.give(held)
        if (place := _spoken_for(request)) is not None:
            room.retake(place)
    return room


def _spoken_for(request: RequestState) -> Placement | None:
    """The place that somebody was told to leave for it: what is free of it and what will be is nobody else's."""
    return None if request.nomination is None or _drains(request) else request.nomination.placement


def _drains(request: RequestState) -> bool:
    """It has a place in sight, and nobody was told to leave it: jobs may still help, there or elsewhere."""
    return request.nomination is not None and request.nomination.why == "drains"


def _held(request: RequestState) -> Placement | None:
    """What is kept for it of that place already."""
    if request.held is None or request.nomination is None:
        return None
    held = request.held
    slices = tuple(
        CardSlice(card=CardUuid(card), share_milli=milli, memory_mib=mib)
        for card, (milli, mib) in sorted(held.cards.items())
    )
    return Placement(
        node=request.nomination.placement.node,
        slices=slices,
        cpu_milli=held.cpu_milli,
        memory_mib=held.memory_mib,
    )


def _open(node: NodeState) -> bool:
    facts = node.facts
    return node.fresh and facts is not None and facts.ready and not facts.unschedulable and not facts.gone


def node_room(node: NodeState) -> NodeRoom:
    """What is free of an open node.

    Raises:
        ValueError: Kubernetes does not know it.
    """
    if node.facts is None:
        raise ValueError(f"node {node.name}: Kubernetes has not told of it")
    return NodeRoom(
        name=node.name,
        facts=node.facts,
        cpu_milli=node.free_cpu_milli,
        memory_mib=node.free_memory_mib,
        pods=node.free_pods,
        cards=[_card_room(card) for card in node.cards.values() if card.usable],
    )


def _card_room(card: CardState) -> CardRoom:
    return CardRoom(
        uuid=card.card.uuid,
        free_milli=card.free_milli,
        free_mib=card.free_mib,
        sellable_mib=card.capacity_mib,
        total_mib=card.card.memory_total_mib or 0,
        model=card.card.model,
    )


def load_of(state: LedgerState, waiting: Iterable[Waiting], limits: Limits) -> Load:
    """Sums over open nodes, with all that waits."""
    total = [0, 0, 0]
    used = [0, 0, 0]
    for node in state.nodes.values():
        if not _open(node) or node.facts is None:
            continue
        cards = [card for card in node.cards.values() if card.usable]
        total[0] += node.facts.allocatable_cpu_milli - node.facts.foreign_cpu_milli
        total[1] += node.facts.allocatable_memory_mib - node.facts.foreign_memory_mib
        total[2] += 1000 * len(cards)
        used[0] += node.used_cpu_milli
        used[1] += node.used_memory_mib
        used[2] += sum(card.used_milli for card in cards)
    load = Load(
        Amounts(cpu_milli=total[0], memory_mib=total[1], card_milli=total[2]),
        Amounts(cpu_milli=used[0], memory_mib=used[1], card_milli=used[2]),
        limits,
    )
    for request in state.requests.values():
        if request.leaving:
            load.add(shape_of(request.request), -1)
    for request in state.nominated.values():
        if (held := _held(request)) is not None:
            load.count(held, -1)
        if (place := _spoken_for(request)) is not None:
            load.count(place, 1)
    for asks in waiting:
        load.add(asks.shape, asks.count)
    return load


def waiting_of(state: LedgerState, above: frozenset[RequestKey]) -> list[Waiting]:
    """Who waits for room: highest priority first, then the earlier; gangs as one.

    Left out are those for whom somebody was told to leave, and trainers above the minimum of their job (`above`): for
    these nobody leaves.
    """
    found: dict[str, Waiting] = {}
    for request in state.pending.values():
        if _spoken_for(request) is None and not request.withdrawn and request.key not in above:
            key = _gang(request) or request.key
            before = found.get(key)
            found[key] = Waiting(
                key=key,
                shape=shape_of(request.request),
                count=(before.count if before else 0) + 1,
                priority=priority_of(request.request),
            )
    return sorted(found.values(), key=lambda asks: -asks.priority)[:MAX_WAITING]


def _gang(request: RequestState) -> str:
    gang = request.request.gang
    return f"{request.accepted.namespace}/{gang.name}/gang" if gang is not None else ""
