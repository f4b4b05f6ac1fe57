"""Everything an audit compares, as it was read within one round: three witnesses and the ledger itself."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bus.ledger.proof import Proof
from bus.ledger.state import LedgerState
from contracts.answers import Summary
from contracts.inventory import NodeInventory
from contracts.messages import Message, Value
from contracts.outcomes import Allocation, NodeShares
from contracts.usage import NodeUsage
from gpubus.use import Listed, Stranger
from scheduler.core.replay import Replayed

NOT_REPLAYED = Replayed(decisions=0, differences=())
NOTHING_LISTED = Listed()

Kind = str
"""Of a finding: stable, for machines."""


class Finding(Value, frozen=True, kw_only=True):
    """One thing that does not add up."""

    kind: Kind
    subject: str
    """What it is about: a request, a pod, a card, a node. With `kind` it identifies the finding."""
    text: str
    """A sentence with the numbers."""


class Counts(Value, frozen=True, kw_only=True):
    """Where the accepted requests are, and what was not accepted."""

    accepted: int = 0
    placed: int = 0
    running: int = 0
    pending: int = 0
    ended: int = 0
    withdrawn: int = 0
    refused: int = 0
    dead_letters: int = 0
    over_commits: int = 0
    """Cards that are or ever were sold beyond what they have, by the ledger or by the pods that run."""
    cards: int = 0
    nodes: int = 0


class Report(Message, frozen=True, kw_only=True, tag="audit.report.v1"):
    """What an audit found; `sound` when every witness was heard and nothing was found."""

    sound: bool
    counts: Counts
    findings: tuple[Finding, ...] = ()
    proof: Proof = Proof()
    replayed: Replayed = NOT_REPLAYED
    epoch: str = ""
    rounds: int = 1
    processes: Listed = NOTHING_LISTED
    """On all cards, as the monitors said."""
    strangers: tuple[Stranger, ...] = ()
    """Those that belong to nobody. To have some is no finding; to have sold what they hold is one."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One round of reading. `None` = that witness could not be heard, with the reason in `silent`."""

    state: LedgerState
    """Folded from the log alone, after the witnesses were heard."""
    before: frozenset[str]
    """Uids that held a placement before they were heard."""
    proof: Proof
    conserved: bool
    replayed: Replayed = NOT_REPLAYED
    """Every decision computed again from the log before it."""
    summary: Summary | None = None
    """The scheduler's own, at `summary_sequence`."""
    summary_sequence: int = 0
    allocations: tuple[Allocation, ...] | None = None
    unreadable: tuple[str, ...] = ()
    inventories: Mapping[str, NodeInventory] = {}
    shares: Mapping[str, NodeShares] = {}
    refused: int = 0
    dead_letters: int = 0
    usage: Mapping[str, NodeUsage] = {}
    """By node, of the monitors that spoke while the others were asked."""
    silent: Mapping[str, str] = {}
    """Witness -> why it could not be heard."""
