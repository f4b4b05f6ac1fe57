"""One node as a decision reads it: sums taken, cards in order, everything that cannot be sold left out.

In: a `NodeState` and the requests of its residents. Out: a `NodeView`, never changed after it is built (`memo` only
remembers what was computed from it). A node that changes gets a new view, about 4 us for eight cards, paid once for all
shapes. Cards that may not take anything new (gone, failed, cordoned, split by MIG) are not in it; why they are not is
told by the rules in `feasibility`, which read the `NodeState` itself.

Order of `tight`: least free share first, then least free memory, then the lowest position on the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bus.ledger.state import CardState, NodeState, RequestState
from contracts.decisions import Placement
from contracts.inventory import Card, NodeFacts
from contracts.units import WHOLE_CARD, RequestUid
from scheduler.core.locality import EMPTY, UNTAGGED, Requests, Tags, any_tagged, tags_of


class CardView(msgspec.Struct, frozen=True, order=True):
    """One card that may be sold; ordered by its first three fields, of which the third is never equal."""

    free_milli: int
    free_mib: int
    position: int
    """Place among all cards of the node, in index order: the last word between equal cards."""
    capacity_mib: int
    special: bool
    """Its memory is unknown, it is an instance of a split card, or its backend serves one card a pod: more than numbers
    decide."""
    tags: Tags
    card: Card

    @property
    def uuid(self) -> str:
        """The name of the card."""
        return self.card.uuid

    @property
    def model(self) -> str:
        """As the driver names it."""
        return self.card.model

    @property
    def known(self) -> bool:
        """The driver told the memory."""
        return self.card.memory_total_mib is not None

    @property
    def whole_only(self) -> bool:
        """An instance of a split card: one tenant."""
        return self.card.isolation == "mig"


class NodeView(msgspec.Struct):
    """One node; `admits` false: nothing new goes there, and all but who lives there is left empty."""

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
    """No tags, no unknown memory, no instances, one way of sharing: a card is open if its numbers are."""
    uniform: bool = True
    """All cards have the same model."""
    residents: tuple[Placement, ...] = ()
    """What our pods hold here."""
    uids: tuple[RequestUid, ...] = ()
    """Whose they are, in the same order."""
    tenants: tuple[RequestState, ...] = ()
    """Whose they are."""
    memo: dict[Any, Any] = {}
    """What scores have computed from this view."""


def admits(node: NodeState) -> bool:
    """Kubernetes knows it, it is ready, open for pods, and its monitor is heard."""
    facts = node.facts
    return bool(node.fresh and facts and facts.ready and not facts.unschedulable and not facts.gone)


def view_of(node: NodeState, requests: Requests, before: NodeView | None = None) -> NodeView:
    """The node as it is now; cards that are as they were in the view `before` are taken over from it."""
    facts = node.facts
    if facts is None or not admits(node):
        known = None if facts is None or facts.gone else facts
        return NodeView(name=node.name, tie=node.tie, facts=known, uids=tuple(node.residents))
    tagged = any_tagged(node.residents, requests)
    if tagged:
        cards = _tagged_cards(node, requests)
    else:
        whole = before is not None and before.plain and len(before.cards) == len(node.cards)
        cards = _cards(node, before.cards if before is not None and whole else ())
    tight = sorted(cards)
    frees = [card.free_milli for card in tight]
    models = {card.card.model for card in cards}
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
        plain=not tagged and not any(card.special for card in cards) and _alike(cards),
        uniform=len(models) < 2,  # noqa: PLR2004 - one model, or no card
        residents=tuple(node.residents.values()),
        tenants=tuple(map(requests.__getitem__, node.residents)),
        uids=tuple(node.residents),
    )


def _alike(cards: Sequence[CardView]) -> bool:
    """Whether all are shared in one way."""
    return not cards or all(card.card.isolation == cards[0].card.isolation for card in cards)


def _cards(node: NodeState, before: Sequence[CardView]) -> list[CardView]:
    """Cards that may be sold; no resident carries a tag. `before`: those of a plain view of all of them, or none."""
    found = []
    for position, state in enumerate(node.cards.values()):
        card = state.card
        if not state.usable or card.mig_enabled:
            continue
        milli, mib = WHOLE_CARD - state.used_milli, state.capacity_mib - state.used_mib
        if before:
            old = before[position]
            alone = not state.residents  # what was sold may be held for somebody by now: as full, and nobody there
            same = old.free_milli == milli and old.free_mib == mib and old.card is card
            if same and alone == (old.tags is EMPTY):
                found.append(old)
                continue
        found.append(_view(state, position, UNTAGGED if state.residents else EMPTY))
    return found


def _tagged_cards(node: NodeState, requests: Requests) -> list[CardView]:
    """The same where some resident carries a tag."""
    return [
        _view(state, position, tags_of(state.residents, requests))
        for position, state in enumerate(node.cards.values())
        if state.usable and not state.card.mig_enabled
    ]


def _view(state: CardState, position: int, tags: Tags) -> CardView:
    card = state.card
    return CardView(
        WHOLE_CARD - state.used_milli,
        state.capacity_mib - state.used_mib,
        position,
        state.capacity_mib,
        card.memory_total_mib is None or card.isolation in ("mig", "gemini"),
        tags,
        card,
    )
