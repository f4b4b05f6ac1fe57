"""What a node in mode `coexist` is like. Pure.

In: the Node object, the pods that are bound to it, what the ledger says of it. Out: the cards that are ours there, for
the facts that are published; and all that a plan is made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from bus.ledger.state import NodeState
from contracts.inventory import CardMode
from contracts.units import CardUuid
from reconciler.facts import amount, holds, pod_request
from reconciler.objects import Node, Pod
from reconciler.placeholders.look import REPLICA, devices, is_placeholder, look
from reconciler.placeholders.values import NodeSeen, Placeholder, Rules, mode_of
from reconciler.quantity import ONE, ceil_in, floor_in

NOT_READY = "the node is not ready"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """How the cards of a node are shared out, and which of them are ours."""

    mode: CardMode = "dedicated"
    acquired: tuple[CardUuid, ...] = ()
    acquiring: str = ""


def kept(node: Node, pods: Iterable[Pod], rules: Rules, trouble: Callable[[str], str] = lambda _: "") -> Kept:
    """For the facts of a node; `trouble`: what stands against getting more cards of it, by its name."""
    mode, fault = mode_of(node)
    if mode == "dedicated":
        return Kept()
    ours = {each.card for each in placeholders(node, pods, rules) if each.offers}
    told = fault or trouble(node.metadata.name)
    return Kept(mode=mode, acquired=tuple(CardUuid(card) for card in sorted(ours)), acquiring=told[:1024])


def placeholders(node: Node, pods: Iterable[Pod], rules: Rules) -> tuple[Placeholder, ...]:
    """Those of one node, by slot; also those that ended."""
    boot = node.status.node_info.boot_id
    found = (look(pod, boot, rules) for pod in pods if is_placeholder(pod, rules))
    return tuple(sorted(found, key=lambda each: (each.slot, each.name, each.uid)))


def survey(node: Node, pods: Iterable[Pod], known: NodeState | None, rules: Rules) -> NodeSeen:
    """All that a plan is made from; `known`: the node in the ledger."""
    everybody = list(pods)
    mode, fault = mode_of(node)
    offers = floor_in(amount(node.status.allocatable or {}, rules.resource), ONE)
    asked = sum(ceil_in(pod_request(pod, rules.resource), ONE) for pod in everybody if holds(pod))
    return NodeSeen(
        name=node.metadata.name,
        mode=mode,
        against=fault or _against(node, known, offers),
        devices=offers,
        free=max(0, offers - asked),
        placeholders=placeholders(node, everybody, rules),
        tenants=_tenants(known),
        offered=_offered(known),
        taken=_taken(everybody, rules),
    )


def _against(node: Node, known: NodeState | None, offers: int) -> str:
    """Why it is no use to try now."""
    if not any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ()):
        return NOT_READY
    if not offers:
        return "its device plugin offers no card"
    if known is None or known.facts is None:
        return "the ledger does not know the node yet"
    return "the kubelet takes no more pods" if known.free_pods < 1 else ""


def _tenants(known: NodeState | None) -> frozenset[str]:
    """Sold, or kept for somebody who was nominated."""
    if known is None:
        return frozenset()
    held = {uuid for hold in known.holds.values() for uuid in hold.cards}
    return frozenset(held.union(uuid for uuid, card in known.cards.items() if card.residents))


def _offered(known: NodeState | None) -> frozenset[str]:
    """A node of which the ledger believes something else than we do offers every card, as far as it knows."""
    if known is None or known.facts is None:
        return frozenset()
    return frozenset(known.cards if known.facts.mode == "dedicated" else known.facts.acquired)


def _taken(pods: Iterable[Pod], rules: Rules) -> dict[str, str]:
    """A replica of a card is taken as well: nobody has the card for himself."""
    return {
        card.partition(REPLICA)[0]: f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in pods
        if holds(pod) and not is_placeholder(pod, rules)
        for card in devices(pod, rules.resource)
    }
