"""The smallest change of a request that would make it fit, and where.

In: a shape that fits nowhere and the nodes. Out: a `Change`: the shape as it would have to be, the conditions that the
request cannot meet by itself, and the node and card where that is.

Costs are in `conditions`, what cards can give in `offers`.

The smallest is, in this order: least cost; fewest parts; `NodeState.tie`; node name. On a node the cheapest cards are
taken, by cost, then position; all of the cards asked for with a smaller slice goes before fewer cards at equal cost.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bus.ledger.state import NodeState
from scheduler.core.around import NONE, Surroundings
from scheduler.core.conditions import UNLINKED, conditions_of, given_up, lacking, price_of
from scheduler.core.feasibility import node_reasons
from scheduler.core.locality import Requests
from scheduler.core.offers import fewer, offers_of, smaller
from scheduler.core.reasons import card_tags
from scheduler.core.request import Shape
from scheduler.core.ruled_out import reason_of


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What would have to be different for the request to fit on `node`."""

    node: str
    card: str
    """The card that limits it; empty for a request without cards."""
    shape: Shape
    """What would fit, once the conditions hold."""
    conditions: tuple[str, ...]
    cost: int


def nearest_change(
    shape: Shape, nodes: Mapping[str, NodeState], requests: Requests, around: Surroundings = NONE
) -> Change | None:
    """The smallest change over all nodes; None when no node could ever take it."""
    best: Change | None = None
    order: tuple[int, int, str, str] | None = None
    for node in nodes.values():
        if order is not None and (_at_least(shape, node), 0, node.tie, node.name) >= order:
            continue
        change = change_for(shape, node, requests, around)
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
    smaller = given_up(shape.share_milli, _room(shape.share_milli, share))
    smaller += given_up(shape.memory_mib or 0, _room(shape.memory_mib or 0, memory))
    return smaller if shape.cards == 1 else min(smaller, given_up(shape.cards, shape.cards - 1))


def change_for(shape: Shape, node: NodeState, requests: Requests, around: Surroundings = NONE) -> Change | None:
    """The smallest change for one node; None when it could never take it."""
    reasons = [*node_reasons(shape, node), *filter(None, (reason_of(node.name, around),))]
    conditions = conditions_of(reasons)
    if conditions is None:
        return None
    cost = price_of(conditions) + lacking(reasons)
    reduced = msgspec.structs.replace(
        shape,
        cpu_milli=_room(shape.cpu_milli, node.free_cpu_milli if node.facts else shape.cpu_milli),
        host_memory_mib=_room(shape.host_memory_mib, node.free_memory_mib if node.facts else shape.host_memory_mib),
    )
    if not shape.cards:
        return Change(node=node.name, card="", shape=reduced, conditions=conditions, cost=cost)
    offers = offers_of(shape, node, card_tags(node, requests))
    changes = [c for c in (smaller(shape, offers), fewer(shape, offers)) if c is not None]
    if not changes:
        return None
    best = min(changes, key=lambda change: (change.cost, change.fewer))
    return Change(
        node=node.name,
        card=best.card,
        shape=msgspec.structs.replace(
            reduced,
            cards=best.cards,
            nvlink="any" if best.cards == 1 or UNLINKED in best.conditions else shape.nvlink,
            **msgspec.structs.asdict(best.slice),
        ),
        conditions=(*conditions, *best.conditions),
        cost=cost + best.cost,
    )


def _room(asked: int, free: int) -> int:
    return min(asked, max(0, free))
