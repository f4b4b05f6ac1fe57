"""What the ledger adds up to: nodes with their cards, requests with their placements, and sums kept as integers.

The state is one mutable value that only `bus.ledger.fold` changes. It holds no clock, no randomness and no I/O, so the
same commits give the same state on any machine. Whoever decides ahead of the log keeps two: committed and assumed.
It is a tree: nothing in it leads back to what holds it, so the garbage collector need not look (`gc=False`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from contracts.decisions import Accepted, CardHealthSet, CardSlice, Nominated, Placement, Rationale
from contracts.inventory import Card, CardHealth, NodeFacts, NodeInventory
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest
from contracts.units import WHOLE_CARD, RequestKey, RequestUid, request_key

Phase = Literal["pending", "placed", "bound", "running", "withdrawn", "ended"]
"""withdrawn and ended are final. A placed request that is being withdrawn keeps its phase and its slice until its pod
is seen to be gone; `RequestState.withdrawn` tells."""

RECENT_LIMIT = 10_000
"""Finished requests that are remembered for people at least; the log holds them all."""

RECENT_SLACK = 1_000
"""As many are forgotten at once: taking the first one out of a dict again and again walks over the holes before it."""

TOUCHED_LIMIT = 65_536
"""Changes of nodes that are remembered at least: 13 s of 5,000 placements a second, half a megabyte."""


Move = tuple[RequestUid, Placement, int]
"""Who, with what, and 1 or -1: came or left. It changed the sums of the node and of the cards in the placement."""


class Touched(msgspec.Struct):
    """Names of nodes in the order they changed. Positions count from the beginning of the state and never shift.

    A reader keeps the position up to which it has read: `touched[position:]` is what came since, `len(touched)` the
    next position. The oldest names are dropped, so that a state can live for years; whoever is that far behind gets
    an IndexError and looks at every node.
    """

    dropped: int = 0
    names: list[str] = []
    moves: list[Move | None] = []
    """Beside each name who came or went, if nothing else changed there; None: anything may have."""

    def __len__(self) -> int:
        """The position after the last change."""
        return self.dropped + len(self.names)

    def __getitem__(self, part: slice) -> list[str]:
        """Names from position `part.start` on, oldest first, repeated as they changed."""
        start = part.start or 0
        if start < self.dropped or part.stop is not None or part.step is not None:
            raise IndexError(f"changes are known from {self.dropped} on and to the end, asked for {part}")
        return self.names[start - self.dropped :]

    def since(self, position: int) -> tuple[list[str], list[Move | None]]:
        """Names from `position` on, and their moves; raises IndexError likewise."""
        names = self[position:]
        return names, self.moves[position - self.dropped :]

    def append(self, name: str, move: Move | None = None) -> None:
        """One more change."""
        names = self.names
        names.append(name)
        self.moves.append(move)
        if len(names) > 2 * TOUCHED_LIMIT:
            self.dropped += TOUCHED_LIMIT
            del names[:TOUCHED_LIMIT], self.moves[:TOUCHED_LIMIT]


class Hold(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What is kept free for a nominated request so far: it grows as others leave, up to its whole place.

    Counted in the sums of node and cards like something sold, so that nobody else gets it.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    cards: dict[str, tuple[int, int]] = {}
    """Thousandths and MiB of each card."""


class Use(msgspec.Struct, gc=False):
    """What the placed requests of a namespace hold together, and what its nominated ones will."""

    share_milli: int = 0
    memory_mib: int = 0
    requests: int = 0


class CardState(msgspec.Struct, omit_defaults=True, gc=False):
    """One card and what is sold of it."""

    card: Card
    node: str
    capacity_mib: int
    """Sellable memory."""
    present: bool = True
    """False: tenants hold it, but the node's inventory no longer lists it. Counted, never offered."""
    health: CardHealth = "healthy"
    reason: str = ""
    cordoned: bool = False
    unacquired: bool = False
    """Its node shares whole cards with other schedulers, and no placeholder of ours holds this one. Counted, never
    offered."""
    rival: str = ""
    """The node that listed this UUID first and still does. Two nodes cannot have one card: only that one offers it."""
    used_milli: int = 0
    """Sold, or held for a nominated request."""
    used_mib: int = 0
    residents: dict[RequestUid, CardSlice] = {}

    @property
    def free_milli(self) -> int:
        """Thousandths not sold."""
        return WHOLE_CARD - self.used_milli

    @property
    def free_mib(self) -> int:
        """Memory not sold."""
        return self.capacity_mib - self.used_mib

    @property
    def usable(self) -> bool:
        """Whether anything new may be placed here."""
        open_here = self.present and not self.cordoned and not self.unacquired
        return open_here and self.health == "healthy" and not self.rival

    @property
    def overcommitted(self) -> bool:
        """Sold beyond what it is: never by a decision; only by what was found running, or a card that shrank."""
        owned = self.card.owned_mib if self.card.memory_unmanaged_mib else self.capacity_mib
        return self.present and (self.used_milli > WHOLE_CARD or self.used_mib > owned)

    @property
    def squeezed_mib(self) -> int:
        """Memory that is sold here and that processes of nobody hold: they came later. Nothing new is placed on it."""
        if not self.present or not self.card.memory_unmanaged_mib:
            return 0
        return max(0, min(self.used_mib, self.card.owned_mib) - self.capacity_mib)


class NodeState(msgspec.Struct, omit_defaults=True, gc=False):
    """One node: what Kubernetes says of it, which cards it has, what our pods hold."""

    name: str
    tie: str
    """Fixed, hardware-neutral rank among equals: a digest of the name, so that names in rack order do not decide."""
    facts: NodeFacts | None = None
    inventory: NodeInventory | None = None
    fresh: bool = False
    """A heartbeat is coming in. A node begins unfresh: placing needs evidence of life."""
    reason: str = "no heartbeat yet"
    used_cpu_milli: int = 0
    used_memory_mib: int = 0
    residents: dict[RequestUid, Placement] = {}
    cards: dict[str, CardState] = {}
    """By UUID, in index order."""
    holds: dict[RequestUid, Hold] = {}
    """What is kept free here for nominated requests."""
    cordons: dict[str, CardHealthSet] = {}
    """Operators' words by card, also on cards that are not listed at present: they hold when the card comes back."""

    @property
    def free_cpu_milli(self) -> int:
        """CPU that Kubernetes would still admit."""
        facts = self.facts
        return facts.allocatable_cpu_milli - facts.foreign_cpu_milli - self.used_cpu_milli if facts else 0

    @property
    def free_memory_mib(self) -> int:
        """Host memory that Kubernetes would still admit."""
        facts = self.facts
        return facts.allocatable_memory_mib - facts.foreign_memory_mib - self.used_memory_mib if facts else 0

    @property
    def free_pods(self) -> int:
        """Pods that the kubelet would still admit."""
        facts = self.facts
        return facts.allocatable_pods - facts.foreign_pods - len(self.residents) if facts else 0


class RequestState(msgspec.Struct, omit_defaults=True, gc=False):
    """One request from acceptance to its end."""

    uid: RequestUid
    accepted: Accepted
    phase: Phase = "pending"
    accepted_at: int = 0
    """Ledger sequence of the acceptance."""
    decided_at: int = 0
    """Ledger sequence of the decision; 0 = none yet."""
    placement: Placement | None = None
    rationale: Rationale | None = None
    started_ms: int = 0
    """Wall clock when it got its placement; 0 = not known."""
    withdrawn: bool = False
    pod: str = ""
    ending: str = ""
    """Evidence of the end: ended, gone, node-gone, rejected, never-created, withdrawn."""
    detail: str = ""
    nomination: Nominated | None = None
    """The place that it waits for."""
    nominated_at: int = 0
    """Number of that commit."""
    nominated_ms: int = 0
    held: Hold | None = None
    """How much of that place is free and kept for it."""
    evicted_for: RequestUid = RequestUid("")
    """Whom it must leave for; it is counted until it is seen to be gone."""
    before_resize: Placement | None = None
    """What it held before the last resize, for the case that Kubernetes refuses it; None = that was put back."""
    put_back: str = ""
    """Why its last resize was put back."""
    leaving_ms: int = 0
    """The ledger's clock when it was told to go: withdrawn, or evicted."""
    attempt: int = 0
    """How often it had to leave and was queued again."""
    last_node: str = ""
    """Where it was before that."""

    @property
    def request(self) -> PodRequest:
        """What was asked for."""
        return self.accepted.request

    @property
    def key(self) -> RequestKey:
        """`<namespace>/<name>`."""
        return request_key(self.accepted.namespace, self.accepted.request.name)

    @property
    def live(self) -> bool:
        """Whether it still occupies its name."""
        return self.phase not in ("withdrawn", "ended")

    @property
    def leaving(self) -> bool:
        """It holds a place and has been told to go."""
        return self.placement is not None and (self.withdrawn or self.evicted_for != "")


class Service(msgspec.Struct, array_like=True, gc=False):
    """How long placements of one class have lasted: enough to tell the mean of those that ended and that run."""

    ended: int = 0
    ended_ms: int = 0
    """Summed over those that ended."""
    running: int = 0
    begun_ms: int = 0
    """Wall clock at the beginning, summed over those that run."""


class Totals(msgspec.Struct):
    """Counters since the epoch began; accepted = pending + placed + withdrawn + ended, always."""

    accepted: int = 0
    withdrawn: int = 0
    ended: int = 0


class LedgerState(msgspec.Struct):
    """Everything that a decision depends on, at one ledger sequence."""

    pool: str = "default"
    epoch: str = ""
    sequence: int = 0
    """Stream sequence of the last commit folded; 0 = none."""
    number: int = 0
    requests_through: int = 0
    nodes: dict[str, NodeState] = {}
    requests: dict[RequestUid, RequestState] = {}
    """Live ones."""
    by_key: dict[RequestKey, RequestUid] = {}
    pending: dict[RequestUid, RequestState] = {}
    """In order of acceptance."""
    recent: dict[RequestUid, RequestState] = {}
    """Finished ones, oldest first, bounded."""
    recent_by_key: dict[RequestKey, RequestUid] = {}
    """The last finished one of each name, as far as `recent` goes."""
    homes: dict[str, str] = {}
    """The node that offers a card: where a UUID is listed, and was listed first."""
    learned: dict[str, int] = {}
    """`mix` as decisions go by it: of the last learning point that is in force (`bus.ledger.learning`). A part of the
    state, so that whoever folds the same log has learned the same, whenever they began to read it."""
    learned_at: int = 0
    """Requests accepted at that point; 0 = none yet."""
    learned_service: dict[str, tuple[int, int]] = {}
    """By class, at that point: milliseconds in service so far, and how many have ended."""
    coming: dict[str, int] = {}
    """The same of the last learning point, in force or not yet."""
    coming_at: int = 0
    coming_service: dict[str, tuple[int, int]] = {}
    mix: dict[str, int] = {}
    """How often each shape was accepted: what is likely to come."""
    service: dict[str, Service] = {}
    """How long each of them ran."""
    clock_ms: int = 0
    """The last wall clock told; 0 = none yet."""
    began: list[RequestUid] = []
    """Placed since then: a record has no time of its own, the end of its commit has."""
    ended: list[tuple[str, int]] = []
    """Class and beginning of what ended since then."""
    totals: Totals = msgspec.field(default_factory=Totals)
    evicted: int = 0
    """Requests told to leave for another one, since the epoch began; each time counts."""
    quotas: dict[str, NamespaceQuota] = {}
    """The operator's last word on each namespace, removals too; quotas are on when there is any."""
    usage: dict[str, Use] = {}
    """By namespace; one that holds nothing is not in it. Follows from the placements and nominations."""
    nominated: dict[RequestUid, RequestState] = {}
    """Pending ones that wait for a place that was chosen."""
    touched: Touched = msgspec.field(default_factory=Touched)
    """Names of nodes in the order they changed; another object when positions in the old one mean nothing any more."""

    def find(self, key: RequestKey) -> RequestState | None:
        """The live request of that name, else the most recently finished one."""
        uid = self.by_key.get(key)
        if uid is not None:
            return self.requests[uid]
        uid = self.recent_by_key.get(key)
        return self.recent[uid] if uid is not None else None

    def get(self, uid: RequestUid) -> RequestState | None:
        """A request by uid, live or recently finished."""
        return self.requests.get(uid) or self.recent.get(uid)

    def cards(self) -> Iterator[CardState]:
        """All cards, by node name and index."""
        for name in sorted(self.nodes):
            yield from self.nodes[name].cards.values()

    def overcommits(self) -> list[CardState]:
        """Cards sold beyond what they are; empty, or an alarm."""
        return [card for card in self.cards() if card.overcommitted]

    def placed_count(self) -> int:
        """Live requests that hold a placement."""
        return len(self.requests) - len(self.pending)
