"""What an operator's word on a card changes, and which inventories are old news. Pure.

In: the node as the ledger has it, and the message. Out: the record to write, or that there is none to write.
"""

from __future__ import annotations

from bus.ledger.state import NodeState
from contracts.decisions import CardHealthSet
from contracts.inventory import CordonCard, NodeInventory

MOST = 256
"""Cordons of one node. A node has at most 64 cards; the rest is for those that were taken out of it for good."""


def cordoning(node: NodeState, order: CordonCard) -> CardHealthSet | None:
    """The record of an order; None when it is so already, or when there is no end of them.

    A card that is not listed can be cordoned: the order may come before its inventory does, or between two of them.
    """
    held = node.cordons.get(order.card)
    if not order.cordoned:
        return None if held is None else CardHealthSet(node=order.node, card=order.card, health="healthy")
    if held is not None and held.reason == order.reason:
        return None
    if held is None and len(node.cordons) >= MOST:
        return None
    return CardHealthSet(node=order.node, card=order.card, health="cordoned", reason=order.reason, at_ms=order.at_ms)


def outdated(seen: NodeInventory, held: NodeInventory | None) -> bool:
    """Whether the same monitor has said something newer.

    Another incarnation may always speak: which of two began later only heartbeats tell (`scheduler.core.freshness`).
    """
    return held is not None and seen.incarnation == held.incarnation and seen.sequence < held.sequence
