"""How urgent: priority points, and what waiting has added to them.

In: a request, the ledger's clock. Out: its level; equal levels are ordered by fair share, then by age.

    level = priority + 100 x (full hours waited)

A full hour counts as much as one class for daily use. So a request is passed only by requests that came within a
bounded time after it: whoever is d points more important can pass it only if it came less than d // 100 + 1 hours
later. For `normal` behind an endless stream of `high` that is two hours, behind `critical` eleven.

The clock is the ledger's (the wall clock of its last commit), so that the order follows from the log alone. A request
whose submission time is not known does not age.
"""

from __future__ import annotations

from functools import lru_cache

from bus.ledger.state import RequestState
from contracts.priorities import CLASS_STEP, priority_of
from contracts.units import RequestUid

HOUR_MS = 3_600_000

Age = tuple[int, int, int]
"""Submission in milliseconds, then commit number and index of the acceptance: a total order, oldest first."""


def level(request: RequestState, now_ms: int) -> int:
    """Priority and age in one number; higher goes first."""
    return priority_of(request.request) + aged(request, now_ms)


def aged(request: RequestState, now_ms: int) -> int:
    """Points that the wait has earned."""
    return CLASS_STEP * (waited_ms(request, now_ms) // HOUR_MS)


def waited_ms(request: RequestState, now_ms: int) -> int:
    """Since its submission, as far as the ledger's clock tells; 0 when it is not known."""
    submitted = request.accepted.submitted_ms
    return max(0, now_ms - submitted) if submitted else 0


def age(request: RequestState) -> Age:
    """The order of requests that are equally urgent."""
    return (request.accepted.submitted_ms, *acceptance(request.uid))


@lru_cache(maxsize=131_072)
def acceptance(uid: RequestUid) -> tuple[int, int]:
    """Commit number and index in it, which end every uid; another form (a test, a forged mark) counts as the first."""
    _, number, index = uid.rsplit("-", 2) if uid.count("-") > 1 else ("", "0", "0")
    return (int(number), int(index)) if number.isdecimal() and index.isdecimal() else (0, 0)
