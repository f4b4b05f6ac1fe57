"""What whoever takes a call decides: whether it is still to be run, and what an order makes of a worker. Pure.

In: a call with its age and the number of times that it was handed out; a phase and an order. Out: the verdict, the next
phase. Time is passed in.
"""

from __future__ import annotations

from typing import Literal

from contracts.functions import WorkerOrder, WorkerPhase

MAX_ATTEMPTS = 3
"""Workers that may die over one call. The call that kills them all must not take the function with it."""

Verdict = Literal["run", "late", "gave-up"]


def judge(*, timeout_ms: int, waited_ms: int, attempt: int, max_attempts: int = MAX_ATTEMPTS) -> Verdict:
    """Whether to run a call that waited so long and is handed out for the `attempt`-th time."""
    if attempt > max_attempts:
        return "gave-up"
    return "late" if waited_ms >= timeout_ms else "run"


def waited_ms(stored_at_s: float, now_s: float) -> int:
    """Milliseconds since a call was stored; never negative, because two clocks never agree to the last one."""
    return max(0, round((now_s - stored_at_s) * 1000))


_NEXT: dict[tuple[WorkerPhase, str], WorkerPhase] = {
    ("warm", "promote"): "ready",
    ("ready", "demote"): "warm",
    ("warm", "drain"): "draining",
    ("ready", "drain"): "draining",
    ("draining", "promote"): "ready",
}


def obey(phase: WorkerPhase, order: WorkerOrder) -> WorkerPhase:
    """The phase after an order. One that drains may be called back, for as long as its pod is not taken back."""
    return _NEXT.get((phase, order.order), phase)
