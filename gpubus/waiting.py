"""When is a request as far as somebody waits for? Pure: an event in, yes, never or not yet out."""

from __future__ import annotations

from typing import Literal

from contracts.outcomes import EventPhase, RequestEvent

Goal = Literal["accepted", "placed", "running", "ended"]
GOALS: tuple[Goal, ...] = ("accepted", "placed", "running", "ended")

_RANK: dict[EventPhase, int] = {
    "accepted": 0,
    "pending": 0,
    "placed": 1,
    "bound": 1,
    "resized": 1,
    "running": 2,
    "ended": 3,
}
"""How far a phase is. `ended` is past `running`: a pod may be over before anybody saw it run."""

_OVER: frozenset[EventPhase] = frozenset({"refused", "withdrawn", "released"})
"""Nothing follows these. A release without an end means that the pod never ran to its end: gone, rejected, lost."""


def reached(goal: Goal, event: RequestEvent) -> bool | None:
    """True: it is there. False: it will never be. None: not yet."""
    if event.phase in _OVER:
        return False
    if _RANK.get(event.phase, -1) >= GOALS.index(goal):  # what is no step on the way says nothing about how far it is
        return True
    return None
