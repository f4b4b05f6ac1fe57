"""The smallest change of a request that would make it fit, and where.

In: a shape that fits nowhere and the nodes. Out: a `Change`: the shape as it would have to be, the conditions that the
request cannot meet by itself, and the node and card where that is.

Cost of a change, in thousandths, so that different kinds can be compared:
    less of something       what is given up, relative to what was asked, rounded up (card share, card memory, CPU, host
                            memory, number of cards; each counts by itself)
    waiting                 300 for each thing to wait for: a silent, unready or cordoned node, a card that is not
                            healthy or is cordoned. The ask stays as it is, but nobody knows how long
    another condition       1000 each: a taint to tolerate, a label, a model, a tag, a pod slot
A card that is gone, split by MIG or offered by another node is no candidate, nor is a card or node with nothing left.

The smallest is, in this order: least cost; fewest parts; `NodeState.tie`; node name. On a node the cheapest cards are
taken, by cost, then position; all of the cards asked for with a smaller slice goes before fewer cards at equal cost.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from contracts.units import WHOLE_CARD
from scheduler.core.feasibility import card_reasons, node_reasons
from scheduler.core.locality import Requests, Tags
from scheduler.core.reasons import card_tags, missing
from scheduler.core.request import Shape, memory_on

WAIT = 300
CONDITION = 1000

_WAITS = {
    "node-unknown": "once Kubernetes has reported the node",
    "node-not-ready": "once the node is Ready",
    "node-unschedulable": "once the node is uncordoned",
    "stale": "once its monitor is heard again",
    "card-health": "once the card is healthy",
    "card-cordoned": "once the card is uncordoned",
}
_CONDITIONS = {
    "taint": "if the taint is tolerated",
    "node-selector": "without the node selector",
    "node-pods": "once a pod there has ended",
    "card-model": "if the model is allowed",
    "card-affinity": "without the affinity tag",
    "card-anti-affinity": "without the anti-affinity tag",
    "card-exclusion": "with another exclusion tag",
}
_NUMBERS = frozenset({"node-cpu", "node-memory", "card-share", "card-memory"})


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What would have to be different for the request to fit on `node`."""

    node: str
    card: str
    """The card that limits it; empty for a request without cards."""
    shape: Shape
    """What would fit, once the conditions hold."""
    conditions: tuple[str, ...]
    cost: int


def nearest_change(shape: Shape, nodes: Mapping[str, NodeState], requests: Requests) -> Change | None:
    """The smallest change over all nodes; None when no node could ever take it."""
    best: Change | None = None
    order: tuple[int, int, str, str] | None = None
    for node in nodes.values():
        if order is not None and (_at_least(shape, node), 0, node.tie, node.name) >= order:
            continue
        change = change_for(shape, node, requests)
        if change is not None:
            here = (change.cost, len(change.conditions), node.tie, node.name)
            if order is None or here < order:
                best, order = change, here
    return best


def _at_least(shape: Shape, node: NodeState) -> int:
    """A cost that no change on this node can go below, told by its freest card: most nodes need no closer look."""
    if not shape.cards:
        return 0
    share = max([card.free_milli for card in node.cards.values()], default=0)
    memory = max([card.free_mib for card in node.cards.values()], default=0)
    smaller = _given_up(shape.share_milli, _room(shape.share_milli, share))
    smaller += _given_up(shape.memory_mib or 0, _room(shape.memory_mib or 0, memory))
    return smaller if shape.cards == 1 else min(smaller, _given_up(shape.cards, shape.cards - 1))


def change_for(shape: Shape, node: NodeState, requests: Requests) -> Change | None:
    """The smallest change for one node; None when it could never take it."""
    reasons = node_reasons(shape, node)
    conditions = _conditions(reasons)
    if conditions is None:
        return None
    cost = _price(reasons)
    reduced = msgspec.structs.replace(
        shape,
        cpu_milli=_room(shape.cpu_milli, node.free_cpu_milli if node.facts else shape.cpu_milli),
        host_memory_mib=_room(shape.host_memory_mib, node.free_memory_mib if node.facts else shape.host_memory_mib),
    )
    if not shape.cards:
        return Change(node=node.name, card="", shape=reduced, conditions=conditions, cost=cost)
    offers = sorted(_offers(shape, node, card_tags(node, requests)), key=lambda offer: offer.order)
    changes = [c for c in (_smaller(shape, offers), _fewer(shape, offers)) if c is not None]
    if not changes:
        return None
    best = min(changes, key=lambda change: (change.cost, change.fewer))
    return Change(
        node=node.name,
        card=best.card,
        shape=msgspec.structs.replace(
            reduced, cards=best.cards, share_milli=best.share_milli, memory_mib=best.memory_mib
        ),
        conditions=(*conditions, *best.conditions),
        cost=cost + best.cost,
    )


def _room(asked: int, free: int) -> int:
    return min(asked, max(0, free))


def _conditions(reasons: list[Reason]) -> tuple[str, ...] | None:
    """What must become true, besides smaller numbers; None when nothing helps."""
    texts: list[str] = []
    for reason in reasons:
        text = _WAITS.get(reason.code) or _CONDITIONS.get(reason.code)
        if text is not None:
            texts.append(text)
        elif reason.code not in _NUMBERS:
            return None
    return tuple(texts)


def _price(reasons: list[Reason]) -> int:
    return sum(
        WAIT if reason.code in _WAITS else CONDITION if reason.code in _CONDITIONS else missing(reason)
        for reason in reasons
    )


class _Offer(msgspec.Struct, frozen=True):
    """What one card could give."""

    order: tuple[int, int]
    """Cost, position."""
    card: str
    share_milli: int
    memory_mib: int | None
    conditions: tuple[str, ...]
    fits: bool


class _Cards(msgspec.Struct, frozen=True):
    """A choice of cards of one node and the slice that they can all give."""

    card: str
    cards: int
    share_milli: int
    memory_mib: int | None
    conditions: tuple[str, ...]
    cost: int
    fewer: bool


def _offers(shape: Shape, node: NodeState, tags: Mapping[str, Tags]) -> list[_Offer]:
    offers = (
        _offer(shape, node, card, tags[uuid], position) for position, (uuid, card) in enumerate(node.cards.items())
    )
    return [offer for offer in offers if offer is not None]


def _offer(shape: Shape, node: NodeState, card: CardState, tags: Tags, position: int) -> _Offer | None:
    reasons = card_reasons(shape, node, card, tags)
    conditions = _conditions(reasons)
    if conditions is None:
        return None
    share, memory = _slice(shape, card)
    if share < 1 or (memory is not None and memory < min(1, shape.memory_mib or 0)):
        return None
    held = sum(WAIT if reason.code in _WAITS else CONDITION for reason in reasons if reason.code not in _NUMBERS)
    cost = held + _given_up(shape.share_milli, share) + _given_up(shape.memory_mib or 0, memory or 0)
    return _Offer((cost, position), card.card.uuid, share, memory, conditions, not reasons)


def _slice(shape: Shape, card: CardState) -> tuple[int, int | None]:
    """The largest share, up to what is asked, and the memory with it; memory that follows the share limits it too."""
    share = min(shape.share_milli, card.free_milli)
    if shape.memory_mib is not None:
        return share, min(shape.memory_mib, card.free_mib)
    if card.card.memory_total_mib is None or share < 1:
        return share, None
    if memory_on(card.capacity_mib, msgspec.structs.replace(shape, share_milli=share)) <= card.free_mib:
        return share, None
    # floor(capacity x s / 1000) <= free holds up to s = ((free + 1) x 1000 - 1) // capacity
    if card.free_mib < 1:
        return 0, None
    return min(share, ((card.free_mib + 1) * WHOLE_CARD - 1) // card.capacity_mib), None


def _given_up(asked: int, given: int) -> int:
    """Thousandths of `asked` that are missing, rounded up."""
    return -(-1000 * (asked - given) // asked) if asked else 0


def _smaller(shape: Shape, offers: list[_Offer]) -> _Cards | None:
    """All the cards, with the slice that each of the cheapest can give."""
    chosen = offers[: shape.cards]
    if len(chosen) < shape.cards:
        return None
    share = min(offer.share_milli for offer in chosen)
    memories = [offer.memory_mib for offer in chosen if offer.memory_mib is not None]
    memory = min(memories) if memories else None
    conditions = tuple(dict.fromkeys(text for offer in chosen for text in offer.conditions))
    waits = sum(WAIT if text in _WAITS.values() else CONDITION for text in conditions)
    cost = waits + _given_up(shape.share_milli, share) + _given_up(shape.memory_mib or 0, memory or 0)
    return _Cards(chosen[-1].card, shape.cards, share, memory, conditions, cost, fewer=False)


def _fewer(shape: Shape, offers: list[_Offer]) -> _Cards | None:
    """The slice as asked, on the cards that can give it."""
    fitting = [offer for offer in offers if offer.fits]
    if not fitting or len(fitting) >= shape.cards:
        return None
    cost = _given_up(shape.cards, len(fitting))
    return _Cards(fitting[-1].card, len(fitting), shape.share_milli, shape.memory_mib, (), cost, fewer=True)
