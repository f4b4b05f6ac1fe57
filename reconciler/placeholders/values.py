"""The vocabulary of placeholders: what is seen of them, what a node is like, what is to be done. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from contracts.inventory import CardMode
from reconciler import marks
from reconciler.objects import Node

LABEL = f"{marks.DOMAIN}placeholder"
"""Of a placeholder pod, in our own namespace; its value is the number of its slot on the node."""
HOLDS = f"{marks.DOMAIN}holds"
"""The card that it was seen to hold."""
PROOF = f"{marks.DOMAIN}proof"
"""`<boot of the node>/<container>` when that was seen."""
RELEASING = f"{marks.DOMAIN}releasing"
"""It is about to go: its card is offered no more. Written before the deletion, which then names this version."""
MODE = f"{marks.DOMAIN}mode"
"""Label of a Node: `dedicated` (the default) or `coexist`."""

State = Literal["starting", "new", "held", "unproven", "leaving", "lost"]
"""starting: no card is known, or it does not run yet. new: it runs on a card and that is not written down yet. held: it
is. unproven: the node has booted since, and the kubelet has not said again what it holds. leaving: being deleted. lost:
it ended, in whatever way; its card may be anybody's."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation chooses; the defaults are those of the settings."""

    namespace: str
    """Where placeholders live; pods elsewhere are none, whatever their labels say."""
    image: str
    priority_class: str
    runtime_class: str
    resource: str
    """What the device plugin calls its cards."""
    release_idle_after_s: float | None
    """How long an idle card is kept; None = for ever."""
    min_idle: int
    """Idle cards that each node keeps."""
    acquire_after_s: float
    """How long a request waits before a card is got for it: the scheduler has found no place meanwhile."""
    start_timeout_s: float
    at_once: int = 16
    """Placeholders of one node that may be starting together."""
    base_s: float = 1.0
    cap_s: float = 300.0
    """Pause after a failure on a node, doubled each time up to the cap."""


class Placeholder(msgspec.Struct, frozen=True, kw_only=True):
    """One placeholder pod as it is seen."""

    uid: str
    name: str
    version: str
    slot: int
    state: State
    card: str = ""
    """As the kubelet says now; empty = it does not."""
    proof: str = ""
    """Of now, to be written down with it."""
    releasing: bool = False
    ill: bool = False
    """The device plugin calls its card unhealthy."""
    why: str = ""
    """What keeps it from running, or ended it."""

    @property
    def offers(self) -> bool:
        """Its card is ours to sell."""
        return self.state == "held" and not self.releasing and not self.ill


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan for one node is made from."""

    name: str
    mode: CardMode = "coexist"
    against: str = ""
    """Why nothing may be acquired there now; empty = nothing is known against it."""
    devices: int = 0
    """That the device plugin offers, used ones too; 0 while it is away."""
    free: int = 0
    """Of these, not asked for by any pod that is bound there."""
    placeholders: tuple[Placeholder, ...] = ()
    """By slot."""
    tenants: frozenset[str] = frozenset()
    """Cards that the ledger has sold, or keeps for somebody: from the decision on, long before there is a pod."""
    offered: frozenset[str] = frozenset()
    """Cards that the ledger believes to be acquired, as far as we have read it."""
    taken: Mapping[str, str] = {}
    """Cards that the device plugin gave to others, and the pods that have them."""


class Acquire(msgspec.Struct, frozen=True, kw_only=True):
    """Make a placeholder; that it is there already is as good."""

    slot: int


class Prove(msgspec.Struct, frozen=True, kw_only=True):
    """Write down which card it holds, since which boot and in which container."""

    what: Placeholder


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Offer its card no more; it goes once the ledger has heard of it."""

    what: Placeholder


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """The same taken back: the card was sold meanwhile."""

    what: Placeholder


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Delete it, gracefully: this life of it, and this version of that."""

    what: Placeholder
    reason: str


Step = Acquire | Prove | Release | Keep | End
"""An action on one node."""


def mode_of(node: Node) -> tuple[CardMode, str]:
    """How its cards are shared out, and what is wrong with its label. What nobody understands sells no card."""
    said = (node.metadata.labels or {}).get(MODE, "dedicated")
    if said in ("dedicated", "coexist"):
        return ("coexist" if said == "coexist" else "dedicated"), ""
    return "coexist", f"label {MODE}={said!r} of the node is neither dedicated nor coexist"
