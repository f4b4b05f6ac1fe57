"""GPU memory, card by card; 4,069 MiB free on each of two cards do not hold 8,138."""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from scheduler.core.locality import Tags
from scheduler.core.request import Shape, memory_on


def memory(shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card with less free memory than the slice takes there."""
    needed = memory_on(card.capacity_mib, shape, known=card.card.memory_total_mib is not None)
    free, of = max(0, card.free_mib), f"{card.capacity_mib}{_held(card)}"
    if needed <= card.free_mib:
        return None
    return Reason(
        code="card-memory",
        text=f"{node.name} card {card.card.uuid}: needs {needed} MiB, {free} MiB free of {of}",
        needed=needed,
        free=free,
        unit="MiB",
        node=node.name,
        card=card.card.uuid,
    )


def _held(card: CardState) -> str:
    """Why it is less than the card has, when a process that belongs to nobody holds memory of it."""
    held = card.card.memory_unmanaged_mib
    return f", {held} MiB are held by {card.card.unmanaged_by or 'a process of nobody'}" if held else ""
