"""What a monitor says, as messages made from what it holds. Pure: identity, sequence and time come in.

A node is named in subjects by one token; the message carries its real name.
"""

from __future__ import annotations

import msgspec

from contracts import subjects
from contracts.inventory import Heartbeat, NodeInventory
from contracts.units import NodeName, node_token
from contracts.usage import CardUsage, ContainerUsage, CpuUsage, NodeUsage
from monitor.cards.protocol import ProviderName
from monitor.health import Book

MAX_CONTAINERS = 1024
"""As the contract has it; a kubelet runs 110 pods, rarely 250."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: the node, its boot, and this life of the monitor."""

    node: NodeName
    boot_id: str
    incarnation: str


class NodeSubjects(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node's messages go."""

    inventory: str
    heartbeat: str
    usage: str
    shares: str


def subjects_of(node: str) -> NodeSubjects:
    """The literal subjects of a node. Raises ValueError: the name cannot be a subject token."""
    token = node_token(node)
    return NodeSubjects(
        inventory=subjects.INVENTORY.subject(node=token),
        heartbeat=subjects.HEARTBEATS.subject(node=token),
        usage=subjects.USAGE.subject(node=token),
        shares=subjects.SHARES.subject(node=token),
    )


def inventory(who: Identity, book: Book, *, driver_version: str, provider: ProviderName) -> NodeInventory:
    """All cards that we hold."""
    return NodeInventory(
        node=who.node,
        boot_id=who.boot_id,
        incarnation=who.incarnation,
        cards=book.cards,
        driver_version=driver_version,
        provider=provider,
    )


def heartbeat(who: Identity, book: Book, *, sequence: int, uptime_ms: int) -> Heartbeat:
    """I am alive, and these cards are not to be used."""
    return Heartbeat(
        node=who.node,
        boot_id=who.boot_id,
        incarnation=who.incarnation,
        sequence=sequence,
        uptime_ms=uptime_ms,
        cards=len(book.cards),
        unhealthy=book.unhealthy,
    )


def usage(
    who: Identity,
    cards: tuple[CardUsage, ...],
    *,
    sequence: int,
    period_ms: int,
    cpu: CpuUsage | None,
    containers: tuple[ContainerUsage, ...] | None,
    provider: ProviderName,
) -> NodeUsage:
    """The period that has just ended; of too many containers the first are told."""
    return NodeUsage(
        node=who.node,
        incarnation=who.incarnation,
        sequence=sequence,
        period_ms=period_ms,
        cards=cards,
        cpu=cpu,
        containers=None if containers is None else containers[:MAX_CONTAINERS],
        provider=provider,
    )
