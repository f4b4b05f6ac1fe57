"""Why a shape fits nowhere: one reason for each node, then one line for each kind of reason.

In: a shape and the nodes. Out: `Reason`s with the most that was free and where, the one that came closest first.

The reason of a node, in this order:
    1. the first rule that refuses the node itself
    2. too few cards on it, if it has fewer than are asked for
    3. one card asked for: the reason of the card that came closest
    4. several: how many of its cards would do, of how many, and what the closest of the others lacks
    5. several that must be linked: how many of those that would do are

"Closest" is a total order: got furthest through the table of rules; lacks least relative to what is needed, in
thousandths, then in units; node, card, code. It orders the cards of a node, the nodes with one code, and the lines of
an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from operator import itemgetter

from bus.ledger.state import CardState, LedgerState, NodeState
from contracts.inventory import Card
from contracts.outcomes import Reason
from scheduler.core.feasibility import CARD_RULES, NODE_RULES, by_mode, links_reason, modes_reason
from scheduler.core.locality import EMPTY, UNTAGGED, Requests, Tags, any_tagged, tags_of
from scheduler.core.request import Shape
from scheduler.core.view import NodeView

Stage = int
"""How far through the rules; -1 = refused by none."""

CARDS_STAGE = len(NODE_RULES)
LINKS_STAGE = CARDS_STAGE + 1 + len(CARD_RULES)
AROUND_STAGE = LINKS_STAGE + 1
"""Of what is told by `ruled_out`: the node would take it, its surroundings do not."""


def node_reason(shape: Shape, node: NodeState, requests: Requests) -> tuple[Stage, Reason] | None:
    """Why not this node, and how far it came; None when it fits."""
    for stage, rule in enumerate(NODE_RULES):
        if (reason := rule(shape, node)) is not None:
            return stage, reason
    if not shape.cards:
        return None
    if len(node.cards) < shape.cards:
        return CARDS_STAGE, _too_few(shape, node)
    return _cards_reason(shape, node, requests)


def card_tags(node: NodeState, requests: Requests) -> dict[str, Tags]:
    """The tags of every card of a node."""
    if any_tagged(node.residents, requests):
        return {uuid: tags_of(card.residents, requests) for uuid, card in node.cards.items()}
    return {uuid: UNTAGGED if card.residents else EMPTY for uuid, card in node.cards.items()}


def card_reason(shape: Shape, node: NodeState, card: CardState, tags: Tags) -> tuple[Stage, Reason] | None:
    """Why not this card, and how far it came; None when it would do."""
    for stage, rule in enumerate(CARD_RULES, CARDS_STAGE + 1):
        if (reason := rule(shape, node, card, tags)) is not None:
            return stage, reason
    return None


def _together_reason(shape: Shape, node: NodeState, groups: list[list[Card]]) -> tuple[Stage, Reason] | None:
    """Why cards that would do one by one do not in one pod; `groups`: those, by the way in which they are shared."""
    if (mixed := modes_reason(shape, node, groups)) is not None:
        return LINKS_STAGE, mixed
    enough = [[card.nvlink_group for card in group] for group in groups if len(group) >= shape.cards]
    unlinked = [links_reason(shape, node, group) for group in enough]
    return None if None in unlinked else (LINKS_STAGE, next(filter(None, unlinked)))


def _cards_reason(shape: Shape, node: NodeState, requests: Requests) -> tuple[Stage, Reason] | None:
    tags = card_tags(node, requests)
    found = [card_reason(shape, node, card, tags[uuid]) for uuid, card in node.cards.items()]
    refused = [item for item in found if item is not None]
    fitting = len(found) - len(refused)
    if fitting >= shape.cards:
        able = [c.card for c, item in zip(node.cards.values(), found, strict=True) if item is None]
        return _together_reason(shape, node, by_mode(able, lambda card: card.isolation))
    stage, closest = min(refused, key=closeness)
    if shape.cards == 1:
        return stage, closest
    return stage, Reason(
        code=closest.code,
        text=f"{node.name}: needs {shape.cards} cards, {fitting} of {len(found)} would do; closest of the others: "
        f"{closest.text}",
        needed=closest.needed,
        free=closest.free,
        unit=closest.unit,
        node=node.name,
        card=closest.card,
    )


def _too_few(shape: Shape, node: NodeState) -> Reason:
    return Reason(
        code="cards",
        text=f"{node.name}: needs {shape.cards} {'card' if shape.cards == 1 else 'cards'}, it has {len(node.cards)}",
        needed=shape.cards,
        free=len(node.cards),
        unit="cards",
        node=node.name,
    )


def missing(reason: Reason) -> int:
    """What is lacking, in thousandths of what is needed, rounded up; 1000 when there is no number."""
    if not reason.needed or reason.free is None:
        return 1000
    return -(-1000 * (reason.needed - reason.free) // reason.needed)


def reasons_against(shape: Shape, nodes: Mapping[str, NodeState], requests: Requests) -> tuple[Reason, ...]:
    """One line for each code that was decisive on some node, over the nodes that refuse it; empty when none does."""
    if not nodes:
        return NO_NODES
    return merged(found for node in nodes.values() if (found := refusal(shape, node, requests)) is not None)


NO_NODES = (Reason(code="no-nodes", text="no node is known yet", needed=1, free=0, unit="nodes"),)


class Refusals:
    """The reasons of one shape, node by node, worked out again only for nodes that have a new view."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._known: dict[str, tuple[NodeView, Refusal | None]] = {}

    def against(self, views: Mapping[str, NodeView], state: LedgerState) -> tuple[Reason, ...]:
        """The same as `reasons_against` for the state that the views were made of."""
        return merged(self.found(views, state)) if views else NO_NODES

    def found(self, views: Mapping[str, NodeView], state: LedgerState) -> list[Refusal]:
        """The refusal of every node that does not fit."""
        fresh: dict[str, tuple[NodeView, Refusal | None]] = {}
        for name, view in views.items():
            known = self._known.get(name)
            if known is None or known[0] is not view:
                known = (view, refusal(self.shape, state.nodes[name], state.requests))
            fresh[name] = known
        self._known = fresh
        return [known for _, known in fresh.values() if known is not None]


Closeness = tuple[int, int, int, str, str, str]
Refusal = tuple[Closeness, Reason]


def refusal(shape: Shape, node: NodeState, requests: Requests) -> Refusal | None:
    """The reason of a node with its place in the order."""
    found = node_reason(shape, node, requests)
    return None if found is None else (closeness(found), found[1])


def merged(found: Iterable[Refusal]) -> tuple[Reason, ...]:
    """One line for each code, closest first; the order in which they come does not matter."""
    best: dict[str, Refusal] = {}
    counts: dict[str, int] = {}
    for item in found:
        code = item[1].code
        counts[code] = counts.get(code, 0) + 1
        known = best.get(code)
        if known is None or item[0] < known[0]:
            best[code] = item
    lines = sorted(best.values(), key=itemgetter(0))
    return tuple(_line(reason, counts[reason.code]) for _, reason in lines)


def closest(found: Iterable[Refusal], count: int) -> list[Reason]:
    """The reasons of the nodes that came closest, one each."""
    return [reason for _, reason in nsmallest(count, found, key=itemgetter(0))]


def closeness(item: tuple[Stage, Reason]) -> Closeness:
    """The order of "closest", smallest first."""
    stage, reason = item
    lacking = (reason.needed or 0) - (reason.free or 0)
    return (-stage, missing(reason), lacking, reason.node, reason.card, reason.code)


def _line(reason: Reason, nodes: int) -> Reason:
    others = f" (the closest of {nodes} nodes with this reason)" if nodes > 1 else ""
    return Reason(
        code=reason.code,
        text=(reason.text + others)[:1024],
        needed=reason.needed,
        free=reason.free,
        unit=reason.unit,
        nodes=nodes,
        node=reason.node,
        card=reason.card,
    )
