"""One node as a decision reads it: sums taken, cards in order, everything that cannot be sold left out.

In: a `NodeState` and the requests of its residents. Out: a `NodeView`, never changed after it is built (`memo` only
remembers what was computed from it). A node that changes gets a new view: about 5 us for eight cards, paid once for all
shapes. Cards that may not take anything new (gone, failed, cordoned, split by MIG) are not in it; why they are not is
told by the rules in `feasibility`, which read the `NodeState` itself.

Order of `tight`: least free share first, then least free memory, then the lowest position on the node.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bus.ledger.state import CardState, NodeState
from contracts.inventory import NodeFacts
from contracts.units import WHOLE_CARD
from scheduler.core.locality import EMPTY, UNTAGGED, Requests, Tags, any_tagged, tags_of


class CardView(msgspec.Struct, frozen=True, order=True):
    """One card that may be sold; ordered by its first three fields, of which the third is never equal."""

    free_milli: int
    free_mib: int
    position: int
    """Place among all cards of the node, in index order: the last word between equal cards."""
    capacity_mib: int
    known: bool
    """The driver told the memory."""
    whole_only: bool
    """An instance of a split card: one tenant."""
    uuid: str
    model: str
    tags: Tags


class NodeView(msgspec.Struct):
    """One node; `admits` false: nothing new goes there, and the rest is left empty."""

    name: str
    tie: str
    admits: bool = False
    facts: NodeFacts | None = None
    tainted: bool = False
    cpu_milli: int = 0
    """Free, not below 0: a node that foreign pods fill beyond its size still takes pods that ask for none."""
    memory_mib: int = 0
    """Free host memory, likewise."""
    pods: int = 0
    cards: list[CardView] = []
    """In position order."""
    tight: list[CardView] = []
    """The same, fullest first."""
    frees: list[int] = []
    """`free_milli` of `tight`, for bisection."""
    wholes: int = 0
    """Cards with nothing sold."""
    left_milli: int = 0
    """Free share of all cards together: how full the node is. Never used to decide whether something fits."""
    plain: bool = True
    """No tags, no unknown memory, no instances: a card is open if its numbers are."""
    uniform: bool = True
    """All cards have the same model."""
    memo: dict[Any, Any] = {}
    """What scores have computed from this view."""


def sold(card: CardState) -> bool:
    """Whether anything of the card may be sold at all."""
    return card.usable and not card.card.mig_enabled


def admits(node: NodeState) -> bool:
    """Kubernetes knows it, it is ready, open for pods, and its monitor is heard."""
    facts = node.facts
    return bool(node.fresh and facts and facts.ready and not facts.unschedulable and not facts.gone)


def view_of(node: NodeState, requests: Requests) -> NodeView:
    """The node as it is now."""
    facts = node.facts
    if facts is None or not admits(node):
        return NodeView(name=node.name, tie=node.tie)
    tagged = any_tagged(node.residents, requests)
    cards = [
        _card(position, card, tags_of(card.residents, requests) if tagged else None)
        for position, card in enumerate(node.cards.values())
        if sold(card)
    ]
    tight = sorted(cards)
    frees = [card.free_milli for card in tight]
    return NodeView(
        name=node.name,
        tie=node.tie,
        admits=True,
        facts=facts,
        tainted=bool(facts.taints),
        cpu_milli=max(0, facts.allocatable_cpu_milli - facts.foreign_cpu_milli - node.used_cpu_milli),
        memory_mib=max(0, facts.allocatable_memory_mib - facts.foreign_memory_mib - node.used_memory_mib),
        pods=facts.allocatable_pods - facts.foreign_pods - len(node.residents),
        cards=cards,
        tight=tight,
        frees=frees,
        wholes=frees.count(WHOLE_CARD),
        left_milli=sum(frees),
        plain=not tagged and all(card.known and not card.whole_only for card in cards),
        uniform=len({card.model for card in cards}) <= 1,
    )


def _card(position: int, state: CardState, tags: Tags | None) -> CardView:
    card = state.card
    if tags is None:
        tags = UNTAGGED if state.residents else EMPTY
    return CardView(
        WHOLE_CARD - state.used_milli,
        state.capacity_mib - state.used_mib,
        position,
        state.capacity_mib,
        card.memory_total_mib is not None,
        card.isolation == "mig",
        card.uuid,
        card.model,
        tags,
    )
