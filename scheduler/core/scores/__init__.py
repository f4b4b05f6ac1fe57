"""Scores: one rule a file, `(shape, view, chosen, mix) -> int`, higher is better; weighed in `scheduler.core.policies`.

Integers only. Where a formula divides, its docstring says how it rounds; scores are compared after rounding, so that
the same inputs order nodes the same way on any machine.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.scores.best_fit import best_fit
from scheduler.core.scores.card_left import card_left
from scheduler.core.scores.cpu_left import cpu_left
from scheduler.core.scores.dot_product import dot_product
from scheduler.core.scores.fragment import fragment
from scheduler.core.scores.fragment_published import fragment_published
from scheduler.core.scores.gpu_clustering import gpu_clustering
from scheduler.core.scores.gpu_packing import gpu_packing
from scheduler.core.scores.group import group
from scheduler.core.scores.linked_cards import linked_cards
from scheduler.core.scores.node_left import node_left
from scheduler.core.view import NodeView

ScoreRule = Callable[[Shape, NodeView, Choice, Mix], int]

__all__ = [
    "ScoreRule",
    "best_fit",
    "card_left",
    "cpu_left",
    "dot_product",
    "fragment",
    "fragment_published",
    "gpu_clustering",
    "gpu_packing",
    "group",
    "linked_cards",
    "node_left",
]
