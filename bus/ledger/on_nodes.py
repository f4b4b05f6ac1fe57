"""What records about nodes do: cards come and go, nodes appear, fall silent and are forgotten. Pure.

A card that tenants hold is never dropped: it stays, counted and not offered, until the last of them is seen to be gone.
A card is one physical thing: when two nodes list its UUID, the first one offers it and the other waits.
"""

from __future__ import annotations

import hashlib

from bus.ledger import holds
from bus.ledger.rules import InvariantBroken
from bus.ledger.state import CardState, LedgerState, NodeState
from contracts.decisions import CardHealthSet, FactsSet, HealthSet, InventorySet
from contracts.inventory import Card, NodeFacts
from contracts.units import CardUuid

LOST = "no longer in the node's inventory"
ORPHAN = "not in the node's inventory"


def tie_of(node: str) -> str:
    """A fixed rank that has nothing to do with hardware: names often follow racks, and rack order decides badly."""
    return hashlib.sha256(node.encode()).hexdigest()[:16]


def node_of(state: LedgerState, name: str) -> NodeState:
    """The node of that name, made if it is new."""
    if name not in state.nodes:
        state.nodes[name] = NodeState(name=name, tie=tie_of(name))
    return state.nodes[name]


def orphan(node: str, uuid: CardUuid) -> CardState:
    """A card that tenants hold and nobody lists: no capacity, never offered."""
    unknown = Card(uuid=uuid, index=0, model="unknown", memory_total_mib=None)
    return CardState(card=unknown, node=node, capacity_mib=0, present=False, reason=ORPHAN)


def inventory(state: LedgerState, record: InventorySet, _at: int) -> None:
    """The cards of a node, as its monitor found them; what is sold of each stays sold."""
    node = node_of(state, record.inventory.node)
    node.inventory = record.inventory
    holds.lift(node)
    old, node.cards = node.cards, {}
    for card in sorted(record.inventory.cards, key=lambda c: (c.index, c.uuid)):
        if card.uuid not in node.cards:
            node.cards[card.uuid] = _listed(state, node.name, card, old.pop(card.uuid, None))
    for uuid, lost in sorted(old.items()):
        if lost.residents:
            lost.present, lost.reason, lost.rival = False, LOST, ""
            node.cards[uuid] = lost
        _leave(state, node.name, uuid)
    holds.resume(state, node)
    state.touched.append(node.name)


def _listed(state: LedgerState, node: str, card: Card, old: CardState | None) -> CardState:
    new = CardState(card=card, node=node, capacity_mib=card.sellable_mib, health=card.health, reason=card.health_reason)
    home = state.homes.setdefault(card.uuid, node)
    new.rival = home if home != node else ""
    if old is not None:
        new.used_milli, new.used_mib, new.residents = old.used_milli, old.used_mib, old.residents
    new.cordoned = card.uuid in state.nodes[node].cordons
    new.unacquired = not acquired(state.nodes[node].facts, card.uuid)
    return new


def acquired(facts: NodeFacts | None, card: str) -> bool:
    """Whether the card is ours to sell: all of a dedicated node's are, elsewhere those that placeholders hold."""
    return facts is None or facts.mode == "dedicated" or card in facts.acquired


def drop_card(state: LedgerState, node: NodeState, uuid: str) -> None:
    """The last tenant of a card that the node no longer lists is gone."""
    del node.cards[uuid]
    _leave(state, node.name, uuid)


def _leave(state: LedgerState, node: str, uuid: str) -> None:
    """`node` does not list the card any more: the next one that does (by name) offers it."""
    if state.homes.get(uuid) != node:
        return
    del state.homes[uuid]
    heirs = [name for name, other in state.nodes.items() if name != node and _lists(other, uuid)]
    for name in heirs:
        state.homes[uuid] = min(heirs)
        state.nodes[name].cards[uuid].rival = "" if name == min(heirs) else min(heirs)
        state.touched.append(name)


def _lists(node: NodeState, uuid: str) -> bool:
    card = node.cards.get(uuid)
    return card is not None and card.present


def facts(state: LedgerState, record: FactsSet, _at: int) -> None:
    """A node as Kubernetes has it."""
    node = node_of(state, record.facts.node)
    node.facts = record.facts
    for uuid, card in node.cards.items():
        card.unacquired = not acquired(record.facts, uuid)
    holds.serve(state, node)
    state.touched.append(node.name)
    forget_if_gone(state, node)


def forget_if_gone(state: LedgerState, node: NodeState) -> None:
    """A node that Kubernetes deleted goes with the last pod on it."""
    if node.facts is not None and node.facts.gone and not node.residents:
        for request in [state.nominated[uid] for uid in node.holds]:
            holds.drop(state, request)
        del state.nodes[node.name]
        for uuid in node.cards:
            _leave(state, node.name, uuid)


def health(state: LedgerState, record: HealthSet, _at: int) -> None:
    """A node fell silent, or is heard again. Nothing is freed by it."""
    node = node_of(state, record.node)
    node.fresh, node.reason = record.health == "fresh", record.reason
    state.touched.append(node.name)


def card_health(state: LedgerState, record: CardHealthSet, at: int) -> None:
    """A card fails or recovers, an operator takes it or gives it back; neither undoes the other.

    `healthy` gives back a cordoned card and leaves its health; on a card without a cordon it is its health. A cordon is
    kept by the node and not by its card: it holds for a card that is taken out and put back, and across boots.
    """
    node = state.nodes.get(record.node)
    card = node.cards.get(record.card) if node else None
    if node is None or (card is None and record.health != "cordoned" and record.card not in node.cordons):
        raise InvariantBroken(f"health of card {record.card} of {record.node} is set at {at}; there is none")
    if record.health == "cordoned":
        node.cordons[record.card] = record
    elif record.health == "healthy" and record.card in node.cordons:
        del node.cordons[record.card]
    elif card is not None:
        card.health, card.reason = record.health, record.reason
    if card is not None:
        card.cordoned = record.card in node.cordons
    state.touched.append(record.node)
