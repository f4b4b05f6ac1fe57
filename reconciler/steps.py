"""The vocabulary of a plan: what it is told, and the one action that it answers with. Values only."""

from __future__ import annotations

import msgspec

from bus.ledger.state import RequestState
from contracts.outcomes import Outcome
from reconciler.seen import Seen


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """What the last call for this pod was refused with."""

    code: str
    reason: str
    final: bool
    """Kubernetes will never accept it; else it is tried again later and this stands only until then."""
    cpu_milli: int | None = None
    """The CPU that a resize asked for: another size is another question."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a placed request stands on its cards, where others may have them too."""

    waits_for: str = ""
    """What it waits for before it may be bound; empty = nothing."""
    leaves: str = ""
    """Why it cannot stay; empty = it can."""


AT_HOME = Standing()
"""Nothing stands against it."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan is made from."""

    epoch: str
    """Of the ledger."""
    sequence: int
    """That the ledger is folded to."""
    request: RequestState | None = None
    """The live request whose pod this is, else the one that the pod names; None = the ledger knows neither."""
    seen: Seen | None = None
    """The pod of that name; None = there is none."""
    said: Outcome | None = None
    """The last outcome that was published for this very request."""
    blocked: Blocked | None = None
    """The refusal that still stands."""
    maybe_bound: bool = False
    """A binding of its pod was sent and never answered."""
    waits_for: str = ""
    """What its node has not prepared yet for the isolation of its cards; it is not bound before."""
    leaves: str = ""
    """Why it cannot stay where it was bound, whatever the ledger says; empty when it can."""
    isolation: dict[str, str] = {}
    """What its isolation's variables should say, by name."""
    ended_for_s: float = 0.0
    """How long the pod has been terminal, as far as we know; too little rather than too much."""
    keep_ended_s: float | None = None
    """How long the pod of a released request is kept after its end, so that its logs can be read; None = for ever."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """An action."""


class Create(Step, frozen=True, kw_only=True):
    """Make the pod; it is there already is as good."""


class Bind(Step, frozen=True, kw_only=True):
    """Write node and cards, in one breath, into this life of the pod."""

    pod_uid: str


class Ungate(Step, frozen=True, kw_only=True):
    """Take our scheduling gate away."""

    index: int


class Annotate(Step, frozen=True, kw_only=True):
    """Write our annotations again: the slices changed in place, or somebody changed what we had written."""

    marks: dict[str, str]


class Resize(Step, frozen=True, kw_only=True):
    """Change the CPU that the container asks for, in place, to what the ledger counts."""

    cpu_milli: int


class Delete(Step, frozen=True, kw_only=True):
    """End this life of the pod, gracefully."""

    pod_uid: str
    grace_s: int
    reason: str


class Publish(Step, frozen=True, kw_only=True):
    """Say what became of the request."""

    outcome: Outcome


class Conflict(Step, frozen=True, kw_only=True):
    """The pod's name is taken by something that is not ours. Say so; touch nothing."""

    outcome: Outcome


class Wait(Step, frozen=True, kw_only=True):
    """Nothing to do until something changes, or until `again_s` from now."""

    reason: str
    again_s: float | None = None
