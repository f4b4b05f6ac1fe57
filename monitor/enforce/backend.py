"""The port of an isolation mode on a node: make it hold, and look whether it does.

What flows in: all cards of one mode with who holds what of them, a full snapshot each time. What flows out: what was
found afterwards, card by card and pod by pod. Both calls block, are repeatable, and are made by one caller at a time in
a thread of their own; an OSError is a failure of the whole mode, told with its reason and tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from contracts.inventory import Card, IsolationMode
from contracts.isolation import DECLARED, NOTES
from contracts.outcomes import ShareAssignment
from contracts.shares import CardEnforcement, Enforced, PodEnforcement, PodState
from monitor.enforce.wanted import CardShares


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds now."""

    cards: tuple[CardEnforcement, ...] = ()
    pods: tuple[PodEnforcement, ...] = ()


class Backend(Protocol):
    """One mode."""

    @property
    def mode(self) -> IsolationMode:
        """Which."""
        ...

    def apply(self, wanted: Sequence[CardShares]) -> None:
        """Bring the node to exactly this: what is not listed any more is cleaned up. Raises OSError."""
        ...

    def check(self, wanted: Sequence[CardShares]) -> Findings:
        """Look whether it took effect. Raises OSError."""
        ...


def finding(
    mode: IsolationMode, wanted: Sequence[CardShares], *, lacks: str = "", state: PodState = "waiting"
) -> Findings:
    """The same for all cards of a mode: all holds, or nothing does and `lacks` says why."""
    cards = tuple(card_finding(mode, one.card, lacks=lacks) for one in wanted)
    held = (assignment for one in wanted for assignment in one.assignments)
    return Findings(cards=cards, pods=tuple(pod_finding(one, state if lacks else "applied", lacks) for one in held))


def pod_finding(one: ShareAssignment, state: PodState, reason: str = "") -> PodEnforcement:
    """How far one pod is on one card."""
    return PodEnforcement(uid=one.uid, what=one.card, state=state, reason=reason[:1024], port=one.port)


def card_finding(mode: IsolationMode, card: Card, *, lacks: str = "") -> CardEnforcement:
    """What holds on one card."""
    declared: Enforced = DECLARED[mode]
    return CardEnforcement(
        card=card.uuid,
        mode=mode,
        declared=declared,
        enforced="none" if lacks else declared,
        reason=lacks[:1024],
        note=NOTES[mode],
    )
