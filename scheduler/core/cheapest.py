"""The answer of policies with menus: one node, and why that one.

In: what arrays or the rules in Python found. Out: a value that a decision is made of; nothing is decided here.
"""

from __future__ import annotations

import msgspec

from bus.ledger.state import NodeState


class Cheapest(msgspec.Struct, frozen=True):
    """The best node, for a decision."""

    node: NodeState
    score: int
    runner_up: tuple[str, int] | None
    feasible: int
    positions: tuple[int, ...] | None
    """Of the cards on the node; None: the rules in Python choose them."""
    parts: dict[str, int]
    """What the score is made of, likewise."""
    number: int
    """Of the class of the shape, as arrays know who lives where."""
