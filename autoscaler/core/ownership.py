"""Who turns which knob: one owner for each, so that no two parts of the system pull at one number.

In: an object, a knob, who wants to write. Out: whether it may. Seven writers could change what a pod costs: people, a
function's horizontal and warm rules, training jobs, vertical shares, the scheduler, an autoscaler of Kubernetes. The
table gives each knob of each kind of object to one of them, in two modes: `auto`, and `fixed`, where people have
written a number and no machine may move it.

A number that somebody writes nevertheless is reverted, or adopted for one window, as the function says. A rival that
writes again and again is not fought: after `PATIENCE` foreign writes within a window scaling of that object stands
still, with an alarm, until an operator settles who owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from contracts.messages import Value

Kind = Literal["pod", "function", "job", "card"]
Mode = Literal["auto", "fixed"]
Owner = Literal["people", "horizontal", "warm", "elastic", "vertical", "scheduler", "node"]
Answer = Literal["revert", "adopt", "stand-back"]

PATIENCE = 3
"""Foreign writes within one window that are answered; the next is a rival's."""


class Ownership(Value, frozen=True, kw_only=True):
    """One knob. `fixed` = who owns it once people have written a number."""

    kind: Kind
    knob: str
    auto: Owner
    fixed: Owner = "people"
    reason: str


OWNERS: tuple[Ownership, ...] = (
    Ownership(kind="function", knob="replicas", auto="horizontal", reason="load decides how many serve"),
    Ownership(kind="function", knob="bounds", auto="people", reason="minimum and maximum are a promise about cost"),
    Ownership(
        kind="function", knob="warm", auto="warm", reason="refilled behind a promotion, reclaimed under pressure"
    ),
    Ownership(kind="function", knob="slice", auto="horizontal", reason="chosen from its profiles, where it says so"),
    Ownership(kind="job", knob="trainers", auto="elastic", reason="a job breathes between its bounds"),
    Ownership(kind="job", knob="bounds", auto="people", reason="below the minimum it cannot train"),
    Ownership(kind="pod", knob="cpu_limit", auto="vertical", reason="follows use within milliseconds, on the node"),
    Ownership(kind="pod", knob="share", auto="vertical", reason="stretched and returned on the card it has"),
    Ownership(kind="pod", knob="memory", auto="people", reason="a running process dies of less; only asked changes"),
    Ownership(kind="pod", knob="placement", auto="scheduler", fixed="scheduler", reason="one writer of the ledger"),
    Ownership(
        kind="card", knob="layout", auto="node", fixed="node", reason="slices as the ledger has them, made there"
    ),
)

_BY_KNOB = {(row.kind, row.knob): row for row in OWNERS}


class NoSuchKnob(LookupError):  # noqa: N818 - named by what is the case
    """The table has no row for it: nobody may write what nobody owns."""

    def __init__(self, kind: str, knob: str) -> None:
        known = ", ".join(row.knob for row in OWNERS if row.kind == kind) or "none"
        super().__init__(f"{kind} has no knob {knob!r}; it has: {known}")


def owner_of(kind: Kind, knob: str, mode: Mode = "auto") -> Owner:
    """The one who may write it.

    Raises:
        NoSuchKnob: there is no such row.
    """
    row = _BY_KNOB.get((kind, knob))
    if row is None:
        raise NoSuchKnob(kind, knob)
    return row.auto if mode == "auto" else row.fixed


def may_write(owner: str, kind: Kind, knob: str, mode: Mode = "auto") -> bool:
    """Whether this writer owns the knob; False also for an unknown writer, or a knob that nobody owns."""
    return (kind, knob) in _BY_KNOB and owner_of(kind, knob, mode) == owner


def answer_to_rival(
    writes_ms: Sequence[int], now_ms: int, window_ms: int, by_hand: Literal["revert", "adopt"]
) -> Answer:
    """What to do about a number that somebody else wrote: a person, a second autoscaler, an HPA.

    Four withdrawals of replicas within one window, by somebody else: the first three are answered, then it stands.

    Args:
        writes_ms: when foreign numbers were seen, this one with them.
        now_ms: the same clock.
        window_ms: the function's stable window.
        by_hand: as the function says.
    """
    recent = sum(now_ms - at_ms < window_ms for at_ms in writes_ms)
    return "stand-back" if recent > PATIENCE else by_hand
