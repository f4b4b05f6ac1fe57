"""What a namespace may hold, as an operator's word: the last message on its subject stands.

Quotas are on from the first of these messages. From then on a namespace without one holds nothing (fail closed), and
one with a limit of 0 holds nothing either: 0 is never "no limit".
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from contracts.messages import Message
from contracts.units import Count, NamespaceName, Priority, ShortText

MAX_WEIGHT = 1000


class NamespaceQuota(Message, frozen=True, kw_only=True, tag="namespace.quota.v1"):
    """The most that the placed requests of a namespace may hold together, and its weight in the fair share."""

    namespace: NamespaceName
    share_milli: Count | None = None
    """Thousandths of cards, all cards added up: 2500 = two and a half cards. None = no limit, 0 = nothing at all."""
    memory_mib: Count | None = None
    """MiB of card memory, likewise."""
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1
    """Of two namespaces that wait, one with weight 2 is entitled to twice as much."""
    max_priority: Priority | None = None
    """The highest priority that its requests may have; None = any."""
    removed: bool = False
    """Take the mapping away. Quotas stay on: the namespace may hold nothing until it has a mapping again."""
    reason: ShortText = ""
    cause: ShortText = ""
