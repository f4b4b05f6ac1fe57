"""What is free on the cards of warm replicas, and which nodes are near: from the ledger, for `core.standby`. Pure.

In: the ledger, a function with its `promotion`, its replicas. Out: a `Choice`. Free memory is what the ledger has not
sold; each replica of the function that serves on a card counts as having taken `free_mib` of it. Slots are counted from
who holds a piece of the card, the function's own warm ones apart: whether somebody else's stand by is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autoscaler.core.replicas import Replica, is_active, is_warm
from autoscaler.core.standby import STEADIEST, CardRoom, Choice
from bus.ledger.state import CardState, LedgerState
from contracts.workloads import Function, Promotion


def choice_of(state: LedgerState, function: Function, replicas: Sequence[Replica]) -> Choice:
    """How the function wants its warm replicas chosen, and what the ledger says of their cards and nodes."""
    wanted = function.promotion
    if wanted.rule == "steadiest" and not wanted.near:
        return STEADIEST
    warm = [replica for replica in replicas if is_warm(replica)]
    return Choice(
        rule=wanted.rule,
        free_mib=wanted.free_mib,
        cards={} if wanted.rule == "steadiest" else _cards(state, wanted, warm, replicas),
        near=frozenset(replica.node for replica in warm if _is_near(state, replica.node, wanted)),
    )


def _cards(
    state: LedgerState, wanted: Promotion, warm: Sequence[Replica], replicas: Sequence[Replica]
) -> dict[str, CardRoom]:
    standing = Counter(card for replica in warm for card in replica.cards)
    serving = Counter(c for r in replicas if is_active(r) and not is_warm(r) for c in r.cards)
    held = {(replica.node, card) for replica in warm for card in replica.cards}
    found = {}
    for name, uuid in sorted(held):
        node = state.nodes.get(name)
        card = node.cards.get(uuid) if node is not None else None
        if card is not None and card.usable:
            found[uuid] = _room(card, wanted, standing=standing[uuid], serving=serving[uuid])
    return found


def _room(card: CardState, wanted: Promotion, *, standing: int, serving: int) -> CardRoom:
    busy = len(card.residents) - standing
    return CardRoom(
        free_mib=card.free_mib - serving * wanted.free_mib,
        free_slots=None if wanted.card_slots is None else max(0, wanted.card_slots - busy),
    )


def _is_near(state: LedgerState, name: str, wanted: Promotion) -> bool:
    node = state.nodes.get(name)
    if not wanted.near or node is None or node.facts is None:
        return False
    return wanted.near.items() <= node.facts.labels.items()
