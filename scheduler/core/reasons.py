"""Why a shape fits nowhere: one reason for each node, then one line for each kind of reason.

In: a shape and the nodes. Out: `Reason`s with the most that was free and where, the one that came closest first.

The reason of a node, in this order:
    1. the first rule that refuses the node itself
    2. too few cards on it, if it has fewer than are asked for
    3. one card asked for: the reason of the card that came closest
    4. several: how many of its cards would do, of how many, and what the closest of the others lacks

"Closest" is a total order over cards: got furthest through the table of rules; lacks least; lowest position.
Lines are ordered by: furthest through the rules; lacks least relative to what is needed; on most nodes; code.
"""

from __future__ import annotations

from collections.abc import Mapping

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from scheduler.core.feasibility import CARD_RULES, NODE_RULES
from scheduler.core.locality import Requests, tags_of
from scheduler.core.request import Shape

Stage = int
"""How far through the rules; -1 = refused by none."""

CARDS_STAGE = len(NODE_RULES)
FITS = -1


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


def card_reason(shape: Shape, node: NodeState, card: CardState, requests: Requests) -> tuple[Stage, Reason] | None:
    """Why not this card, and how far it came; None when it would do."""
    tags = tags_of(card.residents, requests)
    for stage, rule in enumerate(CARD_RULES, CARDS_STAGE + 1):
        if (reason := rule(shape, node, card, tags)) is not None:
            return stage, reason
    return None


def _cards_reason(shape: Shape, node: NodeState, requests: Requests) -> tuple[Stage, Reason] | None:
    found = [card_reason(shape, node, card, requests) for card in node.cards.values()]
    refused = [item for item in found if item is not None]
    fitting = len(found) - len(refused)
    if fitting >= shape.cards:
        return None
    stage, closest = min(refused, key=lambda item: (-item[0], missing(item[1])))
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
    """One line for each code that was decisive on some node; empty only when the shape fits somewhere."""
    if not nodes:
        return (Reason(code="no-nodes", text="no node is known yet", needed=1, free=0, unit="nodes"),)
    found = [
        (name, node_reason(shape, nodes[name], requests)) for name in sorted(nodes, key=lambda n: (nodes[n].tie, n))
    ]
    return merged([item for _, item in found if item is not None])


def merged(found: list[tuple[Stage, Reason]]) -> tuple[Reason, ...]:
    """One line for each code, closest first; equal ones in the order they came."""
    groups: dict[str, list[tuple[Stage, Reason]]] = {}
    for item in found:
        groups.setdefault(item[1].code, []).append(item)
    lines = [_line(group) for group in groups.values()]
    lines.sort(key=lambda line: (-line[0], missing(line[1]), -line[1].nodes, line[1].code))
    return tuple(reason for _, reason in lines)


def _line(group: list[tuple[Stage, Reason]]) -> tuple[Stage, Reason]:
    stage, best = min(group, key=lambda item: (-item[0], missing(item[1])))
    others = f" (closest of {len(group)} nodes with this reason)" if len(group) > 1 else ""
    return stage, Reason(
        code=best.code,
        text=(best.text + others)[:1024],
        needed=best.needed,
        free=best.free,
        unit=best.unit,
        nodes=len(group),
        node=best.node,
        card=best.card,
    )
