"""Priority classes: names for levels of importance, as data, and what each may do to others.

In: a request. Out: its priority, and whether it may take the place of running requests of lower priority.

A request names a class, or an integer, not both. A class decides about preemption, because its name is an agreement of
an installation; a bare integer only orders the queue: anybody may write a large number.
"""

from __future__ import annotations

from typing import Literal

from contracts.messages import Value
from contracts.requests import PodRequest

CLASS_STEP = 100
"""Priority points between two neighbouring classes for daily use."""


class PriorityClass(Value, frozen=True, kw_only=True):
    """One level."""

    name: str
    priority: int
    preempts: Literal["never", "lower"]
    """`lower`: may take the place of running requests of strictly lower priority."""


PRIORITY_CLASSES: dict[str, PriorityClass] = {
    each.name: each
    for each in (
        # Services that must come back at once after a failure.
        PriorityClass(name="critical", priority=1000, preempts="lower"),
        # Somebody waits for it.
        PriorityClass(name="high", priority=100, preempts="lower"),
        # What a request without a class is.
        PriorityClass(name="normal", priority=0, preempts="never"),
        # Goes behind, and may be asked to leave.
        PriorityClass(name="low", priority=-100, preempts="never"),
        # Takes what is left over.
        PriorityClass(name="scavenger", priority=-1000, preempts="never"),
    )
}


def priority_of(request: PodRequest) -> int:
    """Of its class, else its integer. A class that is not in the table (an older log, another build) counts as 0."""
    if request.priority_class is None:
        return request.priority
    named = PRIORITY_CLASSES.get(request.priority_class)
    return named.priority if named is not None else 0


def may_preempt(request: PodRequest) -> bool:
    """Whether its class may take the place of others."""
    named = PRIORITY_CLASSES.get(request.priority_class or "")
    return named is not None and named.preempts == "lower"
