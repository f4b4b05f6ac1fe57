"""What vertical scaling speaks of: settings, one pod, its limits, its savings, its wish. Whole numbers, None = unknown.

Thousandths of a core or a card, thousandths of a token; times are milliseconds of one monotonic clock.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from autoscaler.core.vertical_tokens import FLOOR_PERCENT
from contracts.messages import Value

WHOLE = 1000


class Economy(Value, frozen=True, kw_only=True):
    """What is set for all pods."""

    period_ms: Annotated[int, Meta(ge=10)] = 2000
    """T: how far income is planned ahead."""
    static_v: float = 10.0
    """V; 0 = weights follow use and mean."""
    savings_k: float = 1.0
    """k. At 1 a full purse is spent within a period, and no more is spent in the long run than is earned."""
    income_percent: int = 200
    """Of the price of what was sold; twice is what KuScale's first version gave."""
    floor_percent: int = FLOOR_PERCENT
    below_sold: bool = False
    """A sleeping pod's limit may fall below what it was sold. It is then held back for a period when it wakes; else
    only what it leaves idle is lent, while its own limit stays, and its request decides when both want it."""


class CardPart(Value, frozen=True, kw_only=True):
    """Its piece of one card."""

    card: str
    sold_milli: int
    used_milli: int | None = None
    average_milli: int | None = None
    elastic: bool = False
    """Whether a limit can change while its processes run."""


class PodView(Value, frozen=True, kw_only=True):
    """What is known of one pod. None = not known."""

    uid: str
    namespace: str = ""
    name: str = ""
    managed: bool = False
    """Its owner asked for it; the others are only looked at."""
    tokens: int | None = None
    """Income a second, as its owner wrote it."""
    cpu_sold_milli: int = 0
    cpu_used_milli: int | None = None
    cpu_average_milli: int | None = None
    cards: tuple[CardPart, ...] = ()

    @property
    def share_milli(self) -> int:
        """What it was sold of each card."""
        return max((part.sold_milli for part in self.cards), default=0)

    @property
    def elastic(self) -> bool:
        """Whether its part of cards can be stretched: on all of them, or not at all."""
        return bool(self.cards) and all(part.elastic for part in self.cards)

    @property
    def gpu_used_milli(self) -> int | None:
        """On its busiest card."""
        used = [part.used_milli for part in self.cards]
        return None if None in used else max((n for n in used if n is not None), default=0)

    @property
    def gpu_average_milli(self) -> int | None:
        """On its busiest card."""
        return max((n for part in self.cards if (n := part.average_milli) is not None), default=None)


class Limits(Value, frozen=True, kw_only=True):
    """Of CPU, and of each card; None = no limit was ever set here."""

    cpu_milli: int | None = None
    gpu_milli: int | None = None


class Purse(Value, frozen=True, kw_only=True):
    """What is remembered of a pod from one decision to the next."""

    savings_milli: int = 0
    at_ms: int | None = None
    granted: Limits = Limits()
    """What it paid for since then."""


class PodMemory(Value, frozen=True, kw_only=True):
    """What is remembered of a pod."""

    purse: Purse = Purse()
    told: Limits = Limits()
    """What was published last."""
    held: Limits = Limits()
    """What the node last said that it wrote; after a failure this is told again."""
    leave_until_ms: int | None = None
    reason: str = ""


class Wish(Value, frozen=True, kw_only=True):
    """What it wants next. `known` False: nothing of its use is known, and it wants what it has."""

    cpu_milli: int
    gpu_milli: int
    income_milli: int
    savings_milli: int
    weights: tuple[int, int] = (0, 0)
    """Of CPU and cards, in thousandths."""
    rule: str = "unknown"
    known: bool = False
