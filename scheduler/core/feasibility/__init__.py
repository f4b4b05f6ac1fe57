"""Feasibility: which rules keep a request away from a node or a card, in one table.

Rules are pure: `(shape, node) -> Reason | None` and `(shape, node, card, tags) -> Reason | None`. The first reason of a
node or card is the one that is reported; the order below says which that is. Nothing is ever decided by sums over
cards. `fits` answers the same question fast and without reasons.
"""

from __future__ import annotations

from collections.abc import Callable

from bus.ledger.state import CardState, NodeState
from contracts.outcomes import Reason
from scheduler.core.feasibility.card_acquired import acquired
from scheduler.core.feasibility.card_health import healthy, offered_here, present, uncordoned
from scheduler.core.feasibility.card_links import links_reason
from scheduler.core.feasibility.card_locality import affinity, anti_affinity, exclusion
from scheduler.core.feasibility.card_memory import memory
from scheduler.core.feasibility.card_model import model
from scheduler.core.feasibility.card_modes import by_mode, modes_reason, one_card_only
from scheduler.core.feasibility.card_share import share
from scheduler.core.feasibility.card_sharing import memory_known, sharing_mode
from scheduler.core.feasibility.card_size import card_size
from scheduler.core.feasibility.cpu import cpu
from scheduler.core.feasibility.fast import Choice, fits
from scheduler.core.feasibility.fresh import fresh
from scheduler.core.feasibility.host_memory import host_memory
from scheduler.core.feasibility.known import known
from scheduler.core.feasibility.node_affinity import affine_to, node_affinity
from scheduler.core.feasibility.pods import pods
from scheduler.core.feasibility.ready import ready, schedulable
from scheduler.core.feasibility.selector import selector
from scheduler.core.feasibility.taints import taints
from scheduler.core.locality import Tags
from scheduler.core.request import Shape

NodeRule = Callable[[Shape, NodeState], Reason | None]
CardRule = Callable[[Shape, NodeState, CardState, Tags], Reason | None]

NODE_RULES: tuple[NodeRule, ...] = (
    known,  # without facts no other rule has anything to go by
    ready,  # one flag; also the most useful thing to be told
    schedulable,  # one flag, set by an operator on purpose
    fresh,  # one flag; a node that is not heard may have any amount free
    taints,  # a handful of comparisons; the user can tolerate or not, the numbers do not matter
    selector,  # a handful of comparisons; the user chose it
    node_affinity,  # likewise, some comparisons more
    cpu,  # from here on numbers, which change with every pod: CPU runs out first on GPU nodes
    host_memory,  # then memory
    pods,  # then slots: rarely the limit
)

CARD_RULES: tuple[CardRule, ...] = (
    present,  # a card that is not there has no other property
    offered_here,  # nor one that is sold elsewhere
    acquired,  # nor one that others may be using
    healthy,  # nor has a broken one
    uncordoned,  # an operator's word stands above any number
    sharing_mode,  # a property of the card: no waiting helps
    one_card_only,  # likewise, against the number of cards
    memory_known,  # likewise
    model,  # a property of the card against the user's choice
    card_size,  # likewise
    affinity,  # who lives there: changes as residents come and go,
    anti_affinity,  # and is told before the numbers, because with room the answer would be the same
    exclusion,  # as above
    share,  # numbers last: the card is right in every other way and only too full
    memory,  # after share: memory often follows the share, then one number explains both
)


def node_reasons(shape: Shape, node: NodeState) -> list[Reason]:
    """Every rule that refuses the node itself, in the order of the table."""
    return [reason for rule in NODE_RULES if (reason := rule(shape, node)) is not None]


def card_reasons(shape: Shape, node: NodeState, card: CardState, tags: Tags) -> list[Reason]:
    """Every rule that refuses the card, in the order of the table."""
    return [reason for rule in CARD_RULES if (reason := rule(shape, node, card, tags)) is not None]


__all__ = [
    "CARD_RULES",
    "NODE_RULES",
    "CardRule",
    "Choice",
    "NodeRule",
    "affine_to",
    "by_mode",
    "card_reasons",
    "fits",
    "links_reason",
    "modes_reason",
    "node_reasons",
]
